/* Weight norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

cnorm_status CN_API(weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g,
                                          size_t outer, size_t channels, size_t inner, void *workspace,
                                          size_t workspace_size)
{
    size_t n = element_count(outer, channels, inner);
    const region written[] = {{dg, channels}}, read[] = {{v, n}, {g, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_count(element_count(channels, 1, 1)));
    CN_CHECK(n && (!v || !g) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){dv, n}, (region){dw, n}, written, 1, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(weight_norm_workspace)(outer, channels, inner)));
    CN_KERNELS->weight_norm_backward(dv, dg, dw, v, g, outer, channels, inner, plan_backward(n, dv), workspace);
    return CNORM_OK;
}
