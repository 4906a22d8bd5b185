/* Instance norm, small: the positions of a channel of a sample are a group. Running statistics take the averages over
 * the batch of the means and of the unbiased variances.
 */
#include "group.h"

size_t CN(instance_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    (void)batch, (void)channels, (void)spatial, (void)last;
    return 0;
}

void CN(instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                               const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                               double eps, double momentum, bool last, cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    const group_shape shape = {1, spatial, 0, last ? channels : 1, .centred = true, .eps = eps};
    for (size_t c = 0; c < (batch && spatial ? channels : 0); c++) {
        real mean_sum = 0, variance_sum = 0;
        for (size_t n = 0; n < batch; n++) {
            size_t g = n * channels + c, at = last ? n * channels * spatial + c : g * spatial;
            group_statistics s = normalise_group(y + at, statistic_at(mean, g), statistic_at(rstd, g), x + at,
                                                 parameter_at(weight, c), parameter_at(bias, c), &shape);
            mean_sum += mean_of(&s) / (real)batch;
            variance_sum += CN(group_scaled)(s.square, 2 * s.exponent) / (real)batch;
        }
        if (running_mean) {
            running_mean[c] = moved(running_mean[c], (real)momentum, mean_sum);
            real factor = (real)spatial / (real)(spatial - 1);
            running_var[c] = moved(running_var[c], (real)momentum, variance_sum * factor);
        }
    }
}
