/* Adaptive layer norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(ada_layer_norm_forward_workspace)(size_t batch, size_t rows, size_t cols)
{
    size_t n = element_count(batch, rows, cols);
    return n == SIZE_MAX || n == 0 ? 0 : CN_KERNELS->ada_layer_norm_workspace(batch, rows, cols);
}

cnorm_status CN_API(ada_layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *scale,
                                            const real *shift, size_t batch, size_t rows, size_t cols, double eps,
                                            void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, rows, cols), m = batch * rows;
    const region written[] = {{mean, m}, {rstd, m}}, read[] = {{scale, batch * cols}, {shift, batch * cols}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(n && (!scale || !shift) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 2, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(ada_layer_norm_forward_workspace)(batch, rows, cols)));
    if (n > 0)
        CN_KERNELS->ada_layer_norm_forward(y, mean, rstd, x, scale, shift, batch, rows, cols, eps, plan_forward(n),
                                           workspace);
    return CNORM_OK;
}
