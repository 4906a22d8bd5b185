# Layer norm.

cdef cnorm_status run_layer_norm(
        bint wide, void *y, void *mean, void *rstd, const void *x, const void *weight, const void *bias,
        size_t rows, size_t cols, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_layer_norm_forward_workspace_f64(rows, cols) if wide
                        else cnorm_layer_norm_forward_workspace_f32(rows, cols))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_layer_norm_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <const double *>x, <const double *>weight,
            <const double *>bias, rows, cols, eps, workspace, size)
    else:
        status = cnorm_layer_norm_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <const float *>x, <const float *>weight,
            <const float *>bias, rows, cols, eps, workspace, size)
    drop_workspace(small, workspace)
    return status


def layer_norm(cnp.ndarray x, weight, bias, double eps, cnp.ndarray y, mean, rstd):
    """Backend protocol: rows of a (rows, cols) array."""
    cdef bint wide = is_double(x)
    cdef size_t rows = cnp.PyArray_DIM(x, 0), cols = cnp.PyArray_DIM(x, 1)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_layer_norm(wide, y_data, mean_data, rstd_data, x_data, w_data, b_data, rows, cols, eps)
    raise_status(status)


cdef int row_axes(cnp.ndarray x, object normalized_shape, object weight) noexcept:
    """How many trailing axes make a row, or -1 where that takes a closer look."""
    if normalized_shape is None:
        if weight is None:
            return 1
        return cnp.PyArray_NDIM(<cnp.ndarray>weight) if cnp.PyArray_CheckExact(weight) else -1
    if type(normalized_shape) is int:
        return 1 if normalized_shape == cnp.PyArray_DIM(x, cnp.PyArray_NDIM(x) - 1) else -1
    if type(normalized_shape) is not tuple:
        return -1
    cdef tuple shape = <tuple>normalized_shape
    cdef int k = <int>len(shape), lead = cnp.PyArray_NDIM(x) - k, i
    for i in range(k):
        if lead < 0 or type(shape[i]) is not int or shape[i] != cnp.PyArray_DIM(x, lead + i):
            return -1
    return k


cdef bint take_row_parameter(object a, cnp.ndarray x, int lead, void **data) noexcept:
    """As take_vector, for a parameter of the shape that x has after its first `lead` axes."""
    cdef int i
    data[0] = NULL
    if a is None:
        return True
    if not is_plain(a, cnp.PyArray_TYPE(x)) or cnp.PyArray_NDIM(<cnp.ndarray>a) != cnp.PyArray_NDIM(x) - lead:
        return False
    for i in range(cnp.PyArray_NDIM(<cnp.ndarray>a)):
        if cnp.PyArray_DIM(<cnp.ndarray>a, i) != cnp.PyArray_DIM(x, lead + i):
            return False
    data[0] = cnp.PyArray_DATA(<cnp.ndarray>a)
    return True


# The rows of a plain array and their parameters.
cdef struct row_call:
    int lead
    size_t rows
    size_t cols
    void *weight
    void *bias


cdef bint take_rows(object x, object normalized_shape, object weight, object bias, row_call *c) noexcept:
    if plain_type(x) < 0 or cnp.PyArray_NDIM(<cnp.ndarray>x) < 1:
        return False
    cdef cnp.ndarray array = <cnp.ndarray>x
    cdef int k = row_axes(array, normalized_shape, weight), i
    c.lead = cnp.PyArray_NDIM(array) - k
    if k < 1 or c.lead < 0:
        return False
    c.rows = c.cols = 1
    for i in range(cnp.PyArray_NDIM(array)):
        if i < c.lead:
            c.rows *= <size_t>cnp.PyArray_DIM(array, i)
        else:
            c.cols *= <size_t>cnp.PyArray_DIM(array, i)
    return (c.rows > 0 and c.cols > 0 and take_row_parameter(weight, array, c.lead, &c.weight)
            and take_row_parameter(bias, array, c.lead, &c.bias))


def fast_layer_norm(x, normalized_shape, weight, bias, eps, out, return_stats):
    """Do a plainly valid call of cnorm.layer_norm, or return None."""
    cdef row_call c
    cdef double eps_value
    if not take_rows(x, normalized_shape, weight, bias, &c) or not take_number(eps, &eps_value):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    if return_stats:
        mean = new_statistics(<cnp.ndarray>x, c.lead)
        rstd = new_statistics(<cnp.ndarray>x, c.lead)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_layer_norm(
            wide, y_data, mean_data, rstd_data, x_data, c.weight, c.bias, c.rows, c.cols, eps_value)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)


cdef int layer_norm_view(
        const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps, floating[:, ::1] y,
        floating[::1] mean, floating[::1] rstd) noexcept nogil:
    if not (same_shape(x.shape, y.shape, 2) and is_length(weight, x.shape[1]) and is_length(bias, x.shape[1])
            and is_length(mean, x.shape[0]) and is_length(rstd, x.shape[0])):
        return CNORM_ERROR_VALUE
    return run_layer_norm(
        floating is double, &y[0, 0], view_data(mean), view_data(rstd), &x[0, 0], view_data(weight), view_data(bias),
        x.shape[0], x.shape[1], eps)
