# Instance norm, backward.

cdef cnorm_status run_instance_norm_backward(bint wide, gradient_data g, channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_instance_norm_backward_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
        else cnorm_instance_norm_backward_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_instance_norm_backward_f64(
            <double *>g.dx, <double *>g.dweight, <double *>g.dbias, <const double *>g.dy, <const double *>g.x,
            <const double *>g.mean, <const double *>g.rstd, <const double *>g.weight, s.batch, s.channels, s.spatial,
            s.layout, workspace, size)
    else:
        status = cnorm_instance_norm_backward_f32(
            <float *>g.dx, <float *>g.dweight, <float *>g.dbias, <const float *>g.dy, <const float *>g.x,
            <const float *>g.mean, <const float *>g.rstd, <const float *>g.weight, s.batch, s.channels, s.spatial,
            s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def instance_norm_backward(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd, weight, bint channels_last, dx, dweight,
        dbias):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, weight, dx, dweight, dbias)
    cdef cnorm_status status
    with nogil:
        status = run_instance_norm_backward(wide, g, s)
    raise_status(status)


def fast_instance_norm_backward(dy, x, mean, rstd, weight, axis, need, out):
    """Do a plainly valid call of cnorm.instance_norm_backward, or return None."""
    cdef channel_gradient_call c
    if not take_channel_gradient(dy, x, mean, rstd, weight, axis, need, out, 2, 0, &c):
        return None
    cdef cnp.ndarray dx = None
    if c.wanted.x:
        dx = take_output(out, <cnp.ndarray>x)
        if dx is None:
            return None
    cdef cnp.npy_intp channels = c.shape.channels
    cdef cnp.ndarray dweight = new_parameter(c.wanted.weight, <cnp.ndarray>x, 1, &channels)
    cdef cnp.ndarray dbias = new_parameter(c.wanted.bias, <cnp.ndarray>x, 1, &channels)
    c.data.dx, c.data.dweight, c.data.dbias = data_of(dx), data_of(dweight), data_of(dbias)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef cnorm_status status
    with nogil:
        status = run_instance_norm_backward(wide, c.data, c.shape)
    return None if status != CNORM_OK else Gradients(dx, dweight, dbias)


cdef int instance_norm_backward_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
        const floating[::1] rstd, const floating[::1] weight, bint channels_last, floating[:, :, ::1] dx,
        floating[::1] dweight, floating[::1] dbias) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    cdef Py_ssize_t statistics = s.batch * s.channels
    if not (same_shape(x.shape, dy.shape, 3) and (dx is None or same_shape(x.shape, dx.shape, 3))
            and mean.shape[0] == statistics and rstd.shape[0] == statistics and is_length(weight, s.channels)
            and is_length(dweight, s.channels) and is_length(dbias, s.channels)):
        return CNORM_ERROR_VALUE
    cdef void *dx_data = NULL
    if dx is not None:
        dx_data = &dx[0, 0, 0]
    return run_instance_norm_backward(
        floating is double,
        gradient_data(dx_data, view_data(dweight), view_data(dbias),
                      <void *>&dy[0, 0, 0], <void *>&x[0, 0, 0], view_data(mean), view_data(rstd), view_data(weight)),
        s)
