# Instance norm.

cdef cnorm_status run_instance_norm(
        bint wide, void *y, void *mean, void *rstd, void *running_mean, void *running_var, const void *x,
        const void *weight, const void *bias, channel_shape s, double eps, double momentum) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_instance_norm_forward_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_instance_norm_forward_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_instance_norm_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <double *>running_mean, <double *>running_var,
            <const double *>x, <const double *>weight, <const double *>bias, s.batch, s.channels, s.spatial, eps,
            momentum, s.layout, workspace, size)
    else:
        status = cnorm_instance_norm_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <float *>running_mean, <float *>running_var,
            <const float *>x, <const float *>weight, <const float *>bias, s.batch, s.channels, s.spatial, eps,
            momentum, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def instance_norm(cnp.ndarray x, weight, bias, double eps, bint channels_last, cnp.ndarray y, mean, rstd,
                  running_mean, running_var, double momentum):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef void *rm_data = data_of(running_mean)
    cdef void *rv_data = data_of(running_var)
    cdef cnorm_status status
    with nogil:
        status = run_instance_norm(
            wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, w_data, b_data, s, eps, momentum)
    raise_status(status)


def fast_instance_norm(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps, axis, out,
                       return_stats):
    """Do a plainly valid call of cnorm.instance_norm with the input's statistics, or return None."""
    cdef channel_call c
    cdef double eps_value, momentum_value
    cdef void *rm_data
    cdef void *rv_data
    if (use_input_stats is not True or not take_channel_call(x, axis, weight, bias, &c)
            or not take_number(eps, &eps_value) or not take_number(momentum, &momentum_value)
            or not take_running_pair(running_mean, running_var, <cnp.ndarray>x, c.shape.channels, &rm_data, &rv_data)):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    if return_stats:
        mean = new_pair(c.shape.batch, c.shape.channels, <cnp.ndarray>x)
        rstd = new_pair(c.shape.batch, c.shape.channels, <cnp.ndarray>x)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_instance_norm(
            wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, c.weight, c.bias, c.shape, eps_value,
            momentum_value)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)


cdef int instance_norm_view(
        const floating[:, :, ::1] x, floating[::1] running_mean, floating[::1] running_var,
        const floating[::1] weight, const floating[::1] bias, double momentum, double eps,
        bint channels_last, floating[:, :, ::1] y, floating[::1] mean,
        floating[::1] rstd) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not (same_shape(x.shape, y.shape, 3) and is_length(weight, s.channels) and is_length(bias, s.channels)
            and is_length(running_mean, s.channels) and is_length(running_var, s.channels)
            and is_length(mean, s.batch * s.channels) and is_length(rstd, s.batch * s.channels)):
        return CNORM_ERROR_VALUE
    return run_instance_norm(
        floating is double, &y[0, 0, 0], view_data(mean), view_data(rstd), view_data(running_mean),
        view_data(running_var), &x[0, 0, 0], view_data(weight), view_data(bias), s,
        eps, momentum)
