/* Batch norm (Ioffe, Szegedy 2015), training forward.
 *
 *     y[n, c, s] = (x[n, c, s] - mean[c]) * rstd[c] * weight[c] + bias[c],   mean, var over all n and s
 *     running_mean, running_var moved towards mean and var (times n/(n-1) when unbiased)
 *
 * Channels first: a channel is `batch` runs; a task takes a channel, reads it once from memory and again from the
 * cache: 2S, or 3S where a channel exceeds the cache. Few large channels: pieces (groups.h).
 * Channels last and (N, C): columns of one matrix (channels_last.h), 3S, or 2S where the matrix fits.
 * Determinism: pieces depend on batch, channels and spatial alone.
 */
#include "channels_first.h"
#include "channels_last.h"
#include "kernels.h"
#include "running.h"

static span channel_span(size_t batch, size_t channels, size_t spatial)
{
    return (span){.runs = batch, .length = spatial, .stride = channels * spatial, .centred = true};
}

size_t CN(batch_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return 2 * channels * sizeof(acc) + (last ? channels_last_workspace(1, batch * spatial, channels)
                                              : groups_workspace(channels, channel_span(batch, channels, spatial)));
}

void CN(batch_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                            const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                            double eps, double momentum, bool unbiased, bool last, cn_work work, void *workspace)
{
    acc *mean_acc = workspace, *variance = mean_acc + channels;
    if (last) {
        channels_last job = {.y = y,
                             .mean = mean,
                             .rstd = rstd,
                             .mean_acc = mean_acc,
                             .variance = variance,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .samples = 1,
                             .rows = batch * spatial,
                             .channels = channels,
                             .groups = channels,
                             .eps = eps,
                             .work = work};
        normalise_channels_last(&job, variance + channels);
    } else {
        channels_first job = {.base = {.y = y,
                                       .mean = mean,
                                       .rstd = rstd,
                                       .mean_acc = mean_acc,
                                       .variance = variance,
                                       .x = x,
                                       .weight = weight,
                                       .bias = bias,
                                       .eps = eps,
                                       .work = work}};
        per_channel_geometry(&job, batch, channels, spatial);
        normalise_groups(&job.base, variance + channels);
    }
    if (running_mean && batch * spatial > 0)
        move_running(running_mean, running_var, mean_acc, variance, channels, batch * spatial, momentum, unbiased);
}
