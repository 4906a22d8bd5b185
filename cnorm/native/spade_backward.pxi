# SPADE, backward.

cdef cnorm_status run_spade_backward(
        bint wide, gradient_data g, cnorm_strides strides, channel_shape s, size_t groups, double gamma_offset,
        bint training) noexcept nogil:
    """`g` has gamma as its weight, and dgamma, of the size of x, as its dweight."""
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_spade_backward_workspace_f64(s.batch, s.channels, s.spatial, groups, s.layout) if wide
        else cnorm_spade_backward_workspace_f32(s.batch, s.channels, s.spatial, groups, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spade_backward_f64(
            <double *>g.dx, <double *>g.dweight, <const double *>g.dy, <const double *>g.x, <const double *>g.mean,
            <const double *>g.rstd, <const double *>g.weight, strides, s.batch, s.channels, s.spatial, groups,
            gamma_offset, training, s.layout, workspace, size)
    else:
        status = cnorm_spade_backward_f32(
            <float *>g.dx, <float *>g.dweight, <const float *>g.dy, <const float *>g.x, <const float *>g.mean,
            <const float *>g.rstd, <const float *>g.weight, strides, s.batch, s.channels, s.spatial, groups,
            gamma_offset, training, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def spade_backward(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd, cnp.ndarray gamma, double gamma_offset,
        size_t num_groups, bint training, bint channels_last, dx, dgamma):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, gamma, dx, dgamma, None)
    cdef cnorm_strides strides = strides_of(gamma, s)
    cdef cnorm_status status
    with nogil:
        status = run_spade_backward(wide, g, strides, s, num_groups, gamma_offset, training)
    raise_status(status)
