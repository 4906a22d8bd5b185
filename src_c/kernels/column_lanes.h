/* Sums over the columns of a group, of numbers that are sums over their rows already: in lanes, folded in order. */
#ifndef CN_COLUMN_LANES_H
#define CN_COLUMN_LANES_H

#include "moments.h"

#define SUM_LANES 8

/* A sum, and what rounding took from it, of double data. */
typedef struct {
    acc sum[SUM_LANES], lost[SUM_LANES];
} column_lanes;

/* The numbers x, times weight if there is one. */
CN_INLINE void add_lanes(column_lanes *s, const acc *x, const real *weight)
{
#pragma omp simd
    for (int l = 0; l < SUM_LANES; l++)
        add_to(&s->sum[l], &s->lost[l], weight ? x[l] * weight[l] : x[l]);
}

/* Fewer numbers than there are lanes. */
CN_INLINE void add_rest(column_lanes *s, const acc *x, const real *weight, size_t n)
{
    acc rest[SUM_LANES] = {0};
    for (size_t l = 0; l < n; l++)
        rest[l] = weight ? x[l] * weight[l] : x[l];
    add_lanes(s, rest, NULL);
}

/* The sum; `low` takes what rounding lost. */
CN_INLINE acc fold_column_lanes(const column_lanes *s, acc *low)
{
    acc a[SUM_LANES / 2], b[SUM_LANES / 4], c[SUM_LANES / 8];
    acc a_lost[SUM_LANES / 2], b_lost[SUM_LANES / 4], c_lost[SUM_LANES / 8];
    fold_halves(a, a_lost, s->sum, s->lost, SUM_LANES / 2);
    fold_halves(b, b_lost, a, a_lost, SUM_LANES / 4);
    fold_halves(c, c_lost, b, b_lost, SUM_LANES / 8);
    if (sizeof(real) == sizeof(acc))
        *low += c_lost[0];
    return c[0];
}

static inline acc lane_sum(const acc *x, size_t n, acc *low)
{
    column_lanes s = {0};
    size_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        add_lanes(&s, x + i, NULL);
    if (i < n)
        add_rest(&s, x + i, NULL, n - i);
    return fold_column_lanes(&s, low);
}

/* The same as one number. */
static inline acc whole_sum(const acc *x, size_t n)
{
    acc low = 0, sum = lane_sum(x, n, &low);
    return sum + low;
}

#endif
