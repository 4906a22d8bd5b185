/* Group norm (Wu, He 2018), forward.
 *
 *     y[n, c, s] = (x[n, c, s] - mean[n, g]) * rstd[n, g] * weight[c] + bias[c],   g = c / (channels / groups)
 *
 * Channels first: a group of a sample is one contiguous run (groups.h); 2S of traffic.
 * Channels last: columns of a sample, their moments merged over the channels of a group (channels_last.h); 2S where a
 * sample fits in the cache.
 * Determinism: pieces depend on the size of one sample alone, so a sample has the same bits in any batch.
 */
#include "channels_first.h"
#include "channels_last.h"
#include "kernels.h"

size_t CN(group_norm_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last)
{
    if (last)
        return channels_last_workspace(batch, spatial, channels);
    size_t n = channels / groups * spatial;
    return groups_workspace(batch * groups, (span){.runs = 1, .length = n, .stride = n, .centred = true});
}

void CN(group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t batch, size_t channels, size_t spatial, size_t groups, double eps, bool last,
                            cn_work work, void *workspace)
{
    if (last) {
        channels_last job = {.y = y,
                             .mean = mean,
                             .rstd = rstd,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .samples = batch,
                             .rows = spatial,
                             .channels = channels,
                             .groups = groups,
                             .eps = eps,
                             .work = work};
        normalise_channels_last(&job, workspace);
        return;
    }
    channels_first job = {
        .base = {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .eps = eps, .work = work}};
    per_sample_geometry(&job, batch, channels, spatial, groups);
    normalise_groups(&job.base, workspace);
}
