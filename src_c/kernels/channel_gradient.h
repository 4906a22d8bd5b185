/* The two passes over one channel, channels first: its sums, block by block, and dx of a run of it.
 *
 *     dx = ((dy * weight - offset) - (x - mean) * x_slope) * rstd,   or with frozen statistics dy * (weight * rstd)
 */
#ifndef CN_CHANNEL_GRADIENT_H
#define CN_CHANNEL_GRADIENT_H

#include "frozen_gradient.h"
#include "gradient.h"
#include "normaliser.h"
#include "span.h"
#include "stream.h"

/* What dx of a channel is made with. */
typedef struct {
    const gradient *k;
    real weight;
    bool frozen, stream;
} channel_scale;

/* Runs of n elements, `stride` apart. */
CN_INLINE void gradient_runs(real *dx, const real *dy, const real *x, size_t runs, size_t n, size_t stride,
                             const gradient *k, real weight)
{
    const real mean = k->mean, rstd = k->rstd, x_slope = k->x_slope, offset = k->offset;
    for (size_t r = 0; r < runs; r++, dx += stride, dy += stride, x += stride) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = ((dy[i] * weight - offset) - (x[i] - mean) * x_slope) * rstd;
    }
}

CN_INLINE void frozen_runs(real *dx, const real *dy, size_t runs, size_t n, size_t stride, real rstd, real weight)
{
    real scale;
    bool in_range = scale_of(rstd, 0, weight, &scale); /* else the product of the two, but that with dy need not be */
    for (size_t r = 0; r < runs; r++, dx += stride, dy += stride) {
        if (!in_range) {
            frozen_apply(dx, dy, 1, n, weight, rstd);
            continue;
        }
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = dy[i] * scale;
    }
}

CN_INLINE void gradient_or_frozen(real *dx, const real *dy, const real *x, size_t runs, size_t n, size_t stride,
                                  channel_scale s)
{
    if (s.frozen)
        frozen_runs(dx, dy, runs, n, stride, s.k->rstd, s.weight);
    else
        gradient_runs(dx, dy, x, runs, n, stride, s.k, s.weight);
}

/* dx of runs of n elements from `at` on. */
CN_INLINE void apply_runs(real *dx, const real *dy, const real *x, size_t at, size_t runs, size_t n, size_t stride,
                          channel_scale s)
{
    if (!s.stream || n < STREAM_RUN) {
        gradient_or_frozen(dx + at, dy + at, x + at, runs, n, stride, s);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t r = 0; r < runs; r++, at += stride)
        for (size_t i = at, m; i < at + n; i += m) {
            m = stream_run(dx + i, at + n - i);
            gradient_or_frozen(buffer, dy + i, x + i, 1, m, 0, s);
            stream_out(dx + i, buffer, m);
        }
}

#endif
