/* Weight norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(weight_norm_workspace)(size_t outer, size_t channels, size_t inner)
{
    bool fits = element_count(outer, channels, inner) != SIZE_MAX;
    return fits ? CN_KERNELS->weight_norm_workspace(outer, channels, inner) : 0;
}

cnorm_status CN_API(weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels,
                                         size_t inner, void *workspace, size_t workspace_size)
{
    size_t n = element_count(outer, channels, inner);
    const region read[] = {{g, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(n && !g ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){w, n}, (region){v, n}, NULL, 0, read, 1));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(weight_norm_workspace)(outer, channels, inner)));
    CN_KERNELS->weight_norm_forward(w, v, g, outer, channels, inner, plan_forward(n), workspace);
    return CNORM_OK;
}
