/* RMS norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(rms_norm_backward_workspace)(size_t rows, size_t cols)
{
    return element_count(rows, cols, 1) == SIZE_MAX ? 0 : CN_KERNELS->rms_norm_backward_workspace(rows, cols);
}

cnorm_status CN_API(rms_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                       const real *rstd, const real *weight, size_t rows, size_t cols,
                                       double weight_offset, void *workspace, size_t workspace_size)
{
    size_t n = element_count(rows, cols, 1);
    CN_CHECK(check_count(n));
    CN_CHECK(isfinite(weight_offset) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_gradient((gradient_arrays){dx, dweight, dbias, dy, x, NULL, rstd, weight, false, n, rows, cols}));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(rms_norm_backward_workspace)(rows, cols)));
    CN_KERNELS->rms_norm_backward(dx, dweight, dbias, dy, x, rstd, weight, rows, cols, weight_offset,
                                  plan_backward(n, dx), workspace);
    return CNORM_OK;
}
