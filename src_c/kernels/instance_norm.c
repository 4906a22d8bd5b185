/* Instance norm (Ulyanov, Vedaldi, Lempitsky 2016), forward: group norm with a channel a group, and running statistics.
 *
 *     y[n, c, s] = (x[n, c, s] - mean[n, c]) * rstd[n, c] * weight[c] + bias[c]
 *
 * Passes, split and determinism as in group norm. Running statistics take the average over the batch of the means and
 * of the unbiased variances, samples in order.
 */
#include "channels_first.h"
#include "channels_last.h"
#include "kernels.h"
#include "running.h"

static span channel_span(size_t spatial)
{
    return (span){.runs = 1, .length = spatial, .stride = spatial, .centred = true};
}

size_t CN(instance_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    size_t own = 2 * batch * channels * sizeof(acc);
    return own + (last ? channels_last_workspace(batch, spatial, channels)
                       : groups_workspace(batch * channels, channel_span(spatial)));
}

static void update_running(real *running_mean, real *running_var, const acc *mean, const acc *variance, size_t batch,
                           size_t channels, size_t spatial, acc momentum)
{
    acc unbiased = (acc)spatial / (acc)(spatial - 1);
    for (size_t c = 0; c < channels; c++) {
        acc mean_sum = 0, variance_sum = 0;
        for (size_t n = 0; n < batch; n++)
            mean_sum += mean[n * channels + c] / (acc)batch, variance_sum += variance[n * channels + c] / (acc)batch;
        running_mean[c] = moved(running_mean[c], momentum, mean_sum);
        running_var[c] = moved(running_var[c], momentum, variance_sum * unbiased);
    }
}

void CN(instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                               const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                               double eps, double momentum, bool last, cn_work work, void *workspace)
{
    acc *mean_acc = NULL, *variance = NULL;
    if (running_mean) {
        mean_acc = workspace;
        variance = mean_acc + batch * channels;
    }
    void *rest = (acc *)workspace + 2 * batch * channels;
    if (last) {
        channels_last job = {.y = y,
                             .mean = mean,
                             .rstd = rstd,
                             .mean_acc = mean_acc,
                             .variance = variance,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .samples = batch,
                             .rows = spatial,
                             .channels = channels,
                             .groups = channels,
                             .eps = eps,
                             .work = work};
        normalise_channels_last(&job, rest);
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
        per_sample_geometry(&job, batch, channels, spatial, channels);
        normalise_groups(&job.base, rest);
    }
    if (running_mean && batch * channels * spatial > 0)
        update_running(running_mean, running_var, mean_acc, variance, batch, channels, spatial, momentum);
}
