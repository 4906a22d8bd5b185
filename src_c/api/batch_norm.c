/* Batch norm, training and inference: checks, then the kernel of the level in use.
 * One element a channel in space is (batch, channels) in either layout: it goes to the channels-last kernels. */
#include "check.h"

size_t CN_API(batch_norm_forward_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->batch_norm_workspace(batch, channels, spatial, as_last(spatial, layout));
}

size_t CN_API(batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->batch_norm_inference_workspace(batch, channels, spatial, as_last(spatial, layout));
}

cnorm_status CN_API(batch_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var,
                                        const real *x, const real *weight, const real *bias, size_t batch,
                                        size_t channels, size_t spatial, double eps, double momentum, int unbiased,
                                        cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    const region written[] = {{mean, channels}, {rstd, channels}, {running_mean, channels}, {running_var, channels}};
    const region read[] = {{weight, channels}, {bias, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_running(running_mean, running_var, momentum));
    CN_CHECK(channels && n == channels ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 4, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(batch_norm_forward_workspace)(batch, channels, spatial, layout)));
    if (n > 0)
        CN_KERNELS->batch_norm_forward(y, mean, rstd, running_mean, running_var, x, weight, bias, batch, channels,
                                       spatial, eps, momentum, unbiased != 0, as_last(spatial, layout), plan_forward(n),
                                       workspace);
    return CNORM_OK;
}

cnorm_status CN_API(batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                                          const real *bias, size_t batch, size_t channels, size_t spatial, double eps,
                                          cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    const region read[] = {{mean, channels}, {var, channels}, {weight, channels}, {bias, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(n && (!mean || !var) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, NULL, 0, read, 4));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(batch_norm_inference_workspace)(batch, channels, spatial, layout)));
    if (n > 0)
        CN_KERNELS->batch_norm_inference(y, x, mean, var, weight, bias, batch, channels, spatial, eps,
                                         as_last(spatial, layout), plan_forward(n), workspace);
    return CNORM_OK;
}
