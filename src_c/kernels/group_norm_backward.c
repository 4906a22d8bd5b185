/* Group norm, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean[n, g]) * rstd[n, g],  dz = dy * weight[c]
 *     dx = rstd * (dz - average(dz) - hat * average(dz * hat)),   averages over the group g of sample n
 *     dweight[c] = sum_{n, s}(dy * hat),   dbias[c] = sum_{n, s}(dy)
 *
 * Passes, split and determinism: channels_first_gradient.h, channels_last_gradient.h. 3S of traffic where a group (channels
 * last: a sample) fits in the cache, else 5S.
 */
#include "channels_first_gradient.h"
#include "channels_last_gradient.h"
#include "kernels.h"

static channels_first_gradient of_samples(size_t batch, size_t channels, size_t spatial, size_t groups)
{
    return (channels_first_gradient){.samples = batch,
                                     .groups = groups,
                                     .per_group = channels / groups,
                                     .spatial = spatial,
                                     .shape = {.runs = 1, .length = spatial, .stride = spatial, .centred = true}};
}

size_t CN(group_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last)
{
    return last ? channels_last_gradient_workspace(batch, spatial, channels, groups)
                : channels_first_gradient_workspace(of_samples(batch, channels, spatial, groups));
}

void CN(group_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                             size_t groups, bool last, cn_work work, void *workspace)
{
    if (last) {
        channels_last_gradient job = {.dx = dx,
                                      .dweight = dweight,
                                      .dbias = dbias,
                                      .dy = dy,
                                      .x = x,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .weight = weight,
                                      .samples = batch,
                                      .rows = spatial,
                                      .channels = channels,
                                      .groups = groups,
                                      .work = work};
        channels_last_backward(&job, workspace);
        return;
    }
    channels_first_gradient job = of_samples(batch, channels, spatial, groups);
    job.dx = dx, job.parameters.dweight = dweight, job.parameters.dbias = dbias;
    job.dy = dy, job.x = x, job.mean = mean, job.rstd = rstd, job.weight = weight, job.work = work;
    channels_first_backward(&job, workspace);
}
