/* Batch norm in training whose statistics went over several processes (ranks), backward, between whose passes they
 * communicate; derived in docs/backward.md.
 *
 *     t = (x - mean[c]) * rstd[c],   hat = t - average(t),   averages over the values of all ranks
 *     sums      of each channel of this rank sum(t), sum(dy), sum(dy * t)
 *     apply     dx = rstd * weight * (dy - average(dy) - hat * average(dy * hat)),
 *               dweight[c] = sum(dy * hat),   dbias[c] = sum(dy) over this rank's values
 *
 * Sums are (8, channels) numbers, see rank_sums.h.
 * Traffic: both passes read x and dy, apply writes dx: 5S, or 3S where they fit in the cache.
 * Split: as batch norm's (channels_first_gradient.h, channels_last_gradient.h), a pass at a time.
 * Determinism: as there; what the ranks summed is added in rank order by each.
 */
#include "channels_first_gradient.h"
#include "channels_last_gradient.h"
#include "kernels.h"
#include "rank_sums.h"

typedef struct {
    channels_first_gradient base; /* first: its functions take a pointer to it */
    acc *sums;
} first_sums;

static inline wide_group channel_first(const channels_first_gradient *g)
{
    return (wide_group){elements_of_channel(g), g->shape.length, g->shape.stride, 1, 1, 1};
}

static void store_first(const first_sums *job, size_t c, const gradient_sums *s)
{
    const channels_first_gradient *g = &job->base;
    wide_group shape = channel_first(g);
    bool silent = s->g != 0 || s->gt != 0 || zero_group(g, c);
    store_sums(job->sums, g->groups, c, s, silent, g->dy + c * g->spatial, g->x + c * g->spatial, &shape, g->mean[c],
               g->rstd[c]);
}

static void sums_of_channels(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    size_t c = task * g->groups_per_task, end = c + g->groups_per_task;
    for (; c < end && c < g->groups; c++) {
        gradient_sums s = whole_channel(g, c, NULL);
        store_first(job, c, &s);
    }
}

static void sums_first(first_sums *job, void *workspace)
{
    channels_first_gradient *g = &job->base;
    plan_channels_gradient(g);
    if (g->work.threads > 1 && few_channel_groups(g)) {
        g->pieces = workspace;
        cn_parallel_for(g->groups * g->plan.pieces, g->work, channel_piece_sums, g);
        for (size_t c = 0; c < g->groups; c++) {
            gradient_sums s = {0};
            for (size_t piece = 0; piece < g->plan.pieces; piece++)
                add_sums(&s, &g->pieces[c * g->plan.pieces + piece]);
            store_first(job, c, &s);
        }
    } else {
        g->groups_per_task = cn_groups_per_task(g->groups, elements_of_channel(g) * 2 * sizeof(real), g->work.threads);
        cn_parallel_for(divide_up(g->groups, g->groups_per_task), g->work, sums_of_channels, job);
    }
}

typedef struct {
    channels_last_gradient base; /* first: its functions take a pointer to it */
    acc *sums;
} last_sums;

static inline wide_group channel_last(const channels_last_gradient *g)
{
    return (wide_group){g->rows, 1, g->channels, 1, 1, 1};
}

/* sum_columns has looked for a dy that is too small. */
static void store_last(const last_sums *job, gradient_slot s, size_t first, size_t n)
{
    const channels_last_gradient *g = &job->base;
    wide_group shape = channel_last(g);
    for (size_t c = first; c < first + n; c++) {
        gradient_sums sums = {.t = s.total.t[c], .g = s.total.g[c], .gt = s.total.gt[c]};
        store_sums(job->sums, g->channels, c, &sums, true, g->dy + c, g->x + c, &shape, g->mean[c], g->rstd[c]);
    }
}

/* The sums of the columns [first, first + cols), the pieces in order. */
static void sums_of_columns(const channels_last_gradient *g, gradient_slot s, size_t first, size_t cols)
{
    gradient_slot mine = slot_from(s, first);
    if (sizeof(real) == sizeof(acc))
        clear_columns(mine.lost, cols);
    for (size_t piece = 0; piece < g->plan.pieces; piece++) {
        take_piece(g, 0, piece, piece ? mine.pieces : mine.total, &mine.columns, first, cols);
        if (piece)
            join_sums(mine.total, mine.lost, mine.pieces, cols);
    }
}

static void sums_of_chunk(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    size_t first = task * g->chunk, cols = g->channels - first < g->chunk ? g->channels - first : g->chunk;
    gradient_slot s = place_gradient_slot(g, 0);
    sums_of_columns(g, s, first, cols);
    settle_sums(slot_from(s, first), cols);
    store_last(job, s, first, cols);
}

