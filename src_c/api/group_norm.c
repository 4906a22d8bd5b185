/* Group norm: checks, then the kernel of the level in use. */
#include "check.h"

static bool divides(size_t groups, size_t channels) { return groups > 0 && channels % groups == 0; }

size_t CN_API(group_norm_forward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups,
                                            cnorm_layout layout)
{
    if (!divides(groups, channels))
        return 0;
    return CN_KERNELS->group_norm_workspace(batch, channels, spatial, groups, layout == CNORM_CHANNELS_LAST);
}

cnorm_status CN_API(group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight,
                                        const real *bias, size_t batch, size_t channels, size_t spatial, size_t groups,
                                        double eps, cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    size_t needed = CN_API(group_norm_forward_workspace)(batch, channels, spatial, groups, layout);
    cnorm_status status = FIRST_ERROR(
        check_eps(eps), check_layout(layout), divides(groups, channels) ? CNORM_OK : CNORM_ERROR_VALUE,
        check_arrays(y, x, n, weight, bias, channels), check_statistics(mean, batch * groups, y, x, n),
        check_statistics(rstd, batch * groups, y, x, n), check_workspace(workspace, workspace_size, needed));
    if (status == CNORM_OK && n > 0)
        CN_KERNELS->group_norm_forward(y, mean, rstd, x, weight, bias, batch, channels, spatial, groups, eps,
                                       layout == CNORM_CHANNELS_LAST, plan_forward(n), workspace);
    return status;
}
