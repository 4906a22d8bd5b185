/* Adaptive layer norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(ada_layer_norm_backward_workspace)(size_t batch, size_t rows, size_t cols)
{
    return element_count(batch, rows, cols) == SIZE_MAX
               ? 0
               : CN_KERNELS->ada_layer_norm_backward_workspace(batch, rows, cols);
}

cnorm_status CN_API(ada_layer_norm_backward)(real *dx, real *dscale, real *dshift, const real *dy, const real *x,
                                             const real *mean, const real *rstd, const real *scale, size_t batch,
                                             size_t rows, size_t cols, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, rows, cols), m = batch * rows, p = batch * cols;
    CN_CHECK(check_count(n));
    CN_CHECK(n && !scale ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_gradient((gradient_arrays){dx, dscale, dshift, dy, x, mean, rstd, scale, true, n, m, p}));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(ada_layer_norm_backward_workspace)(batch, rows, cols)));
    if (p > 0)
        CN_KERNELS->ada_layer_norm_backward(dx, dscale, dshift, dy, x, mean, rstd, scale, batch, rows, cols,
                                            plan_backward(n, dx), workspace);
    return CNORM_OK;
}
