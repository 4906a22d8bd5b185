/* Whitening: checks, then the kernels of the level in use. */
#include "check.h"

/* Each element is multiplied with the channels of its group: worth more threads than its bytes alone. */
static cn_work plan_products(size_t n, size_t channels)
{
    size_t bytes = n * sizeof(real), factor = 1 + channels / 8;
    cn_work work = cn_plan_work(bytes > SIZE_MAX / factor ? SIZE_MAX : bytes * factor, 0);
    work.stream = false;
    return work;
}

static cnorm_status check_shape(size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
{
    CN_CHECK(check_count(element_count(batch, channels, spatial)));
    CN_CHECK(check_layout(layout));
    return divides(groups, channels) ? CNORM_OK : CNORM_ERROR_VALUE;
}

size_t CN_API(whiten_covariance_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, int two,
                                           cnorm_layout layout)
{
    if (check_shape(batch, channels, spatial, groups, layout) != CNORM_OK)
        return 0;
    return CN_KERNELS->whiten_covariance_workspace(batch, channels, spatial, groups, two != 0,
                                                   as_last(spatial, layout));
}

size_t CN_API(whiten_apply_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, int two,
                                      cnorm_layout layout)
{
    if (check_shape(batch, channels, spatial, groups, layout) != CNORM_OK)
        return 0;
    return CN_KERNELS->whiten_apply_workspace(batch, channels, spatial, groups, two != 0, as_last(spatial, layout));
}

cnorm_status CN_API(whiten_covariance)(double *mean, double *peak, double *covariance, const real *x, const real *other,
                                       size_t batch, size_t channels, size_t spatial, size_t groups,
                                       cnorm_layout layout, void *workspace, size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    CN_CHECK(check_shape(batch, channels, spatial, groups, layout));
    CN_CHECK(n ? CNORM_OK : CNORM_ERROR_VALUE);
    CN_CHECK(mean && peak && covariance && x ? CNORM_OK : CNORM_ERROR_NULL);
    CN_CHECK(
        check_workspace(workspace, workspace_size,
                        CN_API(whiten_covariance_workspace)(batch, channels, spatial, groups, other != NULL, layout)));
    CN_KERNELS->whiten_covariance(mean, peak, covariance, x, other, batch, channels, spatial, groups,
                                  as_last(spatial, layout), plan_products(n, channels / groups), workspace);
    return CNORM_OK;
}

cnorm_status CN_API(whiten_apply)(real *y, const real *x, const double *mean, const double *matrix, const real *other,
                                  const double *other_mean, const double *other_matrix, size_t batch, size_t channels,
                                  size_t spatial, size_t groups, cnorm_layout layout, void *workspace,
                                  size_t workspace_size)
{
    size_t n = element_count(batch, channels, spatial);
    const region read[] = {{other, n}};
    CN_CHECK(check_shape(batch, channels, spatial, groups, layout));
    CN_CHECK(n && (!mean || !matrix || (other && (!other_mean || !other_matrix))) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){y, n}, (region){x, n}, NULL, 0, read, 1));
    CN_CHECK(check_workspace(workspace, workspace_size,
                             CN_API(whiten_apply_workspace)(batch, channels, spatial, groups, other != NULL, layout)));
    if (n > 0)
        CN_KERNELS->whiten_apply(y, x, mean, matrix, other, other_mean, other_matrix, batch, channels, spatial, groups,
                                 as_last(spatial, layout), plan_products(n, channels / groups), workspace);
    return CNORM_OK;
}
