/* The backward pass of norms over channels, channels first: dy, x, dx [samples, channels, spatial]; a group is some
 * neighbouring channels of one sample. Batch norm is one sample, whose channels are `runs` runs of `spatial` elements.
 *
 * Each channel's sums of t, dy and dy * t (gradient.h) are taken once, its pieces in order. Weighted, they add up to those of
 * its group, which give dx; and as they are they join dweight and dbias, sample by sample (parameter_sums.h).
 * Traffic: 3S where a group's x and dy fit in the cache (each once from memory, dx once to it), else 5S. With constant
 * statistics (frozen) a block is written as soon as it is summed: 3S.
 * Many groups: a task takes some groups of each sample of a block of samples. Few groups: tasks take pieces of channels,
 * first for the sums, then for dx. The same additions in the same order both ways.
 */
#ifndef CN_CHANNELS_FIRST_GRADIENT_H
#define CN_CHANNELS_FIRST_GRADIENT_H

#include "../parallel.h"
#include "channel_gradient.h"
#include "parameter_sums.h"
#include "span.h"
#include "wide_gradient.h"

typedef struct channels_first_gradient channels_first_gradient;
struct channels_first_gradient {
    real *dx; /* or NULL */
    parameter_sums parameters;
    const real *dy, *x, *mean, *rstd, *weight;
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
static inline void write_channel_runs(const channels_first_gradient *g, size_t parameter, const gradient *k, size_t at,
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

/* One block of a channel with fixed statistics: its sums, taken again where they left the range of `real`, and then dx, which
 * may be dy: it needs no sums. */
static gradient_sums frozen_block(const channels_first_gradient *g, size_t channel, size_t block)
{
    span_block b = block_of_span(g->shape, &g->plan, block);
    size_t at = channel * g->spatial + b.at;
    const gradient k = {.mean = g->mean[channel], .rstd = g->rstd[channel], .fast = true};
    gradient_sums s = {0};
    if (wanted(&g->parameters)) {
        s = sum_of_runs(g->dy + at, g->x + at, b.runs, b.n, g->shape.stride,
                        (run_constants){.mean = k.mean, .rstd = k.rstd, .centred = true, .frozen = true});
        acc dy = fabs(s.g), dy_t = fabs(s.gt);
        if (!(dy_t <= AVERAGE_MAX && dy <= AVERAGE_MAX && (dy_t >= AVERAGE_MIN || dy_t == 0)))
            s = (gradient_sums){.g = frozen_sum(g->dy + at, NULL, b.runs, b.n, g->shape.stride, 0, 1),
                                .gt = frozen_sum(g->dy + at, g->x + at, b.runs, b.n, g->shape.stride, k.mean, k.rstd)};
    }
    if (g->dx)
        write_channel_runs(g, channel, &k, at, b.runs, b.n, g->shape.stride);
    return s;
}

static gradient_sums moving_block(const channels_first_gradient *g, size_t channel, size_t block)
{
    span_block b = block_of_span(g->shape, &g->plan, block);
    size_t at = channel * g->spatial + b.at, group = channel / g->per_group;
    return sum_of_runs(g->dy + at, g->x + at, b.runs, b.n, g->shape.stride,
                       (run_constants){.mean = g->mean[group], .rstd = g->rstd[group], .centred = true});
}

/* Sums of one piece of a channel; channels count over all samples. */
static gradient_sums channel_piece(const channels_first_gradient *g, size_t channel, size_t piece)
{
    size_t block = piece * g->plan.blocks_per_piece, end = block + g->plan.blocks_per_piece;
    gradient_sums s = {0};
    for (; block < end && block < g->plan.blocks; block++) {
        gradient_sums b = g->elements ? g->element_block(g, channel, block)
                          : g->frozen ? frozen_block(g, channel, block)
                                      : moving_block(g, channel, block);
        add_sums(&s, &b);
    }
    return s;
}

static inline gradient_sums whole_channel(const channels_first_gradient *g, size_t channel)
{
    gradient_sums s = channel_piece(g, channel, 0);
    for (size_t piece = 1; piece < g->plan.pieces; piece++) {
        gradient_sums p = channel_piece(g, channel, piece);
        add_sums(&s, &p);
    }
    return s;
}

/* A channel that is one block of one run: the same, without the counting. */
static inline bool one_block(const channels_first_gradient *g)
{
    return g->plan.blocks == 1 && !g->plan.runs_per_block;
}

static inline gradient_sums short_channel(const channels_first_gradient *g, size_t channel, size_t group)
{
    size_t at = channel * g->spatial;
    if (g->elements)
        return g->element_block(g, channel, 0);
    if (g->frozen)
        return frozen_block(g, channel, 0);
    gradient_lanes lanes;
    clear_lanes(&lanes);
    add_run(&lanes, g->dy + at, g->x + at, NULL, g->shape.length,
            (run_constants){.mean = g->mean[group], .rstd = g->rstd[group], .centred = true});
    return fold_sums(&lanes);
}

/* Whether dy * weight is zero all over a group. */
static bool zero_elements(const channels_first_gradient *g, size_t group)
{
    size_t first = group * g->per_group * g->spatial,
           n = g->shape.runs > 1 ? g->shape.length : g->per_group * g->spatial;
    for (size_t run = 0; run < g->shape.runs; run++)
        for (size_t at = first + run * g->shape.stride, end = at + n; at < end; at++)
            if (g->dy[at] != 0 && element_weight(g->elements, at) != 0)
                return false;
    return true;
}

static bool zero_group(const channels_first_gradient *g, size_t group)
{
    if (g->elements)
        return zero_elements(g, group);
    const real *dy = g->dy + group * g->per_group * g->spatial;
    if (g->weight && all_zero(g->weight + group % g->groups * g->per_group, g->per_group))
        return true;
    if (g->shape.runs == 1)
        return all_zero(dy, g->per_group * g->spatial);
    for (size_t run = 0; run < g->shape.runs; run++)
        if (!all_zero(dy + run * g->shape.stride, g->shape.length))
            return false;
    return true;
}

/* The careful way for one group; dy_t and dy take its channels' sums. */
static void careful_channels(const channels_first_gradient *g, size_t group, acc *dy_t, acc *dy)
{
    size_t at = group * g->per_group * g->spatial, n = elements_of_channel(g),
           parameter = group % g->groups * g->per_group;
    size_t length = g->shape.runs > 1 ? g->shape.length : n * g->per_group;
    wide_gradient w = {.shape = {n * g->per_group, length, g->shape.stride, 1, n, g->per_group},
                       .dy = g->dy + at,
                       .x = g->x + at,
                       .weight = g->weight ? g->weight + parameter : NULL,
                       .mean = g->mean[group],
                       .rstd = g->rstd[group],
                       .centred = true,
                       .dx = g->dx ? g->dx + at : NULL,
                       .elements = g->elements,
                       .at = at,
                       .weight_sums = dy_t,
                       .bias_sums = dy,
                       .weight_lost = dy_t + 2 * g->parameters.count,
                       .bias_lost = dy + 2 * g->parameters.count};
    for (size_t c = 0; c < g->per_group; c++)
        dy_t[c] = dy[c] = w.weight_lost[c] = w.bias_lost[c] = 0;
    wide_backward(&w);
    for (size_t c = 0; c < g->per_group; c++)
        dy_t[c] += w.weight_lost[c], dy[c] += w.bias_lost[c];
}

/* From the sums of a group's channels (already in dy_t and dy): its gradient, and its share of the parameters' sums. */
static gradient finish_channels(const channels_first_gradient *g, size_t group, const gradient_sums *s, acc *dy_t,
                                acc *dy)
{
    size_t count = elements_of_channel(g) * g->per_group, parameter = group % g->groups * g->per_group;
    real mean = g->mean[group], rstd = g->rstd[group];
    gradient k = g->frozen ? (gradient){.fast = true} : make_gradient(s, (acc)count, mean, rstd, true);
    k.fast &= g->frozen || !k.no_sums || zero_group(g, group);
    k.fast &= !g->elements || hats_are_normal(s->g, s->gt); /* hat is a gradient of its own there */
    if (!k.fast) {
        careful_channels(g, group, dy_t, dy);
        k.hat_lo_acc = 0;
    }
    if (wanted(&g->parameters)) {
        acc *sums = block_sums(&g->parameters, group / g->groups / g->block_samples);
        for (size_t c = 0; c < g->per_group; c++)
            add_parameter(sums, g->parameters.count, parameter + c, dy_t[c] - k.hat_lo_acc * dy[c], dy[c]);
    }
    return k;
}

/* One channel's sums join those of its group, weighted. */
static inline void add_channel(const channels_first_gradient *g, gradient_sums *group, const gradient_sums *channel,
                               size_t parameter, acc *dy_t, acc *dy)
{
    acc weight = g->weight ? (acc)g->weight[parameter] : 1;
    *dy = settled(channel->g, channel->g_lo);
    *dy_t = settled(channel->gt, channel->gt_lo);
    gradient_sums weighted = {.t = channel->t, .t_lo = channel->t_lo, .g = *dy * weight, .gt = *dy_t * weight};
    add_sums(group, &weighted);
}

static inline void apply_short_channel(const channels_first_gradient *g, size_t channel, size_t parameter,
                                       const gradient *k)
{
    write_channel_runs(g, parameter, k, channel * g->spatial, 1, g->shape.length, 0);
}

static void whole_group(const channels_first_gradient *g, size_t group, acc *dy_t, acc *dy)
{
    gradient_sums sums = {0};
    size_t channel = group * g->per_group, parameter = group % g->groups * g->per_group;
    for (size_t c = 0; c < g->per_group; c++) {
        gradient_sums s = one_block(g) ? short_channel(g, channel + c, group) : whole_channel(g, channel + c);
        add_channel(g, &sums, &s, parameter + c, &dy_t[c], &dy[c]);
    }
    gradient k = finish_channels(g, group, &sums, dy_t, dy);
    for (size_t c = 0; c < (writes_elements(g) && k.fast && !g->frozen ? g->per_group : 0); c++)
        if (one_block(g))
            apply_short_channel(g, channel + c, parameter + c, &k);
        else
            apply_channel(g, channel + c, parameter + c, &k, 0, g->plan.blocks);
}

static void groups_of_block(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    size_t block = task / g->tasks_per_block, first = task % g->tasks_per_block * g->groups_per_task;
    size_t last = first + g->groups_per_task < g->groups ? first + g->groups_per_task : g->groups;
    size_t sample = block * g->block_samples, end = sample + g->block_samples;
    acc *dy_t = g->scratch + block * 4 * g->parameters.count, *dy = dy_t + g->parameters.count;
    if (wanted(&g->parameters))
        clear_sums(&g->parameters, block, first * g->per_group, last * g->per_group);
    for (; sample < end && sample < g->samples; sample++)
        for (size_t group = first; group < last; group++)
            whole_group(g, sample * g->groups + group, dy_t + group * g->per_group, dy + group * g->per_group);
    stream_fence();
}

static void channel_piece_sums(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    g->pieces[task] = channel_piece(g, task / g->plan.pieces, task % g->plan.pieces);
    stream_fence();
}

static void merge_channel_pieces(channels_first_gradient *g)
{
    acc *dy_t = g->scratch, *dy = dy_t + g->parameters.count;
    for (size_t block = 0; block < g->parameters.blocks && wanted(&g->parameters); block++)
        clear_sums(&g->parameters, block, 0, g->parameters.count);
    for (size_t group = 0; group < g->samples * g->groups; group++) {
        gradient_sums sums = {0};
        for (size_t c = 0; c < g->per_group; c++) {
            size_t channel = group * g->per_group + c;
            gradient_sums s = {0};
            for (size_t piece = 0; piece < g->plan.pieces; piece++)
                add_sums(&s, &g->pieces[channel * g->plan.pieces + piece]);
            add_channel(g, &sums, &s, channel % g->parameters.count, &dy_t[c], &dy[c]);
        }
        g->gradients[group] = finish_channels(g, group, &sums, dy_t, dy);
    }
}

static void channel_piece_output(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    size_t channel = task / g->plan.pieces, first = task % g->plan.pieces * g->plan.blocks_per_piece;
    size_t last = first + g->plan.blocks_per_piece;
    const gradient *k = &g->gradients[channel / g->per_group];
    if (k->fast)
        apply_channel(g, channel, channel % g->parameters.count, k, first,
                      last < g->plan.blocks ? last : g->plan.blocks);
    stream_fence();
}

static inline void channels_first_backward(channels_first_gradient *g, void *workspace)
{
    plan_channels_gradient(g);
    size_t channels = g->parameters.count, blocks = g->parameters.blocks,
           tasks = g->samples * channels * g->plan.pieces;
    if (blocks && channels) {
        g->parameters.memory = workspace;
        g->scratch = g->parameters.memory + parameter_sums_size(blocks, channels) / sizeof(acc);
        g->pieces = (gradient_sums *)(g->scratch + blocks * channels * 4);
        g->gradients = (gradient *)(g->pieces + tasks);
        if (g->work.threads > 1 && few_channel_groups(g)) {
            cn_parallel_for(tasks, g->work, channel_piece_sums, g);
            merge_channel_pieces(g);
            if (writes_elements(g) && !g->frozen)
                cn_parallel_for(tasks, g->work, channel_piece_output, g);
        } else {
            size_t bytes = g->per_group * elements_of_channel(g) * g->block_samples * 2 * sizeof(real);
            g->groups_per_task = cn_groups_per_task(g->groups, bytes, g->work.threads);
            g->tasks_per_block = divide_up(g->groups, g->groups_per_task);
            cn_parallel_for(blocks * g->tasks_per_block, g->work, groups_of_block, g);
        }
    }
    finish_parameters(&g->parameters, g->work);
}

#endif
