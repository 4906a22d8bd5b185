/* The careful way back of spectral norm, for double data whose sum of products may have overflowed or vanished: everything
 * is scaled by powers of two to at most 1 in plain passes. A call with a non-finite element is NaN as a whole.
 */
#ifndef CN_WIDE_SPECTRAL_GRADIENT_H
#define CN_WIDE_SPECTRAL_GRADIENT_H

#include "wide_spectral.h"

#include <stdlib.h>

/* Exponents of dw between which a sum of products that is small has lost nothing that matters. */
#define EXPONENT_MOST 400

/* Whether sum(dw * weight) and sigma are to be trusted; of float data always. */
static inline bool sum_is_safe(acc sum, acc sigma, const real *dw, size_t n)
{
    int k;
    if (!wide_enough(sigma * sigma))
        return false;
    return wide_enough(sum * sum) || (fabs(sum) < 1 && find_exponent(dw, n, &k) && abs(k) <= EXPONENT_MOST);
}

CN_NOINLINE static void wide_spectral_gradient(real *dweight, const real *dw, const real *weight, const real *u,
                                               const real *v, acc sigma, wide_weight s)
{
    int k, k_dw, k_u, k_v, k_sigma;
    size_t n = wide_size(s);
    bool finite = find_exponent(weight, n, &k) & find_exponent(dw, n, &k_dw) & find_exponent(u, s.rows, &k_u);
    finite &= find_exponent(v, s.outer * s.inner, &k_v);
    acc fraction = frexp(sigma, &k_sigma), sum = 0, low = 0;
    for (size_t i = 0; i < n; i++)
        low += two_sum(&sum, ldexp((acc)dw[i], -k_dw) * ldexp((acc)weight[i], -k));
    acc slope = finite ? (sum + low) / fraction : NAN;
    if (n == 1)
        slope = sum - sum + ldexp((acc)dw[0], -k_dw) * (ldexp((acc)weight[0], -k) / fraction);
    for (size_t i = 0; i < n; i++) {
        acc part = slope * ldexp((acc)u[wide_row(s, i)], -k_u) * ldexp((acc)v[wide_col(s, i)], -k_v);
        acc value = (ldexp((acc)dw[i], -k_dw) - ldexp(part, k - k_sigma + k_u + k_v)) / fraction;
        dweight[i] = (real)ldexp(value, k_dw - k_sigma);
    }
}

#endif
