/* Group norm, small. Channels first, a group's runs are channels; channels last, they are positions. */
#include "group.h"

size_t CN(group_norm_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last)
{
    (void)batch, (void)channels, (void)spatial, (void)groups, (void)last;
    return 0;
}

void CN(group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t batch, size_t channels, size_t spatial, size_t groups, double eps, bool last,
                            cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    size_t size = channels / groups;
    const group_shape first_shape = {size, spatial, spatial, 1, .each_run = 1, .centred = true, .eps = eps};
    const group_shape last_shape = {spatial, size, channels, 1, .each_element = 1, .centred = true, .eps = eps};
    if (channels * spatial == 0)
        return;
    for (size_t g = 0; g < batch * groups; g++) {
        size_t sample = g / groups, channel = g % groups * size;
        size_t at = sample * channels * spatial + channel * (last ? 1 : spatial);
        normalise_group(y + at, statistic_at(mean, g), statistic_at(rstd, g), x + at, parameter_at(weight, channel),
                        parameter_at(bias, channel), last ? &last_shape : &first_shape);
    }
}
