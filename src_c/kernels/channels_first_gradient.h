/* The backward pass of norms over channels, channels first: dy, x, dx [samples, channels, spatial]; a group is some
 * neighbouring channels of one sample. Batch norm is one sample, whose channels are `runs` runs of `spatial` elements; of large
 * images with constant statistics it is as many samples as there are.
 *
 * Each channel's sums of t, dy and dy * t (gradient.h) are taken once, its pieces in order. Weighted, they add up to those of
 * its group, which give dx; and as they are they join dweight and dbias, sample by sample (parameter_sums.h).
 * Traffic: 3S where a group's x and dy fit in the cache (each once from memory, dx once to it), else 5S. Past the
 * caches, a group that fits is written while the next one is summed. Channels of a batch are taken some at a time
 * (channels_first_neighbours.h). With constant statistics (frozen) a block is written as soon as it is summed: 3S.
 * Many groups: a task takes some groups of each sample of a block of samples. Few groups: tasks take pieces of channels,
 * first for the sums, then for dx. The same additions in the same order both ways.
 */
#ifndef CN_CHANNELS_FIRST_GRADIENT_H
#define CN_CHANNELS_FIRST_GRADIENT_H

#include "channels_first_neighbours.h"

/* Past the caches, groups of which x and dy have at most so many bytes are written while the next one is summed, for both stay
 * in the second cache; unless their runs are so short that taking turns costs more than it saves. Within the caches it always
 * does. */
#define PAIR_BYTES (512 * 1024)
#define PAIR_LENGTH 512

/* A group whose gradient is known. */
typedef struct {
    gradient k;
    size_t group;
    bool write;
} written_group;

/* Its channel c, for a channel of another group, so many elements further on. */
static inline written_channel channel_of(const channels_first_gradient *g, const written_group *w, size_t c,
                                         size_t distance)
{
    return (written_channel){&w->k, distance, w->group % g->groups * g->per_group + c};
}

/* The sums of t, dy and dy * t of n channels of one group, short runs one behind the other, folded halfway. */
static void fold_short_channels(const channels_first_gradient *g, folded_groups *folded, size_t channel, size_t n,
                                run_constants numbers)
{
    const size_t at = channel * g->spatial;
    const short_runs runs = {g->dy + at, g->x + at, NULL, n, g->spatial, g->shape.length, 0};
    run_terms terms[TOGETHER_MOST];
    centred_terms(terms, runs, numbers.mean, numbers.rstd);
    for (size_t i = 0; i < n; i++)
        fold_terms(folded, i, &terms[i]);
}

/* The sums of all channels of a group of several, each one block of one run. */
CN_INLINE gradient_sums short_channels(const channels_first_gradient *g, size_t group, acc *dy_t, acc *dy,
                                       const written_group *before)
{
    const size_t channel = group * g->per_group, parameter = group % g->groups * g->per_group;
    const size_t distance = before ? (group - before->group) * g->per_group * g->spatial : 0;
    const run_constants numbers = {.mean = g->mean[group], .rstd = g->rstd[group], .centred = true};
    folded_groups folded;
    if (g->per_group < TOGETHER_MOST) /* and else there is something in each place */
        memset(&folded, 0, sizeof folded);
    gradient_sums sums = {0};
    for (size_t c = 0, n; c < g->per_group; c += n) {
        n = g->per_group - c < TOGETHER_MOST ? g->per_group - c : TOGETHER_MOST;
        if (!before && g->shape.length <= SHORT_RUN) {
            fold_short_channels(g, &folded, channel + c, n, numbers);
        } else {
            for (size_t i = 0; i < n; i++) {
                written_channel other;
                if (before)
                    other = channel_of(g, before, c + i, distance);
                gradient_lanes lanes;
                sum_short_channel(g, &lanes, channel + c + i, numbers, before ? &other : NULL);
                fold_group(&folded, i, &lanes, true);
            }
        }
        sums_together all;
        fold_groups(&all, &folded, TOGETHER_MOST, true);
        for (size_t i = 0; i < n; i++) {
            gradient_sums s = {.t = all.t[i], .g = all.g[i], .gt = all.gt[i]};
            add_channel(g, &sums, &s, parameter + c + i, &dy_t[c + i], &dy[c + i]);
        }
    }
    return sums;
}

