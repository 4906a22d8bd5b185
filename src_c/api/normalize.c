/* Vectors divided by their norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(normalize_workspace)(size_t outer, size_t length, size_t inner)
{
    return element_count(outer, length, inner) == SIZE_MAX ? 0 : CN_KERNELS->normalize_workspace(outer, length, inner);
}

cnorm_status CN_API(normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner,
                                       double p, double eps, void *workspace, size_t workspace_size)
{
    size_t n = element_count(outer, length, inner);
    const region written[] = {{norm, element_count(outer, 1, inner)}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_count(written[0].n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(p > 0 ? CNORM_OK : CNORM_ERROR_VALUE);
    if (n && !y && !norm)
        return CNORM_ERROR_NULL;
    CN_CHECK(check_arrays((region){y ? y : x, n}, (region){x, n}, written, 1, NULL, 0));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(normalize_workspace)(outer, length, inner)));
    CN_KERNELS->normalize_forward(y, norm, x, outer, length, inner, p, eps, plan_forward(n), workspace);
    return CNORM_OK;
}
