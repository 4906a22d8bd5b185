/* Channels, channels first: their sums, block by block, and dx of them (see channels_first_gradient.h). What is written while
 * something else is summed keeps the memory busy with both: they take turns of whole runs, or of blocks of long ones. In short
 * turns, of half a page say, processors lose the order of what they fetch ahead, and a fifth of the speed past the caches.
 */
#ifndef CN_CHANNELS_FIRST_GROUPS_H
#define CN_CHANNELS_FIRST_GROUPS_H

#include "../parallel.h"
#include "channel_gradient.h"
#include "fold_together.h"
#include "parameter_sums.h"
#include "span.h"
#include "wide_gradient.h"

typedef struct channels_first_gradient channels_first_gradient;
struct channels_first_gradient {
    real *dx; /* or NULL */
    parameter_sums parameters;
    const real *dy, *x, *mean, *rstd,
        *weight; /* mean, rstd: of each group, or of each parameter where they are `frozen` */
    size_t samples, groups, per_group, spatial; /* groups of a sample, channels of a group */
    span shape;                                 /* one channel */
    bool frozen;                                /* mean and rstd are constants: dx = dy * weight * rstd */
    cn_work work;
    /* Instead of a weight for each channel, one for each element, or NULL: with the sums of a block of a channel, and how
     * `runs` runs of n elements are written, the first from element `at` on and the others `stride` apart. */
    const element_weights *elements;
    gradient_sums (*element_block)(const channels_first_gradient *g, size_t channel, size_t block);
    void (*element_runs)(const channels_first_gradient *g, const gradient *k, size_t at, size_t runs, size_t n,
                         size_t stride);
    span_plan plan;
    size_t block_samples, groups_per_task, tasks_per_block;
    acc *scratch;          /* (blocks, 4, channels): the sums of the sample in progress */
    gradient_sums *pieces; /* the second way: (samples * channels, pieces) */
    gradient *gradients;   /* (samples * groups,) */
};

static inline size_t elements_of_channel(const channels_first_gradient *g) { return g->shape.runs * g->shape.length; }

static inline void plan_channels_gradient(channels_first_gradient *g)
{
    g->plan = plan_span(g->shape);
    g->block_samples = divide_up(g->samples, PARAMETER_BLOCKS_MAX);
    g->parameters.count = g->groups * g->per_group;
    g->parameters.blocks = g->samples && elements_of_channel(g) ? divide_up(g->samples, g->block_samples) : 0;
}

static inline bool few_channel_groups(const channels_first_gradient *g)
{
    return cn_few_groups(g->samples * g->groups, g->per_group * g->plan.pieces);
}

static inline size_t channels_first_gradient_workspace(channels_first_gradient g)
{
    plan_channels_gradient(&g);
    size_t channels = g.parameters.count, blocks = g.parameters.blocks;
    size_t size = parameter_sums_size(blocks, channels) + blocks * channels * 4 * sizeof(acc);
    if (few_channel_groups(&g))
        size += g.samples * (channels * g.plan.pieces * sizeof(gradient_sums) + g.groups * sizeof(gradient));
    return size;
}

/* `parameter` is the channel's index within its sample. */
CN_INLINE void write_channel_runs(const channels_first_gradient *g, size_t parameter, const gradient *k, size_t at,
                                  size_t runs, size_t n, size_t stride)
{
    if (g->elements)
        g->element_runs(g, k, at, runs, n, stride);
    else
        apply_runs(g->dx, g->dy, g->x, at, runs, n, stride,
                   (channel_scale){k, g->weight ? g->weight[parameter] : 1, g->frozen, g->work.stream});
}

/* Whether there is anything to write for each element. */
static inline bool writes_elements(const channels_first_gradient *g) { return g->dx || wants_elements(g->elements); }

/* The blocks [first, last) of a channel, the last ones first: those a long channel still has in the nearest caches. */
static void apply_channel(const channels_first_gradient *g, size_t channel, size_t parameter, const gradient *k,
                          size_t first, size_t last)
{
    for (size_t block = last; block-- > first;) {
        span_block b = block_of_span(g->shape, &g->plan, block);
        write_channel_runs(g, parameter, k, channel * g->spatial + b.at, b.runs, b.n, g->shape.stride);
    }
}

CN_NOINLINE static void write_part(const channels_first_gradient *g, size_t parameter, const gradient *k, size_t at,
                                   size_t n)
{
    write_channel_runs(g, parameter, k, at, 1, n, 0);
}

/* A channel that is written while another one, `distance` elements further on, is summed. */
typedef struct {
    const gradient *k;
    size_t distance, parameter;
} written_channel;

/* The elements of a block, the first at `at`, join the lanes; `sums`: if anybody wants them. `other` is NULL, or what is
 * written meanwhile. */
CN_INLINE void add_block(const channels_first_gradient *g, gradient_lanes *lanes, size_t at, span_block b,
                         run_constants numbers, bool sums, const written_channel *other)
{
    if (!other) {
        if (sums)
            add_runs(lanes, g->dy + at, g->x + at, b.runs, b.n, g->shape.stride, numbers);
        return;
    }
    for (size_t run = 0; run < b.runs; run++, at += g->shape.stride) {
        if (sums)
            add_run(lanes, g->dy + at, g->x + at, NULL, b.n, numbers);
        write_part(g, other->parameter, other->k, at - other->distance, b.n);
    }
}

