/* Batch norm, backward, of training and with fixed statistics: checks, then the kernel of the level in use. One element a
 * channel in space is (batch, channels) in either layout: it goes to the channels-last kernels. */
#include "check.h"

size_t CN_API(batch_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->batch_norm_backward_workspace(batch, channels, spatial, as_last(spatial, layout));
}

cnorm_status CN_API(batch_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                         const real *mean, const real *rstd, const real *weight, size_t batch,
                                         size_t channels, size_t spatial, int training, cnorm_layout layout,
                                         void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = channels;
    CN_CHECK(check_count(n));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_gradient((gradient_arrays){dx, dweight, dbias, dy, x, mean, rstd, weight, true, n, m, channels}));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(batch_norm_backward_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->batch_norm_backward(dx, dweight, dbias, dy, x, mean, rstd, weight, batch, channels, spatial,
                                    training != 0, as_last(spatial, layout), plan_backward(n, dx), workspace);
    return CNORM_OK;
}
