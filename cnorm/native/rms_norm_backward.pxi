# RMS norm, backward.

cdef cnorm_status run_rms_norm_backward(
        bint wide, gradient_data g, size_t rows, size_t cols, double weight_offset) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_rms_norm_backward_workspace_f64(rows, cols) if wide
                        else cnorm_rms_norm_backward_workspace_f32(rows, cols))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_rms_norm_backward_f64(
            <double *>g.dx, <double *>g.dweight, <double *>g.dbias, <const double *>g.dy, <const double *>g.x,
            <const double *>g.rstd, <const double *>g.weight, rows, cols, weight_offset, workspace, size)
    else:
        status = cnorm_rms_norm_backward_f32(
            <float *>g.dx, <float *>g.dweight, <float *>g.dbias, <const float *>g.dy, <const float *>g.x,
            <const float *>g.rstd, <const float *>g.weight, rows, cols, weight_offset, workspace, size)
    drop_workspace(small, workspace)
    return status


def rms_norm_backward(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray rstd, weight, double weight_offset, dx, dweight, dbias):
    """Backend protocol: rows of a (rows, cols) array."""
    cdef bint wide = is_double(x)
    cdef size_t rows = cnp.PyArray_DIM(x, 0), cols = cnp.PyArray_DIM(x, 1)
    cdef gradient_data g = gradient_data_of(dy, x, None, rstd, weight, dx, dweight, dbias)
    cdef cnorm_status status
    with nogil:
        status = run_rms_norm_backward(wide, g, rows, cols, weight_offset)
    raise_status(status)


def fast_rms_norm_backward(dy, x, rstd, weight, normalized_shape, weight_offset, need, out):
    """Do a plainly valid call of cnorm.rms_norm_backward, or return None."""
    cdef row_call c
    cdef gradient_data g
    cdef wanted_gradients wanted
    cdef cnp.npy_intp sizes[64]
    cdef int i, ndim
    cdef double offset
    if (not take_rows(x, normalized_shape, weight, None, &c) or not take_dy(dy, <cnp.ndarray>x, &g)
            or not take_need(need, weight, out, &wanted) or not take_number(weight_offset, &offset)):
        return None
    ndim = cnp.PyArray_NDIM(<cnp.ndarray>x)
    for i in range(ndim):
        sizes[i] = cnp.PyArray_DIM(<cnp.ndarray>x, i) if i < c.lead else 1
    g.mean = NULL
    if not take_statistic(rstd, <cnp.ndarray>x, ndim, sizes, &g.rstd):
        return None
    cdef cnp.ndarray dx = None
    if wanted.x:
        dx = take_output(out, <cnp.ndarray>x)
        if dx is None:
            return None
    cdef cnp.npy_intp *row = cnp.PyArray_DIMS(<cnp.ndarray>x) + c.lead
    cdef cnp.ndarray dweight = new_parameter(wanted.weight, <cnp.ndarray>x, ndim - c.lead, row)
    cdef cnp.ndarray dbias = new_parameter(wanted.bias, <cnp.ndarray>x, ndim - c.lead, row)
    g.dx, g.dweight, g.dbias, g.weight = data_of(dx), data_of(dweight), data_of(dbias), c.weight
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef cnorm_status status
    with nogil:
        status = run_rms_norm_backward(wide, g, c.rows, c.cols, offset)
    return None if status != CNORM_OK else Gradients(dx, dweight, dbias)


cdef int rms_norm_backward_view(
        const floating[:, ::1] dy, const floating[:, ::1] x, const floating[::1] rstd,
        const floating[::1] weight, double weight_offset, floating[:, ::1] dx, floating[::1] dweight,
        floating[::1] dbias) noexcept nogil:
    if not (same_shape(x.shape, dy.shape, 2) and (dx is None or same_shape(x.shape, dx.shape, 2))
            and rstd.shape[0] == x.shape[0] and is_length(weight, x.shape[1])
            and is_length(dweight, x.shape[1]) and is_length(dbias, x.shape[1])):
        return CNORM_ERROR_VALUE
    cdef void *dx_data = NULL
    if dx is not None:
        dx_data = &dx[0, 0]
    return run_rms_norm_backward(
        floating is double,
        gradient_data(dx_data, view_data(dweight), view_data(dbias), <void *>&dy[0, 0],
                      <void *>&x[0, 0], NULL, view_data(rstd), view_data(weight)),
        x.shape[0], x.shape[1], weight_offset)
