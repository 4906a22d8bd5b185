/* Batch norm in training whose statistics go over several processes (ranks), forward, between whose passes they communicate.
 *
 *     moments   of each channel of this rank's x: mean and M2 = sum((x - mean)^2), two words each, of x / 2^exponent
 *     merge     those of all ranks by Chan's formula (1983), in rank order: mean, rstd, running statistics
 *     apply     y[n, c, s] = (x[n, c, s] - mean[c]) * rstd[c] * weight[c] + bias[c]
 *
 * Moments are (5, channels) numbers, see moments_row; the exponent is 0 but where squares of x could leave the range (wide.h).
 * Traffic: moments read x once; apply reads it again and writes y: 3S, or 2S where x fits in the cache.
 * Split: moments as batch norm (groups.h, channels_last.h) without its output, apply as inference (fixed_statistics.h).
 * Determinism: pieces depend on batch, channels and spatial alone and are merged in order, and so are the ranks. What all ranks
 * merge is the same, so the statistics are.
 */
#include "channels_last.h"
#include "fixed_statistics.h"
#include "kernels.h"
#include "running.h"

#include <limits.h>

/* Rows of the moments of one rank, and of what apply is given. */
enum moments_row { MEAN, MEAN_LO, M2, M2_LO, EXPONENT, MOMENTS_ROWS };
enum merged_row { RSTD = M2, RSTD_LO };

/* Sums of squares of numbers up to 2^SAFE_EXPONENT, and down to its inverse, keep to the range of acc with all digits. */
#define SAFE_EXPONENT 450

typedef struct {
    acc *out; /* (5, channels) */
    const real *x;
    size_t channels;
    wide_group careful; /* a channel */
    acc eps;
    span shape;
    span_plan plan;
    cn_work work;
    size_t per_task;
    moments *pieces; /* (channels, pieces) */
} first_moments;

typedef struct {
    channels_last base; /* first: its functions take a pointer to it */
    acc *out;
} last_moments;

/* Moments out; where squares may have left the range they are taken again, of data scaled to at most 1. */
static void store_moments(acc *out, size_t channels, size_t c, moments m, const real *x, const wide_group *careful,
                          acc eps)
{
    acc exponent = 0;
    if (!is_fast((m.m2 + m.m2_lo) / m.count + eps)) {
        wide_stats w = wide_statistics(x, careful, eps, true);
        m = (moments){m.count, w.mean, w.mean_lo, w.square * m.count, 0};
        exponent = -(acc)(ilogb(w.scale1) + ilogb(w.scale2));
    }
    out[MEAN * channels + c] = m.mean;
    out[MEAN_LO * channels + c] = m.mean_lo;
    out[M2 * channels + c] = m.m2;
    out[M2_LO * channels + c] = m.m2_lo;
    out[EXPONENT * channels + c] = exponent;
}

static inline const real *first_of_channel(const first_moments *g, size_t c) { return g->x + c * g->shape.length; }

static void moments_of_channels(void *job, size_t task)
{
    const first_moments *g = job;
    size_t c = task * g->per_task, end = c + g->per_task;
    for (; c < end && c < g->channels; c++) {
        const real *x = first_of_channel(g, c);
        bool one_block = g->plan.blocks == 1 && !g->plan.runs_per_block;
        moments m = one_block ? block_moments(x, g->shape.length) : span_moments(x, g->shape, &g->plan);
        store_moments(g->out, g->channels, c, m, x, &g->careful, g->eps);
    }
}

static void moments_of_piece(void *job, size_t task)
{
    const first_moments *g = job;
    size_t c = task / g->plan.pieces;
    g->pieces[task] = piece_moments(first_of_channel(g, c), g->shape, &g->plan, task % g->plan.pieces);
}

static void moments_first(first_moments *g, void *workspace)
{
    g->plan = plan_span(g->shape);
    if (g->work.threads > 1 && cn_few_groups(g->channels, g->plan.pieces)) {
        g->pieces = workspace;
        cn_parallel_for(g->channels * g->plan.pieces, g->work, moments_of_piece, g);
        for (size_t c = 0; c < g->channels; c++) {
            moments m = {0};
            for (size_t piece = 0; piece < g->plan.pieces; piece++)
                merge(&m, &g->pieces[c * g->plan.pieces + piece]);
            store_moments(g->out, g->channels, c, m, first_of_channel(g, c), &g->careful, g->eps);
        }
    } else {
        g->per_task = cn_groups_per_task(g->channels, g->careful.count * sizeof(real), g->work.threads);
        cn_parallel_for(divide_up(g->channels, g->per_task), g->work, moments_of_channels, g);
    }
}