/* The sums of all channels of a group, and of each; `before`, or NULL, is written meanwhile. */
static gradient_sums sum_group(const channels_first_gradient *g, size_t group, acc *dy_t, acc *dy,
                               const written_group *before)
{
    gradient_sums sums = {0};
    const size_t channel = group * g->per_group, parameter = group % g->groups * g->per_group;
    const size_t distance = before ? (group - before->group) * g->per_group * g->spatial : 0;
    if (one_block(g) && !g->elements && !g->frozen && g->per_group > 1)
        return before ? short_channels(g, group, dy_t, dy, before) : short_channels(g, group, dy_t, dy, NULL);
    for (size_t c = 0; c < g->per_group; c++) {
        written_channel other = {0};
        if (before)
            other = channel_of(g, before, c, distance);
        gradient_sums s = whole_channel(g, channel + c, before ? &other : NULL);
        add_channel(g, &sums, &s, parameter + c, &dy_t[c], &dy[c]);
    }
    return sums;
}

static void write_group(const channels_first_gradient *g, const written_group *w)
{
    const size_t channel = w->group * g->per_group, parameter = w->group % g->groups * g->per_group;
    for (size_t c = 0; c < (w->write ? g->per_group : 0); c++)
        write_channel(g, channel + c, parameter + c, &w->k);
}

static inline bool pairs_groups(const channels_first_gradient *g)
{
    size_t bytes = g->per_group * elements_of_channel(g) * 2 * sizeof(real);
    return g->work.stream && g->dx && !g->elements && !g->frozen && g->shape.length >= PAIR_LENGTH &&
           bytes <= PAIR_BYTES;
}

/* Some groups of each sample of a block of samples. */
static void groups_of_block(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    size_t block = task / g->tasks_per_block, first = task % g->tasks_per_block * g->groups_per_task;
    size_t last = first + g->groups_per_task < g->groups ? first + g->groups_per_task : g->groups;
    size_t sample = block * g->block_samples, end = sample + g->block_samples;
    acc *dy_t = g->scratch + block * 4 * g->parameters.count, *dy = dy_t + g->parameters.count;
    const bool pairs = pairs_groups(g);
    written_group before = {0};
    if (wanted(&g->parameters))
        clear_sums(&g->parameters, block, first * g->per_group, last * g->per_group);
    const size_t together = neighbours_of(g);
    if (together > 1)
        neighbour_channels(g, first, last, together, dy_t, dy);
    for (; together == 1 && sample < end && sample < g->samples; sample++)
        for (size_t i = first; i < last; i++) {
            size_t group = sample * g->groups + i, at = i * g->per_group;
            gradient_sums sums = sum_group(g, group, dy_t + at, dy + at, before.write ? &before : NULL);
            gradient k = finish_channels(g, group, &sums, dy_t + at, dy + at);
            before = (written_group){k, group, writes_elements(g) && k.fast && !g->frozen};
            if (!pairs) {
                write_group(g, &before);
                before.write = false;
            }
        }
    write_group(g, &before);
    stream_fence();
}

static void channel_piece_sums(void *job, size_t task)
{
    const channels_first_gradient *g = job;
    g->pieces[task] = channel_piece(g, task / g->plan.pieces, task % g->plan.pieces, NULL);
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
            bool long_tasks = g->frozen || pairs_groups(g) || neighbours_of(g) > 1; /* cut by balance alone */
            g->groups_per_task = cn_groups_per_task(g->groups, long_tasks ? 0 : bytes, g->work.threads);
            g->tasks_per_block = divide_up(g->groups, g->groups_per_task);
            cn_parallel_for(blocks * g->tasks_per_block, g->work, groups_of_block, g);
        }
    }
    finish_parameters(&g->parameters, g->work);
}

#endif
