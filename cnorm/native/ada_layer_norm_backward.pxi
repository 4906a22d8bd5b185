# Adaptive layer norm, backward.

from cnorm._gradients import AdaLayerNormGradients


cdef cnorm_status run_ada_layer_norm_backward(bint wide, gradient_data g, sample_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_ada_layer_norm_backward_workspace_f64(s.batch, s.rows, s.cols) if wide
                        else cnorm_ada_layer_norm_backward_workspace_f32(s.batch, s.rows, s.cols))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_ada_layer_norm_backward_f64(
            <double *>g.dx, <double *>g.dweight, <double *>g.dbias, <const double *>g.dy, <const double *>g.x,
            <const double *>g.mean, <const double *>g.rstd, <const double *>g.weight, s.batch, s.rows, s.cols,
            workspace, size)
    else:
        status = cnorm_ada_layer_norm_backward_f32(
            <float *>g.dx, <float *>g.dweight, <float *>g.dbias, <const float *>g.dy, <const float *>g.x,
            <const float *>g.mean, <const float *>g.rstd, <const float *>g.weight, s.batch, s.rows, s.cols,
            workspace, size)
    drop_workspace(small, workspace)
    return status


def ada_layer_norm_backward(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd, cnp.ndarray scale, dx, dscale, dshift):
    """Backend protocol: (batch, rows, cols) arrays."""
    cdef bint wide = is_double(x)
    cdef sample_shape s = sample_shape(cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, 1), cnp.PyArray_DIM(x, 2))
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, scale, dx, dscale, dshift)
    cdef cnorm_status status
    with nogil:
        status = run_ada_layer_norm_backward(wide, g, s)
    raise_status(status)


cdef cnp.ndarray new_like(bint wanted, cnp.ndarray a):
    return cnp.PyArray_EMPTY(cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), cnp.PyArray_TYPE(a), 0) if wanted else None


def fast_ada_layer_norm_backward(dy, x, mean, rstd, scale, need, out):
    """Do a plainly valid call of cnorm.ada_layer_norm_backward, or return None."""
    cdef sample_shape s
    cdef gradient_data g
    cdef cnp.npy_intp sizes[64]
    cdef bint wants_x = False, wants_scale = False, wants_shift = False
    cdef int i, ndim
    if (not take_samples(x, &s) or not take_dy(dy, <cnp.ndarray>x, &g)
            or not take_modulation(scale, <cnp.ndarray>x, &g.weight) or type(need) is not tuple):
        return None
    ndim = cnp.PyArray_NDIM(<cnp.ndarray>x)
    for i in range(ndim):
        sizes[i] = cnp.PyArray_DIM(<cnp.ndarray>x, i) if i < ndim - 1 else 1
    if (not take_statistic(mean, <cnp.ndarray>x, ndim, sizes, &g.mean)
            or not take_statistic(rstd, <cnp.ndarray>x, ndim, sizes, &g.rstd)):
        return None
    for name in <tuple>need:
        if type(name) is not str or name not in ("x", "scale", "shift"):
            return None
        wants_x |= name == "x"
        wants_scale |= name == "scale"
        wants_shift |= name == "shift"
    if out is not None and not wants_x:
        return None
    cdef cnp.ndarray dx = None
    if wants_x:
        dx = take_output(out, <cnp.ndarray>x)
        if dx is None:
            return None
    cdef cnp.ndarray dscale = new_like(wants_scale, <cnp.ndarray>scale)
    cdef cnp.ndarray dshift = new_like(wants_shift, <cnp.ndarray>scale)
    g.dx, g.dweight, g.dbias = data_of(dx), data_of(dscale), data_of(dshift)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef cnorm_status status
    with nogil:
        status = run_ada_layer_norm_backward(wide, g, s)
    return None if status != CNORM_OK else AdaLayerNormGradients(dx, dscale, dshift)


cdef int ada_layer_norm_backward_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
        const floating[::1] rstd, const floating[:, ::1] scale, floating[:, :, ::1] dx, floating[:, ::1] dscale,
        floating[:, ::1] dshift) noexcept nogil:
    cdef sample_shape s = sample_shape(x.shape[0], x.shape[1], x.shape[2])
    cdef Py_ssize_t rows = s.batch * s.rows
    if not (same_shape(x.shape, dy.shape, 3) and (dx is None or same_shape(x.shape, dx.shape, 3))
            and scale.shape[0] == x.shape[0] and scale.shape[1] == x.shape[2] and mean.shape[0] == rows
            and rstd.shape[0] == rows and (dscale is None or same_shape(scale.shape, dscale.shape, 2))
            and (dshift is None or same_shape(scale.shape, dshift.shape, 2))):
        return CNORM_ERROR_VALUE
    cdef gradient_data g = gradient_data(
        NULL, NULL, NULL, <void *>&dy[0, 0, 0], <void *>&x[0, 0, 0], view_data(mean), view_data(rstd),
        <void *>&scale[0, 0])
    if dx is not None:
        g.dx = &dx[0, 0, 0]
    if dscale is not None:
        g.dweight = &dscale[0, 0]
    if dshift is not None:
        g.dbias = &dshift[0, 0]
    return run_ada_layer_norm_backward(floating is double, g, s)