/* The moments of the channels [first, first + n), which are there. */
static void store_columns(const last_moments *job, const slot *s, size_t first, size_t n)
{
    const channels_last *g = &job->base;
    wide_group careful = {g->rows, 1, g->channels, 1, 1, 1};
    for (size_t c = first; c < first + n; c++) {
        moments m = {s->total.count, s->total.mean[c], s->total.mean_lo[c], s->total.m2[c], s->total.m2_lo[c]};
        store_moments(job->out, g->channels, c, m, g->x + c, &careful, g->eps);
    }
}

static void moments_of_columns(void *job, size_t task)
{
    const channels_last *g = job;
    size_t first = task * CHUNK_COLUMNS;
    size_t cols = g->channels - first < CHUNK_COLUMNS ? g->channels - first : CHUNK_COLUMNS;
    slot s = place_slot(g, 0);
    s.total.count = sample_columns(g, g->x, &s, first, cols).count;
    store_columns(job, &s, first, cols);
}

static void moments_last(last_moments *job, void *workspace)
{
    channels_last *g = &job->base;
    plan_channels_last(g);
    g->memory = workspace;
    slot s = place_slot(g, 0);
    if (share_columns(&g->plan, sizeof(real))) {
        cn_parallel_for(divide_up(g->channels, CHUNK_COLUMNS), g->work, moments_of_columns, job);
        return;
    }
    if (few_samples(g) && g->work.threads > 1) {
        cn_parallel_for(g->plan.pieces, g->work, piece_statistics_last, job);
        for (size_t piece = 0; piece < g->plan.pieces; piece++) {
            column_moments m = place_piece(g, &s, piece);
            m.count = (acc)piece_height(&g->plan, piece);
            merge_columns(&s.total, &m, g->plan.width);
        }
    } else {
        s.total = sample_columns(g, g->x, &s, 0, g->plan.width);
    }
    fold_channels(g, g->x, &s);
    store_columns(job, &s, 0, g->channels);
}

static span channel_span(size_t batch, size_t channels, size_t spatial)
{
    return (span){.runs = batch, .length = spatial, .stride = channels * spatial, .centred = true};
}

size_t CN(sync_batch_norm_moments_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    if (last)
        return channels_last_workspace(1, batch * spatial, channels);
    span_plan plan = plan_span(channel_span(batch, channels, spatial));
    return cn_few_groups(channels, plan.pieces) ? channels * plan.pieces * sizeof(moments) : 0;
}

void CN(sync_batch_norm_moments)(acc *out, const real *x, size_t batch, size_t channels, size_t spatial, double eps,
                                 bool last, cn_work work, void *workspace)
{
    size_t rows = batch * spatial;
    if (rows == 0) {
        memset(out, 0, MOMENTS_ROWS * channels * sizeof(acc));
    } else if (last) {
        last_moments job = {.base = {.x = x,
                                     .samples = 1,
                                     .rows = rows,
                                     .channels = channels,
                                     .groups = channels,
                                     .eps = eps,
                                     .work = work},
                            .out = out};
        moments_last(&job, workspace);
    } else {
        first_moments job = {.out = out,
                             .x = x,
                             .channels = channels,
                             .careful = {rows, spatial, channels * spatial, 1, 1, 1},
                             .eps = eps,
                             .shape = channel_span(batch, channels, spatial),
                             .work = work};
        moments_first(&job, workspace);
    }
}

/* The moments that every rank has, the counts of whose values are `counts`. */
typedef struct {
    const acc *counts, *all; /* (ranks,), (ranks, 5, channels) */
    size_t ranks, channels;
    acc eps;
} rank_moments;

static inline acc of_rank(const rank_moments *g, size_t rank, enum moments_row row, size_t c)
{
    return g->all[(rank * MOMENTS_ROWS + row) * g->channels + c];
}

/* 0, or if the numbers of a channel are so large or small that their squares could leave the range, the exponent of the
 * largest. */
static int common_exponent(const rank_moments *g, size_t c)
{
    int most = INT_MIN, exponent;
    for (size_t rank = 0; rank < g->ranks; rank++) {
        acc size = fabs(of_rank(g, rank, MEAN, c)), spread = sqrt(of_rank(g, rank, M2, c) / g->counts[rank]);
        size = spread > size ? spread : size;
        if (!(g->counts[rank] > 0 && size > 0 && size <= DBL_MAX))
            continue;
        frexp(size, &exponent);
        exponent += (int)of_rank(g, rank, EXPONENT, c);
        most = exponent > most ? exponent : most;
    }
    if (g->eps > 0) {
        frexp(sqrt(g->eps), &exponent);
        most = exponent > most ? exponent : most;
    }
    return most == INT_MIN || (most >= -SAFE_EXPONENT && most <= SAFE_EXPONENT) ? 0 : most;
}

