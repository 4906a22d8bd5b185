/* Group norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(group_norm_forward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups,
                                            cnorm_layout layout)
{
    if (!divides(groups, channels) || element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->group_norm_workspace(batch, channels, spatial, groups, layout == CNORM_CHANNELS_LAST);
}

cnorm_status CN_API(group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight,
                                        const real *bias, size_t batch, size_t channels, size_t spatial, size_t groups,
                                        double eps, cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    const region written[] = {{mean, batch * groups}, {rstd, batch * groups}};
    const region read[] = {{weight, channels}, {bias, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(divides(groups, channels) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 2, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(group_norm_forward_workspace)(batch, channels, spatial, groups, layout)));
    if (n > 0)
        CN_KERNELS->group_norm_forward(y, mean, rstd, x, weight, bias, batch, channels, spatial, groups, eps,
                                       layout == CNORM_CHANNELS_LAST, plan_forward(n), workspace);
    return CNORM_OK;
}
