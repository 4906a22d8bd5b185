/* Normalization of independent groups that are spans: the two ways of sharing the work, the same for each kernel.
 *
 * Many groups: a task takes a few whole groups; the statistics of a group are followed at once by its output, while it
 * is still in the cache. Traffic 2S (x once from memory, y once to it).
 * Few long groups: a first round of tasks computes the moments of pieces, one thread merges them, a second round writes
 * the pieces. Traffic 3S when a group exceeds the caches. Pieces are fixed by the group's size and merged in order, so
 * both ways, and any number of threads, give the same bits.
 *
 * A kernel supplies its geometry and how a run of elements is written.
 */
#ifndef CN_GROUPS_H
#define CN_GROUPS_H

#include "../parallel.h"
#include "apply.h"
#include "span.h"
#include "wide.h"

typedef struct groups groups;
struct groups {
    real *y, *mean, *rstd; /* statistics may be NULL */
    const real *x, *weight, *bias;
    acc *mean_acc, *variance; /* (count,) unrounded statistics, or NULL */
    size_t count, stride;     /* number of groups, elements from one to the next */
    span shape;
    wide_group careful; /* the same geometry, and the index of its parameters */
    acc eps, weight_offset;
    cn_work work;
    /* y = normalised x for n elements from `at` on, element `start` of a run of a group whose first weight and bias
     * have the index `parameter` */
    void (*apply)(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                  size_t ahead);
    size_t (*parameter)(const groups *g, size_t group);
    /* The careful way to write a group, or NULL: its weights and biases are vectors */
    void (*careful_apply)(const groups *g, size_t group, const wide_stats *w);
    size_t per_task;
    span_plan plan;
    moments *partial;        /* workspace of the second way: (count * pieces,) */
    normaliser *normalisers; /* (count,) */
};

static inline size_t groups_workspace(size_t count, span shape)
{
    span_plan plan = plan_span(shape);
    return cn_few_groups(count, plan.pieces) ? count * (plan.pieces * sizeof(moments) + sizeof(normaliser)) : 0;
}

/* The careful way for one group, with its statistics. */
CN_NOINLINE static void careful_group(const groups *g, size_t group, size_t p)
{
    const real *x = g->x + group * g->stride;
    wide_stats w = wide_statistics(x, &g->careful, g->eps, g->shape.centred);
    if (g->careful_apply)
        g->careful_apply(g, group, &w);
    else
        wide_apply(g->y + group * g->stride, x, &g->careful, &w, g->weight_offset, g->weight ? g->weight + p : NULL,
                   g->bias ? g->bias + p : NULL);
    if (g->mean)
        g->mean[group] = (real)wide_mean(&w);
    if (g->rstd)
        g->rstd[group] = (real)wide_rstd(&w, g->eps);
    if (g->variance)
        g->mean_acc[group] = wide_mean(&w), g->variance[group] = wide_variance(&w);
}

/* Statistics out; a group that is not fast is written here and now. */
static inline normaliser finish_statistics(const groups *g, size_t group, size_t p, const moments *m)
{
    normaliser k = make_normaliser(m, g->eps);
    if (k.fast) {
        if (g->mean)
            g->mean[group] = (real)(m->mean + m->mean_lo);
        if (g->rstd)
            g->rstd[group] = k.rstd;
        if (g->variance)
            g->mean_acc[group] = m->mean + m->mean_lo, g->variance[group] = (m->m2 + m->m2_lo) / m->count;
    } else {
        careful_group(g, group, p);
    }
    return k;
}
static inline void apply_blocks(const groups *g, size_t group, size_t p, const normaliser *k, size_t first, size_t last,
                                size_t ahead)
{
    size_t base = group * g->stride;
    for (size_t block = first; block < last; block++) {
        if (g->plan.runs_per_block) {
            size_t run = block * g->plan.runs_per_block, end = run + g->plan.runs_per_block;
            for (; run < end && run < g->shape.runs; run++)
                g->apply(g, p, k, base + run * g->shape.stride, 0, g->shape.length, ahead);
        } else {
            size_t run = block / g->plan.blocks_per_run, start = block % g->plan.blocks_per_run * BLOCK;
            size_t n = g->shape.length - start < BLOCK ? g->shape.length - start : BLOCK;
            g->apply(g, p, k, base + run * g->shape.stride + start, start, n, ahead);
        }
    }
}