/* Of all values of a channel, divided by 2^exponent. */
static moments merge_ranks(const rank_moments *g, size_t c, int exponent)
{
    moments m = {0};
    for (size_t rank = 0; rank < g->ranks; rank++) {
        int shift = (int)of_rank(g, rank, EXPONENT, c) - exponent;
        moments b = {g->counts[rank], of_rank(g, rank, MEAN, c), of_rank(g, rank, MEAN_LO, c), of_rank(g, rank, M2, c),
                     of_rank(g, rank, M2_LO, c)};
        if (shift != 0) {
            b.mean = ldexp(b.mean, shift), b.mean_lo = ldexp(b.mean_lo, shift);
            b.m2 = ldexp(b.m2, 2 * shift), b.m2_lo = ldexp(b.m2_lo, 2 * shift);
        }
        merge(&m, &b);
    }
    return m;
}

void CN(sync_batch_norm_merge)(acc *merged, real *mean, real *rstd, real *running_mean, real *running_var,
                               const acc *counts, const acc *all, size_t ranks, size_t channels, double eps,
                               double momentum, bool unbiased)
{
    rank_moments g = {counts, all, ranks, channels, eps};
    for (size_t c = 0; c < channels; c++) {
        int exponent = common_exponent(&g, c);
        moments m = merge_ranks(&g, c, exponent);
        acc r = 0, r_lo = 0, m2 = m.m2 + m.m2_lo;
        acc variance =
            m.count > 0 ? variance_and_rstd(m.m2, m.m2_lo, m.count, ldexp(eps, -2 * exponent), &r, &r_lo) : 0;
        if (variance == 0)
            r = r_lo = 0;
        acc centre = ldexp(m.mean + m.mean_lo, exponent);
        merged[MEAN * channels + c] = m.mean;
        merged[MEAN_LO * channels + c] = m.mean_lo;
        merged[RSTD * channels + c] = r;
        merged[RSTD_LO * channels + c] = r_lo;
        merged[EXPONENT * channels + c] = exponent;
        if (mean)
            mean[c] = (real)centre;
        if (rstd) /* of a constant channel: eps alone, which may have vanished in the scaling */
            rstd[c] = (real)(m.count > 0 && m2 == 0 && eps > 0 ? 1 / sqrt(eps) : ldexp(r + r_lo, -exponent));
        if (running_mean && m.count > 0) {
            acc var = m2 / m.count * (unbiased ? m.count / (m.count - 1) : 1);
            running_mean[c] = moved(running_mean[c], momentum, centre);
            running_var[c] = moved(running_var[c], momentum, ldexp(var, 2 * exponent));
        }
    }
}

typedef struct {
    fixed_statistics base; /* first: the driver hands back a pointer to it */
    const acc *merged;
} merged_channels;

CN_NOINLINE static void careful_run(const fixed_statistics *g, size_t at, size_t n, size_t step, size_t c)
{
    const acc *merged = ((const merged_channels *)g)->merged;
    int k = (int)merged[EXPONENT * g->channels + c];
    wide_stats w = {.scale1 = ldexp(1, -(k / 2)),
                    .scale2 = ldexp(1, -(k - k / 2)),
                    .mean = merged[MEAN * g->channels + c],
                    .mean_lo = merged[MEAN_LO * g->channels + c],
                    .rstd = merged[RSTD * g->channels + c] + merged[RSTD_LO * g->channels + c]};
    wide_group run = {n, n, 0, step, 1, 1};
    wide_apply(g->y + at, g->x + at, &run, &w, 0, g->weight ? g->weight + c : NULL, g->bias ? g->bias + c : NULL);
}

static void prepare_merged(merged_channels *job)
{
    fixed_statistics *g = &job->base;
    row_parameters *p = &g->parameters;
    size_t channels = g->channels;
    const acc *mean = job->merged, *mean_lo = mean + channels, *rstd = mean_lo + channels, *rstd_lo = rstd + channels;
    const acc *exponent = rstd_lo + channels;
#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        p->hi[c] = (real)(mean[c] + mean_lo[c]);
        p->lo[c] = (real)((mean[c] - (acc)p->hi[c]) + mean_lo[c]);
        p->rstd[c] = rstd[c], p->rstd_lo[c] = rstd_lo[c];
        p->kept[c] = !(exponent[c] == 0 && is_fast(1 / (rstd[c] * rstd[c])));
    }
    set_affine(p, g->weight, g->bias, channels);
    g->kept = any_kept(p, channels);
}

size_t CN(sync_batch_norm_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return fixed_statistics_workspace(batch, channels, spatial, last);
}

void CN(sync_batch_norm_apply)(real *y, const real *x, const acc *merged, const real *weight, const real *bias,
                               size_t batch, size_t channels, size_t spatial, bool last, cn_work work, void *workspace)
{
    if (batch * channels * spatial == 0)
        return;
    merged_channels job = {.base = {.y = y,
                                    .x = x,
                                    .weight = weight,
                                    .bias = bias,
                                    .batch = batch,
                                    .channels = channels,
                                    .spatial = spatial,
                                    .work = work,
                                    .careful = careful_run},
                           .merged = merged};
    place_fixed(&job.base, last, workspace);
    prepare_merged(&job);
    write_fixed(&job.base, last);
}
