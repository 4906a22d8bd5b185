/* Spectral norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(spectral_norm_backward_workspace)(size_t outer, size_t rows, size_t inner)
{
    size_t n = element_count(outer, rows, inner);
    return n == SIZE_MAX ? 0 : CN_KERNELS->spectral_norm_backward_workspace(outer, rows, inner);
}

cnorm_status CN_API(spectral_norm_backward)(real *dweight, const real *dw, const real *weight, const real *u,
                                            const real *v, double sigma, size_t outer, size_t rows, size_t inner,
                                            void *workspace, size_t workspace_size)
{
    size_t n = element_count(outer, rows, inner);
    const region read[] = {{weight, n}, {u, rows}, {v, outer * inner}};
    CN_CHECK(check_count(n));
    CN_CHECK(n && (!dweight || !weight || !u || !v) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){dweight, n}, (region){dw, n}, NULL, 0, read, 3));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(spectral_norm_backward_workspace)(outer, rows, inner)));
    CN_KERNELS->spectral_norm_backward(dweight, dw, weight, u, v, sigma, outer, rows, inner,
                                       cn_plan_work(2 * n * sizeof(real), n * sizeof(real)), workspace);
    return CNORM_OK;
}
