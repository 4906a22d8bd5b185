/* Adaptive instance norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(adain_forward_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                       cnorm_layout layout, cnorm_layout style_layout)
{
    size_t n = element_count(batch, channels, spatial), style_n = element_count(batch, channels, style_spatial);
    if (n == SIZE_MAX || style_n == SIZE_MAX || n == 0)
        return 0;
    return CN_KERNELS->adain_workspace(batch, channels, spatial, style_spatial, as_last(spatial, layout),
                                       as_last(style_spatial, style_layout));
}

cnorm_status CN_API(adain_forward)(real *y, real *content_mean, real *content_rstd, real *style_mean, real *style_rstd,
                                   const real *content, const real *style, size_t batch, size_t channels,
                                   size_t spatial, size_t style_spatial, double eps, int unbiased, cnorm_layout layout,
                                   cnorm_layout style_layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), style_n = element_count(batch, channels, style_spatial);
    size_t m = batch * channels;
    const region written[] = {{content_mean, m}, {content_rstd, m}, {style_mean, m}, {style_rstd, m}};
    const region read[] = {{style, style_n}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_count(style_n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_layout(style_layout));
    CN_CHECK(n && !style_n ? CNORM_ERROR_VALUE : CNORM_OK);
    CN_CHECK(n && !style ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){content, n}, written, 4, read, 1));
    CN_CHECK(check_workspace(
        workspace, workspace_size,
        CN_API(adain_forward_workspace)(batch, channels, spatial, style_spatial, layout, style_layout)));
    if (n > 0)
        CN_KERNELS->adain_forward(y, content_mean, content_rstd, style_mean, style_rstd, content, style, batch,
                                  channels, spatial, style_spatial, eps, unbiased, as_last(spatial, layout),
                                  as_last(style_spatial, style_layout),
                                  cn_plan_work((2 * n + style_n) * sizeof(real), n * sizeof(real)), workspace);
    return CNORM_OK;
}
