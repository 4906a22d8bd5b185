/* Channels first: x[batch, channels, spatial], spatial contiguous. One geometry serves three norms:
 *
 *     group norm     batch * groups groups, each one run of channels_per_group * spatial elements
 *     instance norm  the same with one channel a group
 *     batch norm     `channels` groups, each `batch` runs of spatial elements, channels * spatial apart
 */
#ifndef CN_CHANNELS_FIRST_H
#define CN_CHANNELS_FIRST_H

#include "groups.h"

typedef struct {
    groups base; /* first: the driver hands back a pointer to it */
    size_t groups, channels_per_group, spatial;
} channels_first;

static size_t first_channel(const groups *g, size_t group)
{
    const channels_first *job = (const channels_first *)g;
    return group % job->groups * job->channels_per_group;
}

static void apply_channels(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                           size_t ahead)
{
    const channels_first *job = (const channels_first *)g;
    size_t channel = parameter + start / job->spatial, skip = start % job->spatial;
    for (size_t done = 0, m; done < n; done += m, channel++, skip = 0) {
        m = job->spatial - skip < n - done ? job->spatial - skip : n - done;
        real weight = g->weight ? g->weight[channel] : 1, bias = g->bias ? g->bias[channel] : 0;
        affine_channel(g->y + at + done, g->x + at + done, m, k, weight, bias, g->work.stream, ahead);
    }
}

/* Groups of one channel. */
static void apply_channel(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                          size_t ahead)
{
    (void)start;
    affine_channel(g->y + at, g->x + at, n, k, g->weight ? g->weight[parameter] : 1, g->bias ? g->bias[parameter] : 0,
                   g->work.stream, ahead);
}

/* One element a channel: the parameters are vectors along the run. */
static void apply_features(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                           size_t ahead)
{
    size_t c = parameter + start;
    affine_vectors(g->y + at, g->x + at, n, *k, g->weight ? g->weight + c : NULL, g->bias ? g->bias + c : NULL,
                   g->work.stream, ahead);
}

static inline void per_sample_geometry(channels_first *job, size_t batch, size_t channels, size_t spatial,
                                       size_t groups)
{
    job->groups = groups;
    job->channels_per_group = channels / groups;
    job->spatial = spatial;
    size_t n = job->channels_per_group * spatial;
    job->base.count = batch * groups;
    job->base.stride = n;
    job->base.shape = (span){.runs = 1, .length = n, .stride = n, .centred = true};
    job->base.careful = (wide_group){n, n, 0, 1, spatial ? spatial : 1, job->channels_per_group};
    job->base.apply = groups == channels ? apply_channel : spatial == 1 ? apply_features : apply_channels;
    job->base.parameter = first_channel;
}

static inline void per_channel_geometry(channels_first *job, size_t batch, size_t channels, size_t spatial)
{
    job->groups = channels;
    job->channels_per_group = 1;
    job->spatial = spatial;
    job->base.count = channels;
    job->base.stride = spatial;
    job->base.shape = (span){.runs = batch, .length = spatial, .stride = channels * spatial, .centred = true};
    job->base.careful = (wide_group){batch * spatial, spatial, channels * spatial, 1, 1, 1};
    job->base.apply = apply_channel;
    job->base.parameter = first_channel;
}

#endif
