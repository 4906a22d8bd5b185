# Group norm.

cdef cnorm_status run_group_norm(
        bint wide, void *y, void *mean, void *rstd, const void *x, const void *weight, const void *bias,
        channel_shape s, size_t groups, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_group_norm_forward_workspace_f64(s.batch, s.channels, s.spatial, groups, s.layout) if wide
        else cnorm_group_norm_forward_workspace_f32(s.batch, s.channels, s.spatial, groups, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_group_norm_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <const double *>x, <const double *>weight,
            <const double *>bias, s.batch, s.channels, s.spatial, groups, eps, s.layout, workspace, size)
    else:
        status = cnorm_group_norm_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <const float *>x, <const float *>weight,
            <const float *>bias, s.batch, s.channels, s.spatial, groups, eps, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def group_norm(cnp.ndarray x, weight, bias, size_t num_groups, double eps, bint channels_last, cnp.ndarray y, mean,
               rstd):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_group_norm(wide, y_data, mean_data, rstd_data, x_data, w_data, b_data, s, num_groups, eps)
    raise_status(status)


def fast_group_norm(x, num_groups, weight, bias, eps, axis, out, return_stats):
    """Do a plainly valid call of cnorm.group_norm, or return None."""
    cdef channel_call c
    cdef double eps_value
    cdef cnp.npy_intp groups
    if not take_channel_call(x, axis, weight, bias, &c) or not take_number(eps, &eps_value):
        return None
    if type(num_groups) is not int or not 0 < num_groups <= <cnp.npy_intp>c.shape.channels:
        return None
    groups = num_groups
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    if return_stats:
        mean = new_pair(c.shape.batch, groups, <cnp.ndarray>x)
        rstd = new_pair(c.shape.batch, groups, <cnp.ndarray>x)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_group_norm(
            wide, y_data, mean_data, rstd_data, x_data, c.weight, c.bias, c.shape, groups, eps_value)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)


cdef int group_norm_view(
        const floating[:, :, ::1] x, size_t num_groups, const floating[::1] weight, const floating[::1] bias,
        double eps, bint channels_last, floating[:, :, ::1] y, floating[::1] mean,
        floating[::1] rstd) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not (same_shape(x.shape, y.shape, 3) and is_length(weight, s.channels) and is_length(bias, s.channels)
            and is_length(mean, s.batch * num_groups) and is_length(rstd, s.batch * num_groups)):
        return CNORM_ERROR_VALUE
    return run_group_norm(
        floating is double, &y[0, 0, 0], view_data(mean), view_data(rstd), &x[0, 0, 0], view_data(weight),
        view_data(bias), s, num_groups,
        eps)
