/* From the sums of a group's channels to its gradient, channels first (see channels_first_gradient.h), and what the channels
 * add to the parameters' sums.
 */
#ifndef CN_CHANNELS_FIRST_FINISH_H
#define CN_CHANNELS_FIRST_FINISH_H

#include "channels_first_groups.h"

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
        dy_t[c] = with_lost(dy_t[c], w.weight_lost[c]), dy[c] = with_lost(dy[c], w.bias_lost[c]);
}

/* From the sums of a group's channels (already in dy_t and dy): its gradient, and its share of the parameters' sums. */
static gradient finish_channels(const channels_first_gradient *g, size_t group, const gradient_sums *s, acc *dy_t,
                                acc *dy)
{
    size_t count = elements_of_channel(g) * g->per_group, parameter = group % g->groups * g->per_group;
    gradient k = {.fast = true};
    if (!g->frozen)
        make_gradient(&k, s, (acc)count, g->mean[group], g->rstd[group], true);
    k.fast &= g->frozen || !k.no_sums || zero_group(g, group);
    k.fast &= !g->elements || hats_are_normal(s->g, s->gt); /* hat is a gradient of its own there */
    if (!k.fast) {
        careful_channels(g, group, dy_t, dy);
        k.hat_lo_acc = 0;
    }
    if (wanted(&g->parameters)) {
        acc *sums = block_sums(&g->parameters, group / g->groups / g->block_samples);
        for (size_t c = 0; c < g->per_group; c++)
            add_parameter(sums, g->parameters.count, parameter + c, weight_sum(dy_t[c], dy[c], k.hat_lo_acc), dy[c]);
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

#endif