static void sums_last(last_sums *job, void *workspace)
{
    channels_last_gradient *g = &job->base;
    plan_last_gradient(g);
    g->memory = workspace;
    gradient_slot s = place_gradient_slot(g, 0);
    begin_columns(g, s.columns, 0, g->channels);
    begin_sample(g, 0, s.columns, 0, g->channels);
    if (share_columns(&g->plan, 2 * sizeof(real))) {
        cn_parallel_for(g->chunks, g->work, sums_of_chunk, job);
        return;
    }
    if (few_gradient_samples(g) && g->work.threads > 1) {
        cn_parallel_for(g->plan.pieces * g->chunks, g->work, piece_of_sample, job);
        clear_columns(s.total, g->plan.width);
        if (sizeof(real) == sizeof(acc))
            clear_columns(s.lost, g->plan.width);
        for (size_t piece = 0; piece < g->plan.pieces; piece++)
            join_sums(s.total, s.lost, piece_sums(g, s, piece), g->plan.width);
    } else {
        sums_of_columns(g, s, 0, g->plan.width);
    }
    if (g->plan.fold > 1)
        fold_gradients(g, 0, s);
    else
        settle_sums(s, g->plan.width);
    store_last(job, s, 0, g->channels);
}

static channels_first_gradient job_first(size_t batch, size_t channels, size_t spatial)
{
    return (channels_first_gradient){
        .samples = 1,
        .groups = channels,
        .per_group = 1,
        .spatial = spatial,
        .shape = {.runs = batch, .length = spatial, .stride = channels * spatial, .centred = true}};
}

static channels_last_gradient job_last(size_t rows, size_t channels)
{
    return (channels_last_gradient){.samples = 1, .rows = rows, .channels = channels, .groups = channels};
}

size_t CN(sync_batch_norm_backward_sums_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return last ? channels_last_gradient_workspace(1, batch * spatial, channels, channels)
                : channels_first_gradient_workspace(job_first(batch, channels, spatial));
}

void CN(sync_batch_norm_backward_sums)(acc *sums, const real *dy, const real *x, const real *mean, const real *rstd,
                                       size_t batch, size_t channels, size_t spatial, bool last, cn_work work,
                                       void *workspace)
{
    if (batch * spatial == 0) {
        memset(sums, 0, SUMS_ROWS * channels * sizeof(acc));
    } else if (last) {
        last_sums job = {job_last(batch * spatial, channels), sums};
        job.base.dy = dy, job.base.x = x, job.base.mean = mean, job.base.rstd = rstd, job.base.work = work;
        sums_last(&job, workspace);
    } else {
        first_sums job = {job_first(batch, channels, spatial), sums};
        job.base.dy = dy, job.base.x = x, job.base.mean = mean, job.base.rstd = rstd, job.base.work = work;
        sums_first(&job, workspace);
    }
}

/* dweight and dbias of this rank. */
static void store_parameters(real *dweight, real *dbias, const rank_sums *g, size_t c, const merged_gradient *k)
{
    const acc *own = g->own + c;
    size_t n = g->channels;
    int exponent = (int)own[EXPONENT * n];
    acc dy = own[G * n] + own[G_LO * n], dy_t = own[GT * n] + own[GT_LO * n];
    if (dweight)
        dweight[c] = (real)ldexp((dy_t - k->hat_lo * dy) * k->factor, exponent);
    if (dbias)
        dbias[c] = (real)ldexp(dy, exponent);
}

/* The numbers of the output in `real`; not fast where they or their products could leave its range. */
static gradient fast_gradient(const rank_sums *g, size_t c, const merged_gradient *k, real mean, real rstd, real weight)
{
    acc average = k->average * weight, slope = k->slope * weight;
    gradient f = {.mean = mean, .rstd = rstd, .hat_lo_acc = k->hat_lo, .x_slope = (real)(slope * rstd)};
    f.no_sums = average == 0 && slope == 0;
    bool silent = weight == 0 || (k->average == 0 && k->slope == 0 && g->own[EXPONENT * g->channels + c] == 0);
    f.fast = k->exponent == 0 && k->factor == 1 && gradient_is_fast(rstd, k->hat_lo, average, slope) &&
             (!f.no_sums || silent);
    f.offset = (real)(average - k->hat_lo * slope);
    return f;
}

typedef struct {
    channels_first_gradient base; /* first: its functions take a pointer to it */
    const rank_sums *sums;
} first_output;

