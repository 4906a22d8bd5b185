/* The careful way of spectral norm forward. */
#ifndef CN_WIDE_SPECTRAL_NORM_H
#define CN_WIDE_SPECTRAL_NORM_H

#include "wide_spectral.h"

/* Exponents of matrix and vector below which a product that is 0 may have vanished. */
#define EXPONENT_LEAST (sizeof(real) == 4 ? -60 : -400)

/* Whether a product with the vector x is 0 as it should, because one of the two is or their terms cancel. */
static inline bool is_true_zero(const real *weight, size_t n, const real *x, size_t length)
{
    wide_scale a = find_scale(weight, n), b = find_scale(x, length);
    return a.finite && b.finite && (a.zero || b.zero || a.exponent + b.exponent >= EXPONENT_LEAST);
}

typedef struct {
    const real *weight;
    wide_shape shape;
    wide_scale scale;
    acc *t, *lost; /* the last product, over 2^exponent */
    int exponent;
} wide_matrix;

/* t = W^T u (`over_rows`) or W v. */
static void wide_product(wide_matrix *m, const real *x, bool over_rows)
{
    const wide_shape s = m->shape;
    size_t cols = s.outer * s.inner, n = over_rows ? cols : s.rows;
    const wide_scale vector = find_scale(x, over_rows ? s.rows : cols);
    const real *weight = m->weight;
    for (size_t i = 0; i < n; i++)
        m->t[i] = m->lost[i] = 0;
    for (size_t o = 0; o < s.outer; o++) {
        for (size_t r = 0; r < s.rows; r++, weight += s.inner) {
            for (size_t i = 0; i < s.inner; i++) {
                size_t col = o * s.inner + i, to = over_rows ? col : r;
                acc term = scaled(weight[i], &m->scale) * scaled(x[over_rows ? r : col], &vector);
                m->lost[to] += two_sum(&m->t[to], term);
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        m->t[i] += m->lost[i];
    m->exponent = m->scale.exponent + vector.exponent;
}

/* x = t / max(||t||, eps), both times 2^exponent; 0 for 0 / 0. */
static void wide_normalise(real *x, const wide_matrix *m, size_t n, acc eps)
{
    acc square = 0, lost = 0;
    for (size_t i = 0; i < n; i++)
        lost += two_sum(&square, m->t[i] * m->t[i]);
    acc norm = sqrt(square + lost);
    int k = 0;
    acc fraction = frexp(eps, &k);
    bool small = eps > 0 && norm <= ldexp(eps, -m->exponent);
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(small ? ldexp(m->t[i] / fraction, m->exponent - k) : norm == 0 ? 0 : m->t[i] / norm);
}

static void fill(real *x, size_t n, real value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* Returns sigma, which may round to 0 or infinity; w does not suffer from that. The workspace has room for twice as many
 * numbers as the matrix has rows, or columns if those are more. */
CN_NOINLINE static acc wide_spectral_norm(real *w, real *u, real *v, const real *weight, wide_shape s,
                                          size_t iterations, acc eps, acc *workspace)
{
    size_t rows = s.rows, cols = s.outer * s.inner, n = wide_size(s), longer = rows > cols ? rows : cols;
    wide_matrix m = {.weight = weight, .shape = s, .scale = find_scale(weight, n)};
    m.t = workspace, m.lost = workspace + longer;
    if (!m.scale.finite || !find_scale(u, rows).finite || (!iterations && !find_scale(v, cols).finite)) {
        fill(u, iterations ? rows : 0, NAN), fill(v, iterations ? cols : 0, NAN), fill(w, n, NAN);
        return NAN;
    }
    for (size_t i = 0; i < iterations; i++) {
        wide_product(&m, u, true);
        wide_normalise(v, &m, cols, eps);
        wide_product(&m, v, false);
        wide_normalise(u, &m, rows, eps);
    }
    if (!iterations)
        wide_product(&m, v, false);
    const wide_scale left = find_scale(u, rows);
    acc sum = 0, low = 0;
    for (size_t i = 0; i < rows; i++)
        low += two_sum(&sum, scaled(u[i], &left) * m.t[i]);
    sum += low;
    int back = m.scale.exponent - left.exponent - m.exponent; /* sigma is sum * 2^(left + m.exponent) */
    for (size_t i = 0; i < n; i++)
        w[i] = (real)(sum == 0 ? 0 : ldexp(scaled(weight[i], &m.scale) / sum, back));
    return ldexp(sum, left.exponent + m.exponent);
}

#endif
