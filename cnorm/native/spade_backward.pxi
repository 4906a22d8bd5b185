# SPADE, backward.

from cnorm._gradients import SpadeGradients

cdef cnorm_status run_spade_backward(
        bint wide, gradient_data g, cnorm_strides strides, channel_shape s, size_t groups, double gamma_offset,
        bint training) noexcept nogil:
    """`g` has gamma as its weight, and dgamma and dbeta, of the size of x, as dweight and dbias."""
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_spade_backward_workspace_f64(s.batch, s.channels, s.spatial, groups, s.layout) if wide
        else cnorm_spade_backward_workspace_f32(s.batch, s.channels, s.spatial, groups, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spade_backward_f64(
            <double *>g.dx, <double *>g.dweight, <double *>g.dbias,
            <const double *>g.dy, <const double *>g.x, <const double *>g.mean,
            <const double *>g.rstd, <const double *>g.weight, strides, s.batch, s.channels, s.spatial, groups,
            gamma_offset, training, s.layout, workspace, size)
    else:
        status = cnorm_spade_backward_f32(
            <float *>g.dx, <float *>g.dweight, <float *>g.dbias,
            <const float *>g.dy, <const float *>g.x, <const float *>g.mean,
            <const float *>g.rstd, <const float *>g.weight, strides, s.batch, s.channels, s.spatial, groups,
            gamma_offset, training, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def spade_backward(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd, cnp.ndarray gamma, double gamma_offset,
        size_t num_groups, bint training, bint channels_last, dx, dgamma, dbeta):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, gamma, dx, dgamma, dbeta)
    cdef cnorm_strides strides = strides_of(gamma, s)
    cdef cnorm_status status
    with nogil:
        status = run_spade_backward(wide, g, strides, s, num_groups, gamma_offset, training)
    raise_status(status)


cdef bint take_spade_need(object need, object out, wanted_gradients *wanted) noexcept:
    """A tuple of names; gamma and beta stand where weight and bias do elsewhere. `out` is for x."""
    wanted.x = wanted.weight = wanted.bias = False
    if type(need) is not tuple:
        return False
    for name in <tuple>need:
        if type(name) is not str:
            return False
        if name == "x":
            wanted.x = True
        elif name == "gamma":
            wanted.weight = True
        elif name == "beta":
            wanted.bias = True
        else:
            return False
    return wanted.x or out is None


def fast_spade_backward(
        dy, x, mean, rstd, gamma, beta_shape, norm, gamma_offset, axis, num_groups, training, need, out):
    """Do a plainly valid call of cnorm.spade_backward with a gamma and a beta for each element, or return None."""
    cdef int type_number = plain_type(x), ndim
    cdef channel_gradient_call c
    cdef cnorm_strides strides
    cdef double offset
    cdef cnp.npy_intp[64] sizes
    if (type_number < 0 or not take_channels(<cnp.ndarray>x, axis, &c.shape)
            or c.shape.batch * c.shape.channels * c.shape.spatial == 0 or not take_dy(dy, <cnp.ndarray>x, &c.data)
            or not take_spade_modulation(gamma, <cnp.ndarray>x, axis, c.shape, &c.data.weight, &strides)
            or not cnp.PyArray_SAMESHAPE(<cnp.ndarray>gamma, <cnp.ndarray>x) or beta_shape is not None
            or not take_spade_need(need, out, &c.wanted) or not take_number(gamma_offset, &offset)
            or (training is not True and training is not False)):
        return None
    cdef bint trains = training is True
    cdef Py_ssize_t groups = take_groups(norm, num_groups, c.shape.channels)
    if groups < 0:
        return None
    ndim = spade_statistics_shape(norm, groups, <cnp.ndarray>x, c.shape, sizes)
    if (not take_statistic(mean, <cnp.ndarray>x, ndim, sizes, &c.data.mean)
            or not take_statistic(rstd, <cnp.ndarray>x, ndim, sizes, &c.data.rstd)):
        return None
    cdef cnp.ndarray dx = None, dgamma = None, dbeta = None
    if c.wanted.x:
        dx = take_output(out, <cnp.ndarray>x)
        if dx is None:
            return None
    if c.wanted.weight:
        dgamma = take_output(None, <cnp.ndarray>x)
    if c.wanted.bias:
        dbeta = take_output(None, <cnp.ndarray>x)
    c.data.dx, c.data.dweight, c.data.dbias = data_of(dx), data_of(dgamma), data_of(dbeta)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef cnorm_status status
    with nogil:
        status = run_spade_backward(wide, c.data, strides, c.shape, groups, offset, trains)
    return None if status != CNORM_OK else SpadeGradients(dx, dgamma, dbeta)
