/* What the careful ways of spectral norm, forward and back, have in common. They are for double data whose squares or
 * products may overflow or vanish: weight and vectors are scaled by powers of two to at most 1 in plain passes, and the
 * exponents are kept apart. A call with a non-finite element is NaN as a whole. Float data never come here: their
 * products and squares are within the range of acc.
 */
#ifndef CN_WIDE_SPECTRAL_H
#define CN_WIDE_SPECTRAL_H

#include "moments.h"

/* Whether a squared norm, or a squared sigma, tells that nothing that matters was lost; of float data always. */
static inline bool wide_enough(acc square)
{
    return sizeof(real) < sizeof(acc) || (square >= VARIANCE_MIN && square <= VARIANCE_MAX);
}

typedef struct {
    size_t outer, rows, inner;
} wide_weight;

static inline size_t wide_size(wide_weight s) { return s.outer * s.rows * s.inner; }

/* The row and the column of element i. */
static inline size_t wide_row(wide_weight s, size_t i) { return i / s.inner % s.rows; }
static inline size_t wide_col(wide_weight s, size_t i) { return i / (s.rows * s.inner) * s.inner + i % s.inner; }

/* The exponent k for which x / 2^k is at most 1, 0 if all are zero; false if an element is not finite. */
static bool find_exponent(const real *x, size_t n, int *k)
{
    acc largest = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        acc a = fabs((acc)x[i]);
        finite &= a <= REAL_MAX;
        largest = a > largest ? a : largest;
    }
    *k = 0;
    if (finite)
        frexp(largest, k);
    return finite;
}

#endif
