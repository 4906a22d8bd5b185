/* The two passes over one channel, channels first: its sums, block by block, and dx of a run of it.
 *
 *     dx = ((dy * weight - offset) - (x - mean) * rstd * slope) * rstd,   or with frozen statistics dy * (weight * rstd)
 */
#ifndef CN_CHANNEL_GRADIENT_H
#define CN_CHANNEL_GRADIENT_H

#include "frozen_gradient.h"
#include "gradient.h"
#include "normaliser.h"
#include "span.h"
#include "stream.h"

/* One block of a channel: a part of a long run, or some short ones (span.h). */
static inline gradient_sums channel_block(const real *dy, const real *x, span s, const span_plan *p, size_t block,
                                          real mean, real rstd)
{
    gradient_lanes lanes = {0};
    if (p->runs_per_block) {
        size_t run = block * p->runs_per_block, last = run + p->runs_per_block;
        for (; run < last && run < s.runs; run++)
            add_run(&lanes, dy + run * s.stride, x + run * s.stride, NULL, s.length, mean, rstd, 0, false, true);
    } else {
        size_t run = block / p->blocks_per_run, start = block % p->blocks_per_run * BLOCK, at = run * s.stride + start;
        size_t n = s.length - start < BLOCK ? s.length - start : BLOCK;
        add_run(&lanes, dy + at, x + at, NULL, n, mean, rstd, 0, false, true);
    }
    return fold_sums(&lanes);
}

typedef struct {
    const gradient *k;
    real weight;
    bool frozen, stream;
} channel_run;

static inline void gradient_run(real *dx, const real *dy, const real *x, size_t n, gradient k, real weight)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dx[i] = ((dy[i] * weight - k.offset) - (x[i] - k.mean) * k.rstd * k.slope) * k.rstd;
}

static inline void frozen_run(real *dx, const real *dy, size_t n, real rstd, real weight)
{
    real scale;
    if (scale_of(rstd, 0, weight, &scale)) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = dy[i] * scale;
    } else { /* the product of the two is out of range, that with dy need not be */
        frozen_apply(dx, dy, 1, n, weight, rstd);
    }
}

static inline void gradient_or_frozen_run(real *dx, const real *dy, const real *x, size_t n, channel_run run)
{
    if (run.frozen)
        frozen_run(dx, dy, n, run.k->rstd, run.weight);
    else
        gradient_run(dx, dy, x, n, *run.k, run.weight);
}

/* dx of n elements from `at` on. */
static inline void apply_channel_run(real *dx, const real *dy, const real *x, size_t at, size_t n, channel_run run)
{
    if (!run.stream || n < STREAM_RUN) {
        gradient_or_frozen_run(dx + at, dy + at, x + at, n, run);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = at, m; i < at + n; i += m) {
        m = stream_run(dx + i, at + n - i);
        gradient_or_frozen_run(buffer, dy + i, x + i, m, run);
        stream_out(dx + i, buffer, m);
    }
}

#endif
