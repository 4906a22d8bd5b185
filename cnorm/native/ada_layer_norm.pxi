# Adaptive layer norm.

# Rows of samples: x (batch, rows, cols).
cdef struct sample_shape:
    size_t batch
    size_t rows
    size_t cols


cdef cnorm_status run_ada_layer_norm(
        bint wide, void *y, void *mean, void *rstd, const void *x, const void *scale, const void *shift,
        sample_shape s, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_ada_layer_norm_forward_workspace_f64(s.batch, s.rows, s.cols) if wide
                        else cnorm_ada_layer_norm_forward_workspace_f32(s.batch, s.rows, s.cols))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_ada_layer_norm_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <const double *>x, <const double *>scale,
            <const double *>shift, s.batch, s.rows, s.cols, eps, workspace, size)
    else:
        status = cnorm_ada_layer_norm_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <const float *>x, <const float *>scale,
            <const float *>shift, s.batch, s.rows, s.cols, eps, workspace, size)
    drop_workspace(small, workspace)
    return status


def ada_layer_norm(cnp.ndarray x, cnp.ndarray scale, cnp.ndarray shift, double eps, cnp.ndarray y, mean, rstd):
    """Backend protocol: a (batch, rows, cols) array."""
    cdef bint wide = is_double(x)
    cdef sample_shape s = sample_shape(cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, 1), cnp.PyArray_DIM(x, 2))
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *scale_data = cnp.PyArray_DATA(scale)
    cdef void *shift_data = cnp.PyArray_DATA(shift)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_ada_layer_norm(
            wide, y_data, mean_data, rstd_data, x_data, scale_data, shift_data, s, eps)
    raise_status(status)


cdef bint take_samples(object x, sample_shape *s) noexcept:
    """A plain array with a batch axis, rows of values, and rows of any number of axes between."""
    if plain_type(x) < 0 or cnp.PyArray_NDIM(<cnp.ndarray>x) < 2:
        return False
    cdef int ndim = cnp.PyArray_NDIM(<cnp.ndarray>x), i
    s.batch = cnp.PyArray_DIM(<cnp.ndarray>x, 0)
    s.cols = cnp.PyArray_DIM(<cnp.ndarray>x, ndim - 1)
    s.rows = 1
    for i in range(1, ndim - 1):
        s.rows *= <size_t>cnp.PyArray_DIM(<cnp.ndarray>x, i)
    return s.batch * s.rows * s.cols > 0


cdef bint take_modulation(object a, cnp.ndarray x, void **data) noexcept:
    """The memory of a plain (batch, cols) array for x, perhaps with axes of size 1 between the two."""
    if not is_plain(a, cnp.PyArray_TYPE(x)):
        return False
    cdef cnp.ndarray array = <cnp.ndarray>a
    cdef int ndim = cnp.PyArray_NDIM(x), own = cnp.PyArray_NDIM(array), i
    if own != 2 and own != ndim:
        return False
    for i in range(1, own - 1):
        if cnp.PyArray_DIM(array, i) != 1:
            return False
    data[0] = cnp.PyArray_DATA(array)
    return (cnp.PyArray_DIM(array, 0) == cnp.PyArray_DIM(x, 0)
            and cnp.PyArray_DIM(array, own - 1) == cnp.PyArray_DIM(x, ndim - 1))


def fast_ada_layer_norm(x, scale, shift, eps, out, return_stats):
    """Do a plainly valid call of cnorm.ada_layer_norm, or return None."""
    cdef sample_shape s
    cdef double eps_value
    cdef void *scale_data
    cdef void *shift_data
    if (not take_samples(x, &s) or not take_modulation(scale, <cnp.ndarray>x, &scale_data)
            or not take_modulation(shift, <cnp.ndarray>x, &shift_data) or not take_number(eps, &eps_value)):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    if return_stats:
        mean = new_statistics(<cnp.ndarray>x, cnp.PyArray_NDIM(<cnp.ndarray>x) - 1)
        rstd = new_statistics(<cnp.ndarray>x, cnp.PyArray_NDIM(<cnp.ndarray>x) - 1)
    cdef bint wide = is_double(y)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_ada_layer_norm(
            wide, y_data, mean_data, rstd_data, x_data, scale_data, shift_data, s, eps_value)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)


cdef int ada_layer_norm_view(
        const floating[:, :, ::1] x, const floating[:, ::1] scale, const floating[:, ::1] shift, double eps,
        floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil:
    cdef sample_shape s = sample_shape(x.shape[0], x.shape[1], x.shape[2])
    cdef Py_ssize_t rows = s.batch * s.rows
    if not (same_shape(x.shape, y.shape, 3) and scale.shape[0] == x.shape[0] and scale.shape[1] == x.shape[2]
            and same_shape(scale.shape, shift.shape, 2) and is_length(mean, rows) and is_length(rstd, rows)):
        return CNORM_ERROR_VALUE
    return run_ada_layer_norm(
        floating is double, &y[0, 0, 0], view_data(mean), view_data(rstd), &x[0, 0, 0], &scale[0, 0], &shift[0, 0],
        s, eps)