/* One block of a channel with fixed statistics: its sums, and dx meanwhile. Sums that left the range of `real` are taken
 * again, so where dx takes the place of dy it comes last. */
static gradient_sums frozen_block(const channels_first_gradient *g, size_t channel, size_t block)
{
    const span_block b = block_of_span(g->shape, &g->plan, block);
    const size_t at = channel * g->spatial + b.at, stride = g->shape.stride;
    const size_t parameter = channel % g->parameters.count;
    const gradient k = {.mean = g->mean[parameter], .rstd = g->rstd[parameter], .fast = true};
    const run_constants numbers = {.mean = k.mean, .rstd = k.rstd, .centred = true, .frozen = true};
    const written_channel self = {.k = &k, .parameter = parameter};
    const bool sums = wanted(&g->parameters), write = g->dx && (!sums || g->dx != g->dy);
    gradient_lanes lanes;
    clear_lanes(&lanes);
    add_block(g, &lanes, at, b, numbers, sums, write ? &self : NULL);
    gradient_sums s = fold_sums(&lanes);
    acc dy = fabs(s.g), dy_t = fabs(s.gt);
    if (sums && !(dy_t <= AVERAGE_MAX && dy <= AVERAGE_MAX && (dy_t >= AVERAGE_MIN || dy_t == 0)))
        s = (gradient_sums){.g = frozen_sum(g->dy + at, NULL, b.runs, b.n, stride, 0, 1),
                            .gt = frozen_sum(g->dy + at, g->x + at, b.runs, b.n, stride, k.mean, k.rstd)};
    if (g->dx && !write)
        write_channel_runs(g, parameter, &k, at, b.runs, b.n, stride);
    return s;
}

static gradient_sums moving_block(const channels_first_gradient *g, size_t channel, size_t block,
                                  const written_channel *other)
{
    span_block b = block_of_span(g->shape, &g->plan, block);
    size_t group = channel / g->per_group;
    gradient_lanes lanes;
    clear_lanes(&lanes);
    add_block(g, &lanes, channel * g->spatial + b.at, b,
              (run_constants){.mean = g->mean[group], .rstd = g->rstd[group], .centred = true}, true, other);
    return fold_sums(&lanes);
}

/* Sums of one piece of a channel; channels count over all samples. `other`, or NULL, is for statistics that are not fixed and
 * parameters that are not each element's; that there is none is said by a constant, and the sums stay in registers. */
static gradient_sums channel_piece(const channels_first_gradient *g, size_t channel, size_t piece,
                                   const written_channel *other)
{
    size_t block = piece * g->plan.blocks_per_piece, end = block + g->plan.blocks_per_piece;
    gradient_sums s = {0};
    for (; block < end && block < g->plan.blocks; block++) {
        gradient_sums b = g->elements ? g->element_block(g, channel, block)
                          : g->frozen ? frozen_block(g, channel, block)
                          : other     ? moving_block(g, channel, block, other)
                                      : moving_block(g, channel, block, NULL);
        add_sums(&s, &b);
    }
    return s;
}

/* A channel that is one block of one run: without the counting, which takes divisions. */
static inline bool one_block(const channels_first_gradient *g)
{
    return g->plan.blocks == 1 && !g->plan.runs_per_block;
}

/* Such a channel's lanes; `other` is NULL, or what is written meanwhile. */
CN_INLINE void sum_short_channel(const channels_first_gradient *g, gradient_lanes *lanes, size_t channel,
                                 run_constants numbers, const written_channel *other)
{
    const size_t at = channel * g->spatial, length = g->shape.length;
    if (!other && length <= SHORT_RUN) {
        set_short_run(lanes, g->dy + at, g->x + at, NULL, length, numbers);
        return;
    }
    clear_lanes(lanes);
    add_run(lanes, g->dy + at, g->x + at, NULL, length, numbers);
    if (other)
        write_part(g, other->parameter, other->k, at - other->distance, length);
}

static gradient_sums whole_channel(const channels_first_gradient *g, size_t channel, const written_channel *other)
{
    if (one_block(g) && !g->elements && !g->frozen) {
        size_t group = g->per_group > 1 ? channel / g->per_group : channel;
        gradient_lanes lanes;
        sum_short_channel(g, &lanes, channel,
                          (run_constants){.mean = g->mean[group], .rstd = g->rstd[group], .centred = true}, other);
        return fold_sums(&lanes);
    }
    gradient_sums s = channel_piece(g, channel, 0, other);
    for (size_t piece = 1; piece < g->plan.pieces; piece++) {
        gradient_sums p = channel_piece(g, channel, piece, other);
        add_sums(&s, &p);
    }
    return s;
}

/* All of a channel whose gradient is known. */
static inline void write_channel(const channels_first_gradient *g, size_t channel, size_t parameter, const gradient *k)
{
    if (one_block(g))
        write_channel_runs(g, parameter, k, channel * g->spatial, 1, g->shape.length, 0);
    else
        apply_channel(g, channel, parameter, k, 0, g->plan.blocks);
}

#endif
