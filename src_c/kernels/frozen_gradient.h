/* The careful way back where mean and rstd are constants, for a column (or any strided run) whose sums or products may leave
 * the range of `real` on the way: each factor as a mantissa and an exponent.
 *
 *     dx = dy * weight * rstd       dweight = sum(dy * (x - mean) * rstd)       dbias = sum(dy)
 */
#ifndef CN_FROZEN_GRADIENT_H
#define CN_FROZEN_GRADIENT_H

#include "moments.h"

#include <limits.h>

typedef struct {
    acc mantissa; /* NaN and infinities stay what they are */
    int exponent;
} parts;

static inline parts split_parts(acc value)
{
    parts p = {value, 0};
    if (fabs(value) <= DBL_MAX)
        p.mantissa = frexp(value, &p.exponent);
    return p;
}

static inline parts multiply_parts(parts a, parts b)
{
    return (parts){a.mantissa * b.mantissa, a.exponent + b.exponent};
}

/* dy, or dy * (x - mean) * rstd; of a difference that overflows, the half. */
static inline parts frozen_term(real dy, const real *x, real mean, real rstd)
{
    parts p = split_parts(dy);
    if (!x)
        return p;
    acc distance = (acc)*x - (acc)mean;
    bool halve = fabs(distance) > DBL_MAX;
    p = multiply_parts(
        p, multiply_parts(split_parts(halve ? (acc)*x * 0.5 - (acc)mean * 0.5 : distance), split_parts(rstd)));
    p.exponent += halve;
    return p;
}

/* The sum of the terms of `runs` runs of `length` elements, `stride` apart; without x that of dy. */
static inline acc frozen_sum(const real *dy, const real *x, size_t runs, size_t length, size_t stride, real mean,
                             real rstd)
{
    size_t n = runs * length;
    int largest = INT_MIN / 2;
    for (size_t i = 0; i < n; i++) {
        size_t at = i / length * stride + i % length;
        parts p = frozen_term(dy[at], x ? x + at : NULL, mean, rstd);
        if (p.mantissa != 0 && p.exponent > largest)
            largest = p.exponent;
    }
    acc sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = i / length * stride + i % length;
        parts p = frozen_term(dy[at], x ? x + at : NULL, mean, rstd);
        lost += two_sum(&sum, ldexp(p.mantissa, p.exponent - largest));
    }
    return ldexp(sum + (fabs(sum) <= DBL_MAX ? lost : 0), largest);
}

/* dx of n elements, `stride` apart. */
static inline void frozen_apply(real *dx, const real *dy, size_t stride, size_t n, real weight, real rstd)
{
    parts scale = multiply_parts(split_parts(weight), split_parts(rstd));
    for (size_t i = 0; i < n * stride; i += stride) {
        parts p = multiply_parts(split_parts(dy[i]), scale);
        dx[i] = (real)ldexp(p.mantissa, p.exponent);
    }
}

#endif
