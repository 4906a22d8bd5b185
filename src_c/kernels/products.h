/* Sums of products in acc: in lanes, folded in order. Products of float data are exact; the sums of double data are
 * compensated (moments.h). Four products are added in a tree before they join a lane.
 */
#ifndef CN_PRODUCTS_H
#define CN_PRODUCTS_H

#include "column_lanes.h"

#define TREE 4

static inline size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* Sum of w[i] * x[i]; `low` takes what rounding lost, of double data. */
static inline acc dot(const real *w, const acc *x, size_t n, acc *low)
{
    column_lanes s = {0};
    size_t i = 0;
    for (; i + TREE * SUM_LANES <= n; i += TREE * SUM_LANES) {
        const real *a = w + i;
        const acc *b = x + i;
#pragma omp simd
        for (int l = 0; l < SUM_LANES; l++) {
            acc p0 = (acc)a[l] * b[l], p1 = (acc)a[l + SUM_LANES] * b[l + SUM_LANES];
            acc p2 = (acc)a[l + 2 * SUM_LANES] * b[l + 2 * SUM_LANES];
            acc p3 = (acc)a[l + 3 * SUM_LANES] * b[l + 3 * SUM_LANES];
            add_to(&s.sum[l], &s.lost[l], (p0 + p1) + (p2 + p3));
        }
    }
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
#pragma omp simd
        for (int l = 0; l < SUM_LANES; l++)
            add_to(&s.sum[l], &s.lost[l], (acc)w[i + l] * x[i + l]);
    }
    acc sum = n < SUM_LANES ? 0 : fold_column_lanes(&s, low);
    for (; i < n; i++)
        add_to(&sum, low, (acc)w[i] * x[i]);
    return sum;
}

/* Sum of a[i] * b[i], both in acc. */
static inline acc inner_product(const acc *a, const acc *b, size_t n)
{
    column_lanes s = {0};
    acc low = 0;
    size_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
#pragma omp simd
        for (int l = 0; l < SUM_LANES; l++)
            add_to(&s.sum[l], &s.lost[l], a[i + l] * b[i + l]);
    }
    acc sum = fold_column_lanes(&s, &low);
    for (; i < n; i++)
        add_to(&sum, &low, a[i] * b[i]);
    return sum + low;
}

#endif
