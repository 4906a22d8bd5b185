/* Sums of products: a few of them are added in a tree in `real` before they join the lanes in acc, as in moments.h.
 * Products may overflow or vanish: that is to be seen in the result (wide_spectral.h). Where the sum is so much smaller
 * than its terms that their roundings would show, there are sums of exact products: acc holds those of float data, and
 * the error of those of double data is computed.
 */
#ifndef CN_PRODUCTS_H
#define CN_PRODUCTS_H

#include "normaliser.h"

static inline size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* Sum of a[i] * b[i]. */
static inline acc dot(const real *a, const real *b, size_t n)
{
    acc sum[LANES] = {0}, lost[LANES] = {0}, rest = 0, rest_lost = 0;
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        const real *p = a + i, *q = b + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            real t0 = p[l] * q[l], t1 = p[l + LANES] * q[l + LANES];
            real t2 = p[l + 2 * LANES] * q[l + 2 * LANES], t3 = p[l + 3 * LANES] * q[l + 3 * LANES];
            add_to(&sum[l], &lost[l], (acc)((t0 + t1) + (t2 + t3)));
        }
    }
    for (; i + LANES <= n; i += LANES) {
        const real *p = a + i, *q = b + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            add_to(&sum[l], &lost[l], (acc)(p[l] * q[l]));
    }
    for (; i < n; i++)
        add_to(&rest, &rest_lost, (acc)a[i] * (acc)b[i]);
    acc total = n < LANES ? 0 : fold_lanes(sum, lost);
    add_to(&total, &rest_lost, rest);
    return total + rest_lost;
}

/* sum += a * b, exactly. */
CN_INLINE void add_product(acc *sum, acc *lost, acc a, acc b)
{
    acc product = a * b;
    if (sizeof(real) == sizeof(acc))
        *lost += product_error(a, b, product);
    add_to(sum, lost, product);
}

static inline acc exact_dot(const real *a, const real *b, size_t n)
{
    acc sum[LANES] = {0}, lost[LANES] = {0}, rest = 0, rest_lost = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            add_product(&sum[l], &lost[l], a[i + l], b[i + l]);
    }
    for (; i < n; i++)
        add_product(&rest, &rest_lost, a[i], b[i]);
    acc total = fold_lanes(sum, lost);
    add_to(&total, &rest_lost, rest);
    return total + rest_lost;
}

static inline acc sum_of_squares(const acc *x, size_t n)
{
    acc sum[LANES] = {0}, lost[LANES] = {0}, rest = 0, rest_lost = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            add_to(&sum[l], &lost[l], x[i + l] * x[i + l]);
    }
    for (; i < n; i++)
        add_to(&rest, &rest_lost, x[i] * x[i]);
    acc total = fold_lanes(sum, lost);
    add_to(&total, &rest_lost, rest);
    return total + rest_lost;
}

/* Sum of a[i] * x[i]. */
static inline acc wide_dot(const real *a, const acc *x, size_t n)
{
    acc sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++)
        add_product(&sum, &lost, a[i], x[i]);
    return sum + lost;
}

/* Runs of the weight, `stride` apart, that are added up together. */
#define TREE 8

/* sums += x[0] w[0] + ... + x[7] w[7], rows of n elements. */
static inline void add_eight_rows(acc *sums, acc *lost, const real *w, size_t stride, const real *x, size_t n)
{
    const real *w0 = w, *w1 = w0 + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    const real *w4 = w3 + stride, *w5 = w4 + stride, *w6 = w5 + stride, *w7 = w6 + stride;
    const real x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6], x7 = x[7];
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        add_to(&sums[i], &lost[i],
               (acc)(((w0[i] * x0 + w1[i] * x1) + (w2[i] * x2 + w3[i] * x3)) +
                     ((w4[i] * x4 + w5[i] * x5) + (w6[i] * x6 + w7[i] * x7))));
}

/* One by one, and `exact`ly, or eight at a time. */
static inline void add_rows(acc *sums, acc *lost, const real *w, size_t stride, const real *x, size_t rows, size_t n,
                            bool exact)
{
    size_t r = 0;
    for (; !exact && r + TREE <= rows; r += TREE)
        add_eight_rows(sums, lost, w + r * stride, stride, x + r, n);
    for (; r < rows; r++) {
        const real *row = w + r * stride;
        const acc factor = x[r];
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            add_product(&sums[i], &lost[i], row[i], factor);
    }
}

#define SHORT_RUN 64

/* The dot product of eight short runs of n elements with x, whose runs follow each other. */
static inline acc dot_eight_runs(const real *w, size_t stride, const real *x, size_t n)
{
    const real *w0 = w, *w1 = w0 + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    const real *w4 = w3 + stride, *w5 = w4 + stride, *w6 = w5 + stride, *w7 = w6 + stride;
    const real *x0 = x, *x1 = x0 + n, *x2 = x1 + n, *x3 = x2 + n, *x4 = x3 + n, *x5 = x4 + n, *x6 = x5 + n,
               *x7 = x6 + n;
    real terms[SHORT_RUN];
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        terms[i] = ((w0[i] * x0[i] + w1[i] * x1[i]) + (w2[i] * x2[i] + w3[i] * x3[i])) +
                   ((w4[i] * x4[i] + w5[i] * x5[i]) + (w6[i] * x6[i] + w7[i] * x7[i]));
    acc sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++)
        add_to(&sum, &lost, (acc)terms[i]);
    return sum + lost;
}

#endif