static void output_of_channels(void *job, size_t task)
{
    const first_output *o = job;
    const channels_first_gradient *g = &o->base;
    size_t c = task * g->groups_per_task, end = c + g->groups_per_task;
    wide_group shape = channel_first(g);
    for (; c < end && c < g->groups; c++) {
        const gradient *k = &g->gradients[c];
        size_t at = c * g->spatial;
        real weight = g->weight ? g->weight[c] : 1;
        if (!k->fast) {
            merged_gradient m = merge_gradient(o->sums, c, k->mean, k->rstd);
            careful_gradient(g->dx + at, g->dy + at, g->x + at, &shape, &m, k->mean, k->rstd, weight);
        } else {
            write_channel(g, c, c, k);
        }
    }
    stream_fence();
}

static void output_first(first_output *o)
{
    channels_first_gradient *g = &o->base;
    wide_group shape = channel_first(g);
    if (g->work.threads > 1 && few_channel_groups(g)) {
        cn_parallel_for(g->groups * g->plan.pieces, g->work, channel_piece_output, g);
        for (size_t c = 0; c < g->groups; c++)
            if (!g->gradients[c].fast) {
                merged_gradient m = merge_gradient(o->sums, c, g->mean[c], g->rstd[c]);
                size_t at = c * g->spatial;
                careful_gradient(g->dx + at, g->dy + at, g->x + at, &shape, &m, g->mean[c], g->rstd[c],
                                 g->weight ? g->weight[c] : 1);
            }
    } else {
        size_t bytes = elements_of_channel(g) * 2 * sizeof(real);
        g->groups_per_task = cn_groups_per_task(g->groups, bytes, g->work.threads);
        cn_parallel_for(divide_up(g->groups, g->groups_per_task), g->work, output_of_channels, o);
    }
}

static void output_last(channels_last_gradient *g, const rank_sums *sums, const gradient *gradients, void *workspace)
{
    plan_last_gradient(g);
    g->memory = workspace;
    gradient_columns p = place_gradient_slot(g, 0).columns;
    begin_columns(g, p, 0, g->channels);
    wide_group shape = channel_last(g);
    for (size_t c = 0; c < g->channels; c++) {
        p.x_slope[c] = gradients[c].x_slope, p.offset[c] = gradients[c].offset, p.kept[c] = !gradients[c].fast;
        if (p.kept[c]) {
            merged_gradient m = merge_gradient(sums, c, g->mean[c], g->rstd[c]);
            careful_gradient(g->dx + c, g->dy + c, g->x + c, &shape, &m, g->mean[c], g->rstd[c], p.weight[c]);
        }
    }
    begin_sample(g, 0, p, 0, g->channels);
    cn_parallel_for(divide_up(g->plan.wide_rows, output_rows(g)), g->work, rows_of_output, g);
    write_left(g, 0, p);
    stream_fence();
}

size_t CN(sync_batch_norm_backward_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return channels * sizeof(gradient) +
           (last ? channels_last_gradient_workspace(1, batch * spatial, channels, channels) : 0);
}

void CN(sync_batch_norm_backward_apply)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                        const real *mean, const real *rstd, const real *weight, const acc *own,
                                        const acc *counts, const acc *all, size_t ranks, size_t batch, size_t channels,
                                        size_t spatial, bool last, cn_work work, void *workspace)
{
    rank_sums sums = {own, counts, all, ranks, channels};
    gradient *gradients = workspace;
    if (batch * channels * spatial == 0) {
        finish_parameters(&(parameter_sums){dweight, dbias, 0, channels, NULL}, work);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        merged_gradient k = merge_gradient(&sums, c, mean[c], rstd[c]);
        store_parameters(dweight, dbias, &sums, c, &k);
        gradients[c] = fast_gradient(&sums, c, &k, mean[c], rstd[c], weight ? weight[c] : 1);
    }
    if (dx && last) {
        channels_last_gradient job = job_last(batch * spatial, channels);
        job.dx = dx, job.dy = dy, job.x = x, job.mean = mean, job.rstd = rstd, job.weight = weight, job.work = work;
        output_last(&job, &sums, gradients, gradients + channels);
    } else if (dx) {
        first_output job = {job_first(batch, channels, spatial), &sums};
        channels_first_gradient *g = &job.base;
        g->dx = dx, g->dy = dy, g->x = x, g->mean = mean, g->rstd = rstd, g->weight = weight, g->work = work;
        g->gradients = gradients;
        plan_channels_gradient(g);
        output_first(&job);
    }
}
