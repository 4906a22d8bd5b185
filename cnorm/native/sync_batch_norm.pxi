# Batch norm over several processes: its three passes.

cdef cnorm_status run_sync_moments(bint wide, void *moments, const void *x, channel_shape s, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_sync_batch_norm_moments_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_sync_batch_norm_moments_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_moments_f64(
            <double *>moments, <const double *>x, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_moments_f32(
            <double *>moments, <const float *>x, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_sync_apply(
        bint wide, void *y, const void *x, const void *merged, const void *weight, const void *bias,
        channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_sync_batch_norm_apply_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_sync_batch_norm_apply_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_apply_f64(
            <double *>y, <const double *>x, <const double *>merged, <const double *>weight, <const double *>bias,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_apply_f32(
            <float *>y, <const float *>x, <const double *>merged, <const float *>weight, <const float *>bias,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def sync_batch_norm_moments(cnp.ndarray x, double eps, bint channels_last, cnp.ndarray moments):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *moments_data = cnp.PyArray_DATA(moments)
    cdef cnorm_status status
    with nogil:
        status = run_sync_moments(wide, moments_data, x_data, s, eps)
    raise_status(status)


def sync_batch_norm_merge(cnp.ndarray counts, cnp.ndarray moments, double eps, cnp.ndarray merged, cnp.ndarray mean,
                          cnp.ndarray rstd, running_mean, running_var, double momentum, bint unbiased):
    """Backend protocol: moments (ranks, 5, channels). Small work: the GIL is kept."""
    cdef size_t ranks = cnp.PyArray_DIM(moments, 0)
    cdef size_t channels = cnp.PyArray_DIM(moments, 2)
    cdef const double *counts_data = <const double *>cnp.PyArray_DATA(counts)
    cdef const double *all_data = <const double *>cnp.PyArray_DATA(moments)
    cdef double *merged_data = <double *>cnp.PyArray_DATA(merged)
    cdef void *mean_data = cnp.PyArray_DATA(mean)
    cdef void *rstd_data = cnp.PyArray_DATA(rstd)
    cdef void *rm_data = data_of(running_mean)
    cdef void *rv_data = data_of(running_var)
    cdef cnorm_status status
    if is_double(mean):
        status = cnorm_sync_batch_norm_merge_f64(
            merged_data, <double *>mean_data, <double *>rstd_data, <double *>rm_data, <double *>rv_data, counts_data,
            all_data, ranks, channels, eps, momentum, unbiased)
    else:
        status = cnorm_sync_batch_norm_merge_f32(
            merged_data, <float *>mean_data, <float *>rstd_data, <float *>rm_data, <float *>rv_data, counts_data,
            all_data, ranks, channels, eps, momentum, unbiased)
    raise_status(status)


def sync_batch_norm_apply(cnp.ndarray x, cnp.ndarray merged, weight, bias, bint channels_last, cnp.ndarray y):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *merged_data = cnp.PyArray_DATA(merged)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef cnorm_status status
    with nogil:
        status = run_sync_apply(wide, y_data, x_data, merged_data, w_data, b_data, s)
    raise_status(status)
