/* What the careful ways of spectral norm, forward and back, have in common. They are for data whose squares or products
 * may overflow or vanish: weight and vectors are scaled by powers of two to at most 1 in plain passes, and the exponents
 * are kept apart. Everything is in acc, sums are compensated. A call with a non-finite element is NaN as a whole.
 */
#ifndef CN_WIDE_SPECTRAL_H
#define CN_WIDE_SPECTRAL_H

#include "moments.h"

/* Whether a squared norm, or a squared sum, tells that nothing that matters was lost. */
static inline bool wide_enough(acc square) { return square >= VARIANCE_MIN && square <= VARIANCE_MAX; }

typedef struct {
    size_t outer, rows, inner;
} wide_shape;

static inline size_t wide_size(wide_shape s) { return s.outer * s.rows * s.inner; }

/* x / 2^exponent is at most 1; in two steps, since 2^-exponent itself can be out of range. */
typedef struct {
    int exponent;
    acc scale1, scale2;
    bool finite, zero;
} wide_scale;

static wide_scale find_scale(const real *x, size_t n)
{
    real largest = 0;
    int strange = 0;
#pragma omp simd reduction(max : largest) reduction(| : strange)
    for (size_t i = 0; i < n; i++) {
        real a = x[i] < 0 ? -x[i] : x[i];
        strange |= !(a <= (real)REAL_MAX);
        largest = a > largest ? a : largest;
    }
    wide_scale s = {.finite = !strange, .zero = largest == 0 && !strange};
    if (s.finite)
        frexp((acc)largest, &s.exponent);
    s.scale1 = ldexp(1, -(s.exponent / 2));
    s.scale2 = ldexp(1, -(s.exponent - s.exponent / 2));
    return s;
}

CN_INLINE acc scaled(real x, const wide_scale *s) { return (acc)x * s->scale1 * s->scale2; }

#endif
