/* Layer norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(layer_norm_backward_workspace)(size_t rows, size_t cols)
{
    return element_count(rows, cols, 1) == SIZE_MAX ? 0 : CN_KERNELS->layer_norm_backward_workspace(rows, cols);
}

cnorm_status CN_API(layer_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                         const real *mean, const real *rstd, const real *weight, size_t rows,
                                         size_t cols, void *workspace, size_t workspace_size)
{
    size_t n = element_count(rows, cols, 1);
    CN_CHECK(check_count(n));
    CN_CHECK(check_gradient((gradient_arrays){dx, dweight, dbias, dy, x, mean, rstd, weight, true, n, rows, cols}));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(layer_norm_backward_workspace)(rows, cols)));
    CN_KERNELS->layer_norm_backward(dx, dweight, dbias, dy, x, mean, rstd, weight, rows, cols, plan_backward(n, dx),
                                    workspace);
    return CNORM_OK;
}
