/* Instance norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(instance_norm_forward_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->instance_norm_workspace(batch, channels, spatial, layout == CNORM_CHANNELS_LAST);
}

cnorm_status CN_API(instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var,
                                           const real *x, const real *weight, const real *bias, size_t batch,
                                           size_t channels, size_t spatial, double eps, double momentum,
                                           cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = batch * channels;
    const region written[] = {{mean, m}, {rstd, m}, {running_mean, channels}, {running_var, channels}};
    const region read[] = {{weight, channels}, {bias, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_running(running_mean, running_var, momentum));
    CN_CHECK(running_mean && spatial == 1 ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 4, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(instance_norm_forward_workspace)(batch, channels, spatial, layout)));
    if (n > 0)
        CN_KERNELS->instance_norm_forward(y, mean, rstd, running_mean, running_var, x, weight, bias, batch, channels,
                                          spatial, eps, momentum, layout == CNORM_CHANNELS_LAST, plan_forward(n),
                                          workspace);
    return CNORM_OK;
}
