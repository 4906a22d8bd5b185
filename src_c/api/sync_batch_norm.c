/* Batch norm over several processes, its three passes: checks, then the kernel of the level in use. One element a channel in
 * space is (batch, channels) in either layout: it goes to the channels-last kernels. */
#include "check.h"

#define MESSAGE_ROWS 5

/* Numbers of `rows` rows of all ranks. */
static size_t rank_numbers(size_t ranks, size_t rows, size_t channels)
{
    return element_count(ranks * rows, channels, 1);
}

size_t CN_API(sync_batch_norm_moments_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->sync_batch_norm_moments_workspace(batch, channels, spatial, as_last(spatial, layout));
}

size_t CN_API(sync_batch_norm_apply_workspace)(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
{
    if (element_count(batch, channels, spatial) == SIZE_MAX)
        return 0;
    return CN_KERNELS->sync_batch_norm_apply_workspace(batch, channels, spatial, as_last(spatial, layout));
}

cnorm_status CN_API(sync_batch_norm_moments)(double *moments, const real *x, size_t batch, size_t channels,
                                             size_t spatial, double eps, cnorm_layout layout, void *workspace,
                                             size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_layout(layout));
    CN_CHECK(channels && (!moments || (n && !x)) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_apart(moments, MESSAGE_ROWS * channels, x, n));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(sync_batch_norm_moments_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->sync_batch_norm_moments(moments, x, batch, channels, spatial, eps, as_last(spatial, layout),
                                        plan_forward(n), workspace);
    return CNORM_OK;
}

cnorm_status CN_API(sync_batch_norm_merge)(double *merged, real *mean, real *rstd, real *running_mean,
                                           real *running_var, const double *counts, const double *moments, size_t ranks,
                                           size_t channels, double eps, double momentum, int unbiased)
{
    size_t n = rank_numbers(ranks, MESSAGE_ROWS, channels);
    const region written[] = {{mean, channels}, {rstd, channels}, {running_mean, channels}, {running_var, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(check_running(running_mean, running_var, momentum));
    CN_CHECK(channels && (!merged || (ranks && (!counts || !moments))) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_overlaps((region){0}, (region){0}, written, 4, NULL, 0));
    CN_KERNELS->sync_batch_norm_merge(merged, mean, rstd, running_mean, running_var, counts, moments, ranks, channels,
                                      eps, momentum, unbiased != 0);
    return CNORM_OK;
}

cnorm_status CN_API(sync_batch_norm_apply)(real *y, const real *x, const double *merged, const real *weight,
                                           const real *bias, size_t batch, size_t channels, size_t spatial,
                                           cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    const region read[] = {{weight, channels}, {bias, channels}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_layout(layout));
    CN_CHECK(n && !merged ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, NULL, 0, read, 2));
    CN_CHECK(check_apart(merged, MESSAGE_ROWS * channels, y, n));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(sync_batch_norm_apply_workspace)(batch, channels, spatial, layout)));
    CN_KERNELS->sync_batch_norm_apply(y, x, merged, weight, bias, batch, channels, spatial, as_last(spatial, layout),
                                      plan_forward(n), workspace);
    return CNORM_OK;
}
