/* Batch norm in training, small: a channel is a group. */
#include "group.h"

size_t CN(batch_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    (void)batch, (void)channels, (void)spatial, (void)last;
    return 0;
}

void CN(batch_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                            const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                            double eps, double momentum, bool unbiased, bool last, cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    const group_shape first_shape = {batch, spatial, channels * spatial, 1, .centred = true, .eps = eps};
    const group_shape last_shape = {1, batch * spatial, 0, channels, .centred = true, .eps = eps};
    real n = (real)(batch * spatial), factor = unbiased ? n / (n - 1) : 1;
    for (size_t c = 0; c < channels; c++) {
        size_t at = last ? c : c * spatial;
        group_statistics s =
            normalise_group(y + at, statistic_at(mean, c), statistic_at(rstd, c), x + at, parameter_at(weight, c),
                            parameter_at(bias, c), last ? &last_shape : &first_shape);
        if (running_mean) {
            running_mean[c] = moved(running_mean[c], (real)momentum, mean_of(&s));
            real variance = CN(group_scaled)(s.square * factor, 2 * s.exponent);
            running_var[c] = moved(running_var[c], (real)momentum, variance);
        }
    }
}
