/* Instance norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(instance_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->instance_norm_backward_workspace(batch, channels, spatial, as_last(spatial, layout));
}

cnorm_status CN_API(instance_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                            const real *mean, const real *rstd, const real *weight, size_t batch,
                                            size_t channels, size_t spatial, cnorm_layout layout, void *workspace,
                                            size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = batch * channels;
    CN_CHECK(check_count(n));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_gradient((gradient_arrays){dx, dweight, dbias, dy, x, mean, rstd, weight, true, n, m, channels}));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(instance_norm_backward_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->instance_norm_backward(dx, dweight, dbias, dy, x, mean, rstd, weight, batch, channels, spatial,
                                       as_last(spatial, layout), plan_backward(n, dx), workspace);
    return CNORM_OK;
}
