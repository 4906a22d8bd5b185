/* Vectors divided by their norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

cnorm_status CN_API(normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length,
                                        size_t inner, double p, double eps, void *workspace, size_t workspace_size)
{
    size_t n = element_count(outer, length, inner);
    const region read[] = {{x, n}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(p > 0 ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(n && !x ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){dx, n}, (region){dy, n}, NULL, 0, read, 1));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(normalize_workspace)(outer, length, inner)));
    CN_KERNELS->normalize_backward(dx, dy, x, outer, length, inner, p, eps, plan_backward(n, dx), workspace);
    return CNORM_OK;
}
