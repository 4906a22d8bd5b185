# RMS norm.

cdef cnorm_status run_rms_norm(
        bint wide, void *y, void *rstd, const void *x, const void *weight, const void *bias,
        size_t rows, size_t cols, double eps, double weight_offset) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_rms_norm_forward_workspace_f64(rows, cols) if wide
                        else cnorm_rms_norm_forward_workspace_f32(rows, cols))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_rms_norm_forward_f64(
            <double *>y, <double *>rstd, <const double *>x, <const double *>weight, <const double *>bias,
            rows, cols, eps, weight_offset, workspace, size)
    else:
        status = cnorm_rms_norm_forward_f32(
            <float *>y, <float *>rstd, <const float *>x, <const float *>weight, <const float *>bias,
            rows, cols, eps, weight_offset, workspace, size)
    drop_workspace(small, workspace)
    return status


def rms_norm(cnp.ndarray x, weight, bias, double eps, double weight_offset, cnp.ndarray y, rstd):
    """Backend protocol: rows of a (rows, cols) array."""
    cdef bint wide = is_double(x)
    cdef size_t rows = cnp.PyArray_DIM(x, 0), cols = cnp.PyArray_DIM(x, 1)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_rms_norm(wide, y_data, rstd_data, x_data, w_data, b_data, rows, cols, eps, weight_offset)
    raise_status(status)


def fast_rms_norm(x, normalized_shape, weight, eps, bias, weight_offset, casting, out, return_stats):
    """Do a plainly valid call of cnorm.rms_norm, or return None."""
    cdef row_call c
    cdef double eps_value, offset
    if (not take_rows(x, normalized_shape, weight, bias, &c) or not take_number(weight_offset, &offset)
            or casting != "once"):
        return None
    cdef bint wide = is_double(<cnp.ndarray>x)
    if eps is None:
        eps_value = DBL_EPSILON if wide else FLT_EPSILON
    elif not take_number(eps, &eps_value):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray rstd = new_statistics(<cnp.ndarray>x, c.lead) if return_stats else None
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_rms_norm(wide, y_data, rstd_data, x_data, c.weight, c.bias, c.rows, c.cols, eps_value, offset)
    if status != CNORM_OK:
        return None
    return y if rstd is None else (y, rstd)


cdef int rms_norm_view(
        const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps,
        double weight_offset, floating[:, ::1] y, floating[::1] rstd) noexcept nogil:
    if not (same_shape(x.shape, y.shape, 2) and is_length(weight, x.shape[1]) and is_length(bias, x.shape[1])
            and is_length(rstd, x.shape[0])):
        return CNORM_ERROR_VALUE
    return run_rms_norm(
        floating is double, &y[0, 0], view_data(rstd), &x[0, 0], view_data(weight), view_data(bias), x.shape[0],
        x.shape[1],
        eps, weight_offset)
