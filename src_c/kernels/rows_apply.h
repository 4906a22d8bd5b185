/* The backward pass of norms over rows: dx of some columns of one row or of four, and what they add to the sums of the
 * parameters, which run along the row.
 */
#ifndef CN_ROWS_APPLY_H
#define CN_ROWS_APPLY_H

#include "rows_sums.h"

CN_INLINE real hat_of(real x, const gradient *k, const bool centred)
{
    return centred ? (x - k->mean) * k->rstd - k->hat_lo : x * k->rstd;
}

CN_INLINE real dx_of(real g, real hat, const gradient *k, const bool centred)
{
    return ((centred ? g - k->average : g) - hat * k->slope) * k->rstd;
}

/* The arrays of one call of apply, from the first column on. */
typedef struct {
    real *dx;
    const real *dy, *x, *weight;
    acc *weight_sums, *bias_sums, *weight_lost, *bias_lost;
    size_t dx_stride, stride, n;
    real offset;
} gradient_rows;

/* `weighted`, `parameters` and `centred` are constants. */
CN_INLINE void apply_one(gradient_rows a, gradient k, const bool weighted, const bool parameters, const bool centred)
{
#pragma omp simd
    for (size_t i = 0; i < a.n; i++) {
        real d = a.dy[i], hat = hat_of(a.x[i], &k, centred);
        real w = !weighted ? 1 : centred ? a.weight[i] : a.offset + a.weight[i];
        if (parameters) {
            add_to(&a.weight_sums[i], &a.weight_lost[i], (acc)(d * hat));
            add_to(&a.bias_sums[i], &a.bias_lost[i], (acc)d);
        }
        a.dx[i] = dx_of(weighted ? d * w : d, hat, &k, centred);
    }
}

CN_INLINE void apply_four(gradient_rows a, gradient k0, gradient k1, gradient k2, gradient k3, const bool weighted,
                          const bool parameters, const bool centred)
{
    const real *x1 = a.x + a.stride, *x2 = x1 + a.stride, *x3 = x2 + a.stride;
    const real *dy1 = a.dy + a.stride, *dy2 = dy1 + a.stride, *dy3 = dy2 + a.stride;
    real *dx1 = a.dx + a.dx_stride, *dx2 = dx1 + a.dx_stride, *dx3 = dx2 + a.dx_stride;
#pragma omp simd
    for (size_t i = 0; i < a.n; i++) {
        real d0 = a.dy[i], d1 = dy1[i], d2 = dy2[i], d3 = dy3[i];
        real h0 = hat_of(a.x[i], &k0, centred), h1 = hat_of(x1[i], &k1, centred);
        real h2 = hat_of(x2[i], &k2, centred), h3 = hat_of(x3[i], &k3, centred);
        real w = !weighted ? 1 : centred ? a.weight[i] : a.offset + a.weight[i];
        if (parameters) {
            add_lightly(&a.weight_sums[i], &a.weight_lost[i], (acc)((d0 * h0 + d1 * h1) + (d2 * h2 + d3 * h3)));
            add_lightly(&a.bias_sums[i], &a.bias_lost[i], (acc)((d0 + d1) + (d2 + d3)));
        }
        a.dx[i] = dx_of(weighted ? d0 * w : d0, h0, &k0, centred);
        dx1[i] = dx_of(weighted ? d1 * w : d1, h1, &k1, centred);
        dx2[i] = dx_of(weighted ? d2 * w : d2, h2, &k2, centred);
        dx3[i] = dx_of(weighted ? d3 * w : d3, h3, &k3, centred);
    }
}

/* The body of a kernel's `apply`; `centred` is constant. */
CN_INLINE void apply_gradients(const rows_gradient *g, real *dx, size_t stride, acc *sums, size_t row, size_t rows,
                               size_t first, size_t n, const gradient *k, const bool centred)
{
    size_t at = row * g->cols + first;
    acc *weight_sums = sums, *bias_sums = sums ? weight_sums + g->cols : NULL;
    acc *weight_lost = sums ? bias_sums + g->cols : NULL, *bias_lost = sums ? weight_lost + g->cols : NULL;
    gradient_rows a = {dx,          g->dy + at, g->x + at,   g->weight ? g->weight + first : NULL,
                       weight_sums, bias_sums,  weight_lost, bias_lost,
                       stride,      g->cols,    n,           g->offset};
    bool four = rows == ROWS_TOGETHER;
    if (g->weight && sums && four)
        apply_four(a, k[0], k[1], k[2], k[3], true, true, centred);
    else if (g->weight && four)
        apply_four(a, k[0], k[1], k[2], k[3], true, false, centred);
    else if (sums && four)
        apply_four(a, k[0], k[1], k[2], k[3], false, true, centred);
    else if (four)
        apply_four(a, k[0], k[1], k[2], k[3], false, false, centred);
    else if (g->weight && sums)
        apply_one(a, k[0], true, true, centred);
    else if (g->weight)
        apply_one(a, k[0], true, false, centred);
    else if (sums)
        apply_one(a, k[0], false, true, centred);
    else
        apply_one(a, k[0], false, false, centred);
}

#endif
