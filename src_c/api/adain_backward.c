/* Adaptive instance norm, backward: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(adain_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                        cnorm_layout layout, cnorm_layout style_layout)
{
    size_t n = element_count(batch, channels, spatial), style_n = element_count(batch, channels, style_spatial);
    if (n == SIZE_MAX || style_n == SIZE_MAX || style_n == 0)
        return 0;
    return CN_KERNELS->adain_backward_workspace(batch, channels, spatial, style_spatial, as_last(spatial, layout),
                                                as_last(style_spatial, style_layout));
}

cnorm_status CN_API(adain_backward)(real *dcontent, real *dstyle, const real *dy, const real *content,
                                    const real *style, const real *content_mean, const real *content_rstd,
                                    const real *style_rstd, size_t batch, size_t channels, size_t spatial,
                                    size_t style_spatial, int unbiased, cnorm_layout layout, cnorm_layout style_layout,
                                    void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), style_n = element_count(batch, channels, style_spatial);
    size_t m = batch * channels;
    const region written[] = {{dstyle, style_n}};
    const region read[] = {
        {content, n}, {style == dstyle ? NULL : style, style_n}, {content_mean, m}, {content_rstd, m}, {style_rstd, m}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_count(style_n));
    CN_CHECK(check_layout(layout));
    CN_CHECK(check_layout(style_layout));
    CN_CHECK(n && !style_n ? CNORM_ERROR_VALUE : CNORM_OK);
    if ((n && (!dy || !content)) || (style_n && (!style || !content_mean || !content_rstd || !style_rstd)))
        return CNORM_ERROR_NULL;
    CN_CHECK(check_overlaps((region){dcontent, n}, (region){dy, n}, written, 1, read, 5));
    CN_CHECK(check_workspace(
        workspace, workspace_size,
        CN_API(adain_backward_workspace)(batch, channels, spatial, style_spatial, layout, style_layout)));
    size_t output = (dcontent ? n : 0) + (dstyle ? style_n : 0);
    if (style_n > 0)
        CN_KERNELS->adain_backward(
            dcontent, dstyle, dy, content, style, content_mean, content_rstd, style_rstd, batch, channels, spatial,
            style_spatial, unbiased, as_last(spatial, layout), as_last(style_spatial, style_layout),
            cn_plan_work((2 * n + (dstyle ? style_n : 0) + output) * sizeof(real), output * sizeof(real)), workspace);
    return CNORM_OK;
}
