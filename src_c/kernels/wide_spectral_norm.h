/* The careful way of spectral norm forward. */
#ifndef CN_WIDE_SPECTRAL_NORM_H
#define CN_WIDE_SPECTRAL_NORM_H

#include "wide_spectral.h"

/* A vector that is x * 2^exponent of what is stored: t = W x / 2^(k + exponent) (or W^T x), compensated. */
static void wide_product(acc *t, acc *lost, const real *weight, wide_weight s, int k, const real *x, int exponent,
                         bool over_rows)
{
    size_t n = over_rows ? s.outer * s.inner : s.rows;
    for (size_t i = 0; i < n; i++)
        t[i] = lost[i] = 0;
    for (size_t i = 0; i < wide_size(s); i++) {
        size_t to = over_rows ? wide_col(s, i) : wide_row(s, i), from = over_rows ? wide_row(s, i) : wide_col(s, i);
        lost[to] += two_sum(&t[to], ldexp((acc)weight[i], -k) * ldexp((acc)x[from], -exponent));
    }
    for (size_t i = 0; i < n; i++)
        t[i] += lost[i];
}

/* x = t * 2^exponent / max(||t * 2^exponent||, eps). */
static void wide_normalise(real *x, const acc *t, size_t n, int exponent, acc eps)
{
    acc square = 0, lost = 0;
    for (size_t i = 0; i < n; i++)
        lost += two_sum(&square, t[i] * t[i]);
    acc norm = sqrt(square + lost);
    int k = 0;
    acc fraction = frexp(eps, &k);
    bool small = norm <= ldexp(eps, -exponent) && eps > 0;
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(small ? ldexp(t[i] / fraction, exponent - k) : norm == 0 ? 0 : t[i] / norm);
}

static void fill(real *x, size_t n, real value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* Returns sigma, which may round to 0 or infinity; w does not suffer from that. The workspace has room for twice as many
 * numbers as the matrix has rows and columns. */
CN_NOINLINE static acc wide_spectral_norm(real *w, real *u, real *v, const real *weight, wide_weight s,
                                          size_t iterations, acc eps, acc *workspace)
{
    size_t rows = s.rows, cols = s.outer * s.inner, longer = rows > cols ? rows : cols;
    acc *t = workspace, *lost = t + longer, sum = 0, low = 0;
    int k, ku, kv;
    bool finite = find_exponent(weight, wide_size(s), &k) & find_exponent(u, rows, &ku);
    finite &= iterations > 0 || find_exponent(v, cols, &kv);
    if (!finite) {
        fill(u, iterations ? rows : 0, NAN), fill(v, iterations ? cols : 0, NAN), fill(w, wide_size(s), NAN);
        return NAN;
    }
    for (size_t i = 0; i < iterations; i++) {
        wide_product(t, lost, weight, s, k, u, ku, true);
        wide_normalise(v, t, cols, k + ku, eps);
        find_exponent(v, cols, &kv);
        wide_product(t, lost, weight, s, k, v, kv, false);
        wide_normalise(u, t, rows, k + kv, eps);
        find_exponent(u, rows, &ku);
    }
    if (!iterations)
        wide_product(t, lost, weight, s, k, v, kv, false);
    for (size_t i = 0; i < rows; i++)
        low += two_sum(&sum, ldexp((acc)u[i], -ku) * t[i]);
    sum += low; /* sigma is sum * 2^(k + ku + kv) */
    for (size_t i = 0; i < wide_size(s); i++)
        w[i] = (real)(sum == 0 ? 0 : ldexp(ldexp((acc)weight[i], -k) / sum, -ku - kv));
    return ldexp(sum, k + ku + kv);
}

#endif
