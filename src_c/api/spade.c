/* SPADE, with statistics of its own and with fixed ones: checks, then the kernel of the level in use. One element a channel
 * in space is the same array in either layout: it goes to the channels-last kernels. */
#include "modulation_check.h"

size_t CN_API(spade_forward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups,
                                       cnorm_layout layout)
{
    if ((groups && channels % groups) || element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->spade_workspace(batch, channels, spatial, groups, as_last(spatial, layout));
}

size_t CN_API(spade_inference_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    (void)layout;
    return element_count(batch, channels, spatial) == SIZE_MAX ? 0 : CN_KERNELS->spade_inference_workspace(channels);
}

cnorm_status CN_API(spade_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var,
                                   const real *x, const real *gamma, cnorm_strides gamma_strides, const real *beta,
                                   cnorm_strides beta_strides, size_t batch, size_t channels, size_t spatial,
                                   size_t groups, double eps, double gamma_offset, double momentum, int unbiased,
                                   cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = groups ? batch * groups : channels;
    bool last = as_last(spatial, layout);
    extent shape = {batch, channels, spatial, last};
    const region written[] = {{mean, m}, {rstd, m}, {running_mean, channels}, {running_var, channels}};
    const region read[] = {modulation_region(gamma, gamma_strides, shape),
                           modulation_region(beta, beta_strides, shape)};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(isfinite(gamma_offset) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_layout(layout));
    CN_CHECK(groups && !divides(groups, channels) ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(check_running(running_mean, running_var, momentum));
    CN_CHECK(groups && running_mean ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(!groups && channels && n == channels ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(check_modulation(gamma, gamma_strides, shape));
    CN_CHECK(check_modulation(beta, beta_strides, shape));
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, written, 4, read, 2));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(spade_forward_workspace)(batch, channels, spatial, groups, layout)));
    if (n > 0)
        CN_KERNELS->spade_forward(y, mean, rstd, running_mean, running_var, x, gamma, gamma_strides, beta, beta_strides,
                                  batch, channels, spatial, groups, eps, gamma_offset, momentum, unbiased != 0, last,
                                  cn_plan_work(4 * n * sizeof(real), n * sizeof(real)), workspace);
    return CNORM_OK;
}

cnorm_status CN_API(spade_inference)(real *y, const real *x, const real *mean, const real *var, const real *gamma,
                                     cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides,
                                     size_t batch, size_t channels, size_t spatial, double eps, double gamma_offset,
                                     cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    bool last = as_last(spatial, layout);
    extent shape = {batch, channels, spatial, last};
    const region read[] = {{mean, channels},
                           {var, channels},
                           modulation_region(gamma, gamma_strides, shape),
                           modulation_region(beta, beta_strides, shape)};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(isfinite(gamma_offset) ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(check_layout(layout));
    CN_CHECK(n && (!mean || !var) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_modulation(gamma, gamma_strides, shape));
    CN_CHECK(check_modulation(beta, beta_strides, shape));
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, NULL, 0, read, 4));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(spade_inference_workspace)(batch, channels, spatial, layout)));
    if (n > 0)
        CN_KERNELS->spade_inference(y, x, mean, var, gamma, gamma_strides, beta, beta_strides, batch, channels, spatial,
                                    eps, gamma_offset, last, cn_plan_work(4 * n * sizeof(real), n * sizeof(real)),
                                    workspace);
    return CNORM_OK;
}