/* Small groups go in batches, first all their statistics and then all their outputs: a group is one long chain of
 * dependent operations (sums, division, root, division), and the chains of a batch overlap. */
#define BATCH_MOST 4
#define BATCH_BYTES (16 * 1024)

static void whole_groups(void *job, size_t task)
{
    const groups *g = job;
    size_t group = task * g->per_task, end = group + g->per_task, length = g->shape.length;
    size_t bytes = g->shape.runs * length * sizeof(real);
    size_t batch = (g->work.far ? BATCH_BYTES / 4 : BATCH_BYTES) / bytes; /* what is fetched ahead needs room as well */
    batch = batch < 1 ? 1 : batch > BATCH_MOST ? BATCH_MOST : batch;
    if (end > g->count)
        end = g->count;
    bool one_block = g->plan.blocks == 1 && !g->plan.runs_per_block;
    bool fetch = worth_fetching(g->work, bytes);
    moments m[BATCH_MOST];
    normaliser k[BATCH_MOST];
    size_t p[BATCH_MOST];
    for (size_t n; group < end; group += n) {
        n = end - group < batch ? end - group : batch;
        for (size_t i = 0; i < n; i++) {
            const real *x = g->x + (group + i) * g->stride;
            m[i] = one_block ? run_moments(x, length, g->shape.centred) : span_moments(x, g->shape, &g->plan);
        }
        for (size_t i = 0; i < n; i++) {
            p[i] = g->parameter(g, group + i);
            k[i] = finish_statistics(g, group + i, p[i], &m[i]);
        }
        for (size_t i = 0; i < n; i++) {
            size_t ahead = fetch && group + i + n < g->count ? n * g->stride : 0;
            if (k[i].fast && one_block)
                g->apply(g, p[i], &k[i], (group + i) * g->stride, 0, length, ahead);
            else if (k[i].fast)
                apply_blocks(g, group + i, p[i], &k[i], 0, g->plan.blocks, ahead);
        }
    }
    stream_fence();
}

static void piece_statistics(void *job, size_t task)
{
    const groups *g = job;
    size_t group = task / g->plan.pieces;
    g->partial[task] = piece_moments(g->x + group * g->stride, g->shape, &g->plan, task % g->plan.pieces);
}

static void piece_output(void *job, size_t task)
{
    const groups *g = job;
    size_t group = task / g->plan.pieces, first = task % g->plan.pieces * g->plan.blocks_per_piece;
    size_t last = first + g->plan.blocks_per_piece;
    if (g->normalisers[group].fast)
        apply_blocks(g, group, g->parameter(g, group), &g->normalisers[group], first,
                     last < g->plan.blocks ? last : g->plan.blocks, 0);
    stream_fence();
}

static void merge_pieces(groups *g)
{
    for (size_t group = 0; group < g->count; group++) {
        moments m = {0};
        for (size_t piece = 0; piece < g->plan.pieces; piece++)
            merge(&m, &g->partial[group * g->plan.pieces + piece]);
        g->normalisers[group] = finish_statistics(g, group, g->parameter(g, group), &m);
    }
}

static inline void normalise_groups(groups *g, void *workspace)
{
    size_t elements = g->shape.runs * g->shape.length;
    g->plan = plan_span(g->shape);
    if (g->count == 0 || elements == 0)
        return;
    if (g->work.threads > 1 && cn_few_groups(g->count, g->plan.pieces)) {
        g->partial = workspace;
        g->normalisers = (normaliser *)(g->partial + g->count * g->plan.pieces);
        cn_parallel_for(g->count * g->plan.pieces, g->work, piece_statistics, g);
        merge_pieces(g);
        cn_parallel_for(g->count * g->plan.pieces, g->work, piece_output, g);
    } else {
        g->per_task = cn_groups_per_task(g->count, elements * sizeof(real), g->work.threads);
        cn_parallel_for(divide_up(g->count, g->per_task), g->work, whole_groups, g);
    }
}

#endif
