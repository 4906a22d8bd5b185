/* Batch norm, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean[c]) * rstd[c]
 *     training   dx = rstd * weight * (dy - average(dy) - hat * average(dy * hat)),   averages over n and s
 *     frozen     dx = rstd * weight * dy
 *     dweight[c] = sum_{n, s}(dy * hat),   dbias[c] = sum_{n, s}(dy)
 *
 * Passes, split and determinism: channels_first_gradient.h, channels_last_gradient.h. 3S of traffic where a channel's x and
 * dy (channels last: all of them) fit in the cache, else 5S; frozen 3S, or 2S without the parameters.
 */
#include "channels_first_gradient.h"
#include "channels_last_gradient.h"
#include "kernels.h"

static channels_first_gradient of_batch(size_t batch, size_t channels, size_t spatial)
{
    return (channels_first_gradient){
        .samples = 1,
        .groups = channels,
        .per_group = 1,
        .spatial = spatial,
        .shape = {.runs = batch, .length = spatial, .stride = channels * spatial, .centred = true}};
}

/* With constant statistics nothing is asked of a whole channel: images large enough to be blocks of their own are taken as
 * they lie in memory. */
static bool takes_images(size_t spatial, bool training) { return !training && spatial >= GATHER_BELOW; }

static channels_first_gradient of_images(size_t batch, size_t channels, size_t spatial)
{
    return (channels_first_gradient){.samples = batch,
                                     .groups = channels,
                                     .per_group = 1,
                                     .spatial = spatial,
                                     .shape = {.runs = 1, .length = spatial, .centred = true}};
}

/* Enough for either, since training is not known here: that of images is some percent of x at most. */
size_t CN(batch_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    if (last)
        return channels_last_gradient_workspace(1, batch * spatial, channels, channels);
    size_t whole = channels_first_gradient_workspace(of_batch(batch, channels, spatial));
    size_t images =
        takes_images(spatial, false) ? channels_first_gradient_workspace(of_images(batch, channels, spatial)) : 0;
    return whole > images ? whole : images;
}

void CN(batch_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                             bool training, bool last, cn_work work, void *workspace)
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
                                      .samples = 1,
                                      .rows = batch * spatial,
                                      .channels = channels,
                                      .groups = channels,
                                      .frozen = !training,
                                      .work = work};
        channels_last_backward(&job, workspace);
        return;
    }
    channels_first_gradient job =
        takes_images(spatial, training) ? of_images(batch, channels, spatial) : of_batch(batch, channels, spatial);
    job.dx = dx, job.parameters.dweight = dweight, job.parameters.dbias = dbias, job.frozen = !training;
    job.dy = dy, job.x = x, job.mean = mean, job.rstd = rstd, job.weight = weight, job.work = work;
    channels_first_backward(&job, workspace);
}
