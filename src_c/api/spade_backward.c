/* SPADE, backward, of its own statistics and with fixed ones: checks, then the kernel of the level in use. One element a
 * channel in space is the same array in either layout: it goes to the channels-last kernels. */
#include "modulation_check.h"

size_t CN_API(spade_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups,
                                        cnorm_layout layout)
{
    if ((groups && channels % groups) || element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->spade_backward_workspace(batch, channels, spatial, groups, as_last(spatial, layout));
}

cnorm_status CN_API(spade_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x,
                                    const real *mean, const real *rstd, const real *gamma, cnorm_strides gamma_strides,
                                    size_t batch, size_t channels, size_t spatial, size_t groups, double gamma_offset,
                                    int training, cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = groups ? batch * groups : channels;
    bool last = as_last(spatial, layout);
    extent shape = {batch, channels, spatial, last};
    const region written[] = {{dgamma, n}, {dbeta, n}};
    const region read[] = {{x, n}, {mean, m}, {rstd, m}, modulation_region(gamma, gamma_strides, shape)};
    CN_CHECK(check_count(n));
    CN_CHECK(isfinite(gamma_offset) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_layout(layout));
    CN_CHECK(groups && !divides(groups, channels) ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(n && (!dy || !x || !mean || !rstd) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_modulation(gamma, gamma_strides, shape));
    CN_CHECK(check_overlaps((region){dx, n}, (region){dy, n}, written, 2, read, 4));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(spade_backward_workspace)(batch, channels, spatial, groups, layout)));
    size_t outputs = (dx != NULL) + (dgamma != NULL) + (dbeta != NULL);
    if (n == 0 || outputs == 0)
        return CNORM_OK;
    cn_work work = cn_plan_work((3 + outputs) * n * sizeof(real), outputs * n * sizeof(real));
    if (groups == 0 && !training)
        CN_KERNELS->spade_inference_backward(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, gamma_strides, batch,
                                             channels, spatial, gamma_offset, last, work);
    else
        CN_KERNELS->spade_backward(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, gamma_strides, batch, channels, spatial,
                                   groups, gamma_offset, last, work, workspace);
    return CNORM_OK;
}
