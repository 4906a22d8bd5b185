/* Batch norm with fixed statistics, small: a channel is a group whose statistics are given. */
#include "group.h"

size_t CN(batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    (void)batch, (void)channels, (void)spatial, (void)last;
    return 0;
}

void CN(batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                              const real *bias, size_t batch, size_t channels, size_t spatial, double eps, bool last,
                              cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    const group_shape first_shape = {batch, spatial, channels * spatial, .step = 1};
    const group_shape last_shape = {1, batch * spatial, .step = channels};
    for (size_t c = 0; c < channels; c++) {
        size_t at = last ? c : c * spatial;
        group_statistics s = CN(group_given)(mean[c], var[c], eps);
        CN(group_write)(y + at, x + at, parameter_at(weight, c), parameter_at(bias, c),
                        last ? &last_shape : &first_shape, &s);
    }
}
