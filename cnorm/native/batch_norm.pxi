# Batch norm, in training and with fixed statistics.

cdef cnorm_status run_batch_norm_training(
        bint wide, void *y, void *mean, void *rstd, void *running_mean, void *running_var, const void *x,
        const void *weight, const void *bias, channel_shape s, double eps, double momentum,
        bint unbiased) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_batch_norm_forward_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_batch_norm_forward_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_batch_norm_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <double *>running_mean, <double *>running_var,
            <const double *>x, <const double *>weight, <const double *>bias, s.batch, s.channels, s.spatial, eps,
            momentum, unbiased, s.layout, workspace, size)
    else:
        status = cnorm_batch_norm_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <float *>running_mean, <float *>running_var,
            <const float *>x, <const float *>weight, <const float *>bias, s.batch, s.channels, s.spatial, eps,
            momentum, unbiased, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_batch_norm_inference(
        bint wide, void *y, const void *x, const void *mean, const void *var, const void *weight, const void *bias,
        channel_shape s, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_batch_norm_inference_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_batch_norm_inference_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_batch_norm_inference_f64(
            <double *>y, <const double *>x, <const double *>mean, <const double *>var, <const double *>weight,
            <const double *>bias, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    else:
        status = cnorm_batch_norm_inference_f32(
            <float *>y, <const float *>x, <const float *>mean, <const float *>var, <const float *>weight,
            <const float *>bias, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def batch_norm_training(cnp.ndarray x, weight, bias, double eps, bint channels_last, cnp.ndarray y, mean, rstd,
                        running_mean, running_var, double momentum, bint unbiased):
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
        status = run_batch_norm_training(
            wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, w_data, b_data, s, eps, momentum, unbiased)
    raise_status(status)


def batch_norm_inference(cnp.ndarray x, cnp.ndarray running_mean, cnp.ndarray running_var, weight, bias, double eps,
                         bint channels_last, cnp.ndarray y):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef void *mean_data = cnp.PyArray_DATA(running_mean)
    cdef void *var_data = cnp.PyArray_DATA(running_var)
    cdef cnorm_status status
    with nogil:
        status = run_batch_norm_inference(wide, y_data, x_data, mean_data, var_data, w_data, b_data, s, eps)
    raise_status(status)


def fast_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, axis, unbiased, out,
                    return_stats):
    """Do a plainly valid call of cnorm.batch_norm, or return None."""
    cdef channel_call c
    cdef double eps_value, momentum_value
    cdef void *rm_data
    cdef void *rv_data
    if (not take_channel_call(x, axis, weight, bias, &c) or not take_number(eps, &eps_value)
            or not take_number(momentum, &momentum_value)
            or not take_running_pair(running_mean, running_var, <cnp.ndarray>x, c.shape.channels, &rm_data, &rv_data)):
        return None
    cdef bint trains = training is True
    if not trains and (training is not False or rm_data == NULL or return_stats):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    cdef cnp.npy_intp channels = c.shape.channels
    if return_stats:
        mean = cnp.PyArray_EMPTY(1, &channels, cnp.PyArray_TYPE(<cnp.ndarray>x), 0)
        rstd = cnp.PyArray_EMPTY(1, &channels, cnp.PyArray_TYPE(<cnp.ndarray>x), 0)
    cdef bint wide = is_double(<cnp.ndarray>x), biased = not unbiased
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        if trains:
            status = run_batch_norm_training(
                wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, c.weight, c.bias, c.shape, eps_value,
                momentum_value, not biased)
        else:
            status = run_batch_norm_inference(
                wide, y_data, x_data, rm_data, rv_data, c.weight, c.bias, c.shape, eps_value)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)


cdef int batch_norm_training_view(
        const floating[:, :, ::1] x, floating[::1] running_mean, floating[::1] running_var,
        const floating[::1] weight, const floating[::1] bias, double momentum, double eps, bint unbiased,
        bint channels_last, floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not (same_shape(x.shape, y.shape, 3) and is_length(weight, s.channels) and is_length(bias, s.channels)
            and is_length(running_mean, s.channels) and is_length(running_var, s.channels)
            and is_length(mean, s.channels) and is_length(rstd, s.channels)):
        return CNORM_ERROR_VALUE
    return run_batch_norm_training(
        floating is double, &y[0, 0, 0], view_data(mean), view_data(rstd), view_data(running_mean),
        view_data(running_var),
        &x[0, 0, 0], view_data(weight), view_data(bias), s, eps, momentum, unbiased)


cdef int batch_norm_inference_view(
        const floating[:, :, ::1] x, const floating[::1] running_mean, const floating[::1] running_var,
        const floating[::1] weight, const floating[::1] bias, double eps, bint channels_last,
        floating[:, :, ::1] y) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not (same_shape(x.shape, y.shape, 3) and is_length(weight, s.channels) and is_length(bias, s.channels)
            and is_length(running_mean, s.channels) and is_length(running_var, s.channels)):
        return CNORM_ERROR_VALUE
    return run_batch_norm_inference(
        floating is double, &y[0, 0, 0], &x[0, 0, 0], view_data(running_mean), view_data(running_var),
        view_data(weight), view_data(bias), s, eps)
