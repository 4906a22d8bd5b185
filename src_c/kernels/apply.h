/* The last pass over a contiguous run: y = ((x - hi) - lo) * scale * weight + bias, elementwise, in place or not.
 *
 * affine_vectors has a weight and a bias for each element (layer norm, RMS norm), affine_scalars one scale and one bias
 * for the run (a channel). Each element takes the same operations in the same order whatever the run or the store.
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

/* With `ahead`, the elements that far beyond x are fetched meanwhile: the next group's statistics find them near. */
static inline void affine_vectors(real *y, const real *x, size_t n, normaliser k, const real *weight, const real *bias,
                                  bool stream, size_t ahead)
{
    if (!stream && !ahead) {
        affine_vectors_run(y, x, n, k, weight, bias);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = 0, m; i < n; i += m) {
        m = stream_run(y + i, n - i);
        fetch_ahead(x + i, m, ahead);
        affine_vectors_run(stream ? buffer : y + i, x + i, m, k, weight ? weight + i : NULL, bias ? bias + i : NULL);
        if (stream)
            stream_out(y + i, buffer, m);
    }
}

static inline void affine_scalars_run(real *y, const real *x, size_t n, real hi, real lo, real scale, real bias)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = ((x[i] - hi) - lo) * scale + bias;
}

static inline void affine_scalars(real *y, const real *x, size_t n, real hi, real lo, real scale, real bias,
                                  bool stream, size_t ahead)
{
    if (!stream && !ahead) {
        affine_scalars_run(y, x, n, hi, lo, scale, bias);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = 0, m; i < n; i += m) {
        m = stream_run(y + i, n - i);
        fetch_ahead(x + i, m, ahead);
        affine_scalars_run(stream ? buffer : y + i, x + i, m, hi, lo, scale, bias);
        if (stream)
            stream_out(y + i, buffer, m);
    }
}

/* A run of one channel. */
static inline void affine_channel(real *y, const real *x, size_t n, const normaliser *k, real weight, real bias,
                                  bool stream, size_t ahead)
{
    real scale;
    if (scale_of(k->rstd_acc, k->rstd_lo, weight, &scale)) {
        affine_scalars(y, x, n, k->hi, k->lo, scale, bias, stream, ahead);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = ((x[i] - k->hi) - k->lo) * k->rstd * weight + bias;
}

#endif
