/* Batch norm over several processes, backward, its two passes: checks, then the kernel of the level in use. One element a
 * channel in space is (batch, channels) in either layout: it goes to the channels-last kernels. */
#include "check.h"

#define SUMS_ROWS 8

size_t CN_API(sync_batch_norm_backward_sums_workspace)(size_t batch, size_t channels, size_t spatial,
                                                       cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->sync_batch_norm_backward_sums_workspace(batch, channels, spatial, as_last(spatial, layout));
}

size_t CN_API(sync_batch_norm_backward_apply_workspace)(size_t batch, size_t channels, size_t spatial,
                                                        cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->sync_batch_norm_backward_apply_workspace(batch, channels, spatial, as_last(spatial, layout));
}

cnorm_status CN_API(sync_batch_norm_backward_sums)(double *sums, const real *dy, const real *x, const real *mean,
                                                   const real *rstd, size_t batch, size_t channels, size_t spatial,
                                                   cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    CN_CHECK(check_count(n));
    CN_CHECK(check_layout(layout));
    CN_CHECK(channels && !sums ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(n && (!dy || !x || !mean || !rstd) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_apart(sums, SUMS_ROWS * channels, dy, n));
    CN_CHECK(check_apart(sums, SUMS_ROWS * channels, x, n));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(sync_batch_norm_backward_sums_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->sync_batch_norm_backward_sums(sums, dy, x, mean, rstd, batch, channels, spatial,
                                              as_last(spatial, layout), plan_forward(n), workspace);
    return CNORM_OK;
}

cnorm_status CN_API(sync_batch_norm_backward_apply)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                                    const real *mean, const real *rstd, const real *weight,
                                                    const double *own, const double *counts, const double *sums,
                                                    size_t ranks, size_t batch, size_t channels, size_t spatial,
                                                    cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial), m = channels;
    CN_CHECK(check_count(n));
    CN_CHECK(check_count(element_count(ranks * SUMS_ROWS, channels, 1)));
    CN_CHECK(check_layout(layout));
    CN_CHECK(n && (!own || !counts || !sums) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_gradient((gradient_arrays){dx, dweight, dbias, dy, x, mean, rstd, weight, true, n, m, m}));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(sync_batch_norm_backward_apply_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->sync_batch_norm_backward_apply(dx, dweight, dbias, dy, x, mean, rstd, weight, own, counts, sums, ranks,
                                               batch, channels, spatial, as_last(spatial, layout), plan_backward(n, dx),
                                               workspace);
    return CNORM_OK;
}
