/* The careful way of spectral norm back. */
#ifndef CN_WIDE_SPECTRAL_GRADIENT_H
#define CN_WIDE_SPECTRAL_GRADIENT_H

#include "wide_spectral.h"

/* The exponent of dw beyond which a sum of products that is small may have lost something that matters. */
#define EXPONENT_MOST (sizeof(real) == 4 ? 30 : 400)

/* Whether sum(dw * weight) and sigma are to be trusted. */
static inline bool sum_is_safe(acc sum, acc sigma, const real *dw, size_t n)
{
    if (!wide_enough(sigma * sigma) || wide_enough(sum * sum))
        return wide_enough(sigma * sigma);
    wide_scale s = find_scale(dw, n);
    return fabs(sum) < 1 && s.finite && s.exponent >= -EXPONENT_MOST && s.exponent <= EXPONENT_MOST;
}

CN_NOINLINE static void wide_spectral_gradient(real *dweight, const real *dw, const real *weight, const real *u,
                                               const real *v, acc sigma, wide_shape s)
{
    size_t n = wide_size(s), at = 0;
    const wide_scale a = find_scale(dw, n), b = find_scale(weight, n);
    const wide_scale left = find_scale(u, s.rows), right = find_scale(v, s.outer * s.inner);
    acc sum = 0, low = 0;
    int k = 0;
    acc fraction = frexp(sigma, &k);
    for (size_t i = 0; i < n; i++)
        low += two_sum(&sum, scaled(dw[i], &a) * scaled(weight[i], &b));
    acc slope = (sum + low) / fraction;
    if (n == 1) /* as on the ordinary way */
        slope = scaled(dw[0], &a) * (scaled(weight[0], &b) / fraction);
    if (!a.finite || !b.finite || !left.finite || !right.finite)
        slope = NAN;
    int relative = b.exponent - k + left.exponent + right.exponent;
    for (size_t o = 0; o < s.outer; o++) {
        for (size_t r = 0; r < s.rows; r++) {
            for (size_t i = 0; i < s.inner; i++, at++) {
                acc part = slope * scaled(u[r], &left) * scaled(v[o * s.inner + i], &right);
                dweight[at] = (real)ldexp((scaled(dw[at], &a) - ldexp(part, relative)) / fraction, a.exponent - k);
            }
        }
    }
}

#endif
