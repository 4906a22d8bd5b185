# Whitening: covariances of channels, and linear maps of them. Statistics and matrices are float64 for either dtype.

cdef cnorm_status run_whiten_covariance(
        bint wide, double *mean, double *peak, double *covariance, const void *x, const void *other, size_t groups,
        channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_whiten_covariance_workspace_f64(s.batch, s.channels, s.spatial, groups, other != NULL, s.layout) if wide
        else cnorm_whiten_covariance_workspace_f32(s.batch, s.channels, s.spatial, groups, other != NULL, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_whiten_covariance_f64(
            mean, peak, covariance, <const double *>x, <const double *>other, s.batch, s.channels, s.spatial, groups,
            s.layout, workspace, size)
    else:
        status = cnorm_whiten_covariance_f32(
            mean, peak, covariance, <const float *>x, <const float *>other, s.batch, s.channels, s.spatial, groups,
            s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_whiten_apply(
        bint wide, void *y, const void *x, const double *mean, const double *matrix, const void *other,
        const double *other_mean, const double *other_matrix, size_t groups, channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_whiten_apply_workspace_f64(s.batch, s.channels, s.spatial, groups, other != NULL, s.layout) if wide
        else cnorm_whiten_apply_workspace_f32(s.batch, s.channels, s.spatial, groups, other != NULL, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_whiten_apply_f64(
            <double *>y, <const double *>x, mean, matrix, <const double *>other, other_mean, other_matrix, s.batch,
            s.channels, s.spatial, groups, s.layout, workspace, size)
    else:
        status = cnorm_whiten_apply_f32(
            <float *>y, <const float *>x, mean, matrix, <const float *>other, other_mean, other_matrix, s.batch,
            s.channels, s.spatial, groups, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def whiten_covariance(cnp.ndarray x, other, bint channels_last, cnp.ndarray mean, cnp.ndarray peak,
                      cnp.ndarray covariance):
    """Backend protocol: x and other (batch, channels, spatial) or (batch, spatial, channels), the rest float64."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef size_t groups = cnp.PyArray_DIM(covariance, 0)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *other_data = data_of(other)
    cdef double *mean_data = <double *>cnp.PyArray_DATA(mean)
    cdef double *peak_data = <double *>cnp.PyArray_DATA(peak)
    cdef double *covariance_data = <double *>cnp.PyArray_DATA(covariance)
    cdef cnorm_status status
    with nogil:
        status = run_whiten_covariance(wide, mean_data, peak_data, covariance_data, x_data, other_data, groups, s)
    raise_status(status)


def whiten_apply(cnp.ndarray x, cnp.ndarray mean, cnp.ndarray matrix, other, other_mean, other_matrix,
                 bint channels_last, cnp.ndarray y):
    """Backend protocol: x, other and y (batch, channels, spatial) or (batch, spatial, channels), the rest float64."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef size_t groups = cnp.PyArray_DIM(matrix, 0)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *other_data = data_of(other)
    cdef double *mean_data = <double *>cnp.PyArray_DATA(mean)
    cdef double *matrix_data = <double *>cnp.PyArray_DATA(matrix)
    cdef double *other_mean_data = <double *>data_of(other_mean)
    cdef double *other_matrix_data = <double *>data_of(other_matrix)
    cdef cnorm_status status
    with nogil:
        status = run_whiten_apply(
            wide, y_data, x_data, mean_data, matrix_data, other_data, other_mean_data, other_matrix_data, groups, s)
    raise_status(status)
