/* Layer norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(layer_norm_forward_workspace)(size_t rows, size_t cols)
{
    return CN_KERNELS->layer_norm_workspace(rows, cols);
}

cnorm_status CN_API(layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight,
                                        const real *bias, size_t rows, size_t cols, double eps, void *workspace,
                                        size_t workspace_size)
{
    size_t n = element_count(rows, cols, 1);
    cnorm_status status =
        FIRST_ERROR(check_eps(eps), check_arrays(y, x, n, weight, bias, cols), check_statistics(mean, rows, y, x, n),
                    check_statistics(rstd, rows, y, x, n),
                    check_workspace(workspace, workspace_size, CN_KERNELS->layer_norm_workspace(rows, cols)));
    if (status == CNORM_OK)
        CN_KERNELS->layer_norm_forward(y, mean, rstd, x, weight, bias, rows, cols, eps, plan_forward(n), workspace);
    return status;
}
