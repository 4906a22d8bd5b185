/* Instance norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(instance_norm_forward_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    return CN_KERNELS->instance_norm_workspace(batch, channels, spatial, layout == CNORM_CHANNELS_LAST);
}

cnorm_status CN_API(instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var,
                                           const real *x, const real *weight, const real *bias, size_t batch,
                                           size_t channels, size_t spatial, double eps, double momentum,
                                           cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    size_t needed = CN_KERNELS->instance_norm_workspace(batch, channels, spatial, layout == CNORM_CHANNELS_LAST);
    cnorm_status status = FIRST_ERROR(
        check_eps(eps), check_layout(layout),
        check_running(running_mean, running_var, momentum, weight, bias, channels),
        running_mean && spatial == 1 ? CNORM_ERROR_VALUE : CNORM_OK, check_arrays(y, x, n, weight, bias, channels),
        check_statistics(mean, batch * channels, y, x, n), check_statistics(rstd, batch * channels, y, x, n),
        check_statistics(running_mean, channels, y, x, n), check_statistics(running_var, channels, y, x, n),
        check_workspace(workspace, workspace_size, needed));
    if (status == CNORM_OK && n > 0)
        CN_KERNELS->instance_norm_forward(y, mean, rstd, running_mean, running_var, x, weight, bias, batch, channels,
                                          spatial, eps, momentum, layout == CNORM_CHANNELS_LAST, plan_forward(n),
                                          workspace);
    return status;
}
