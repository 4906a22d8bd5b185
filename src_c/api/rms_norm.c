/* RMS norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(rms_norm_forward_workspace)(size_t rows, size_t cols)
{
    return element_count(rows, cols, 1) == SIZE_MAX ? 0 : CN_KERNELS->rms_norm_workspace(rows, cols);
}

cnorm_status CN_API(rms_norm_forward)(real *y, real *rstd, const real *x, const real *weight, const real *bias,
                                      size_t rows, size_t cols, double eps, double weight_offset, void *workspace,
                                      size_t workspace_size)
{
    size_t n = element_count(rows, cols, 1);
    const region written[] = {{rstd, rows}}, read[] = {{weight, cols}, {bias, cols}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(isfinite(weight_offset) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 1, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(rms_norm_forward_workspace)(rows, cols)));
    CN_KERNELS->rms_norm_forward(y, rstd, x, weight, bias, rows, cols, eps, weight_offset, plan_forward(n), workspace);
    return CNORM_OK;
}
