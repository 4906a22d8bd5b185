/* The last pass over a contiguous run, elementwise, in place or not.
 *
 *     affine_vectors    y = ((x - hi) - lo) * rstd * weight + bias, a weight and a bias for each element
 *     affine_scalars    y = (x - hi) * scale + shift, a channel: scale = rstd * weight, shift = bias - lo * scale
 *
 * Each element takes the same operations in the same order whatever the run or the store.
 */
#ifndef CN_APPLY_H
#define CN_APPLY_H

#include "normaliser.h"
#include "stream.h"

static inline void affine_vectors_run(real *y, const real *x, size_t n, normaliser k, const real *weight,
                                      const real *bias)
{
    if (weight && bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = ((x[i] - k.hi) - k.lo) * k.rstd * weight[i] + bias[i];
    } else if (weight) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = ((x[i] - k.hi) - k.lo) * k.rstd * weight[i];
    } else if (bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = ((x[i] - k.hi) - k.lo) * k.rstd + bias[i];
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = ((x[i] - k.hi) - k.lo) * k.rstd;
    }
}

CN_NOINLINE static void affine_vectors_past_caches(real *y, const real *x, size_t n, normaliser k, const real *weight,
                                                   const real *bias, size_t ahead)
{
    real buffer[STREAM_RUN];
    for (size_t i = 0, m; i < n; i += m) {
        m = stream_run(y + i, n - i);
        fetch_far(x + i, m, ahead);
        affine_vectors_run(buffer, x + i, m, k, weight ? weight + i : NULL, bias ? bias + i : NULL);
        stream_out(y + i, buffer, m);
    }
}

/* With `ahead`, the elements that far beyond x are fetched meanwhile: the next group's statistics find them near. */
static inline void affine_vectors(real *y, const real *x, size_t n, normaliser k, const real *weight, const real *bias,
                                  bool stream, size_t ahead)
{
    if (stream && n >= STREAM_RUN) {
        affine_vectors_past_caches(y, x, n, k, weight, bias, ahead);
        return;
    }
    for (size_t i = 0, m; i < n; i += m) {
        m = next_run(y + i, n - i, ahead);
        fetch_near(x + i, m, ahead);
        affine_vectors_run(y + i, x + i, m, k, weight ? weight + i : NULL, bias ? bias + i : NULL);
    }
}

static inline void affine_scalars_run(real *y, const real *x, size_t n, real hi, real scale, real shift)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - hi) * scale + shift;
}

CN_NOINLINE static void affine_scalars_past_caches(real *y, const real *x, size_t n, real hi, real scale, real shift,
                                                   size_t ahead)
{
    real buffer[STREAM_RUN];
    for (size_t i = 0, m; i < n; i += m) {
        m = stream_run(y + i, n - i);
        fetch_far(x + i, m, ahead);
        affine_scalars_run(buffer, x + i, m, hi, scale, shift);
        stream_out(y + i, buffer, m);
    }
}

static inline void affine_scalars(real *y, const real *x, size_t n, real hi, real scale, real shift, bool stream,
                                  size_t ahead)
{
    if (stream && n >= STREAM_RUN) {
        affine_scalars_past_caches(y, x, n, hi, scale, shift, ahead);
        return;
    }
    for (size_t i = 0, m; i < n; i += m) {
        m = next_run(y + i, n - i, ahead);
        fetch_near(x + i, m, ahead);
        affine_scalars_run(y + i, x + i, m, hi, scale, shift);
    }
}

/* A run of one channel. */
static inline void affine_channel(real *y, const real *x, size_t n, const normaliser *k, real weight, real bias,
                                  bool stream, size_t ahead)
{
    real scale;
    if (scale_of(k->rstd_acc, k->rstd_lo, weight, &scale)) {
        affine_scalars(y, x, n, k->hi, scale, shift_of(k->lo, scale, bias), stream, ahead);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = ((x[i] - k->hi) - k->lo) * k->rstd * weight + bias;
}

#endif
