# Vectors divided by their norm.

# (outer, length, inner) of an array, vectors along the middle.
cdef struct vector_shape:
    size_t outer
    size_t length
    size_t inner


cdef inline bint take_vector_axis(cnp.ndarray x, object axis, vector_shape *s) noexcept:
    cdef int ndim = cnp.PyArray_NDIM(x), at, i
    if type(axis) is not int or not -ndim <= axis < ndim:
        return False
    at = axis
    at = at + ndim if at < 0 else at
    s.outer = s.inner = 1
    for i in range(at):
        s.outer *= <size_t>cnp.PyArray_DIM(x, i)
    s.length = cnp.PyArray_DIM(x, at)
    for i in range(at + 1, ndim):
        s.inner *= <size_t>cnp.PyArray_DIM(x, i)
    return s.outer * s.length * s.inner > 0


cdef inline bint take_power(object p, double *value) noexcept:
    """A number above 0, infinity among them."""
    if type(p) is float:
        value[0] = <double>p
    elif type(p) is int and 0 < p < 1000:
        value[0] = <int>p
    else:
        return False
    return value[0] > 0


cdef cnorm_status run_normalize(
        bint wide, void *y, void *norm, const void *x, vector_shape s, double p, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_normalize_workspace_f64(s.outer, s.length, s.inner) if wide
                        else cnorm_normalize_workspace_f32(s.outer, s.length, s.inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_normalize_forward_f64(
            <double *>y, <double *>norm, <const double *>x, s.outer, s.length, s.inner, p, eps, workspace, size)
    else:
        status = cnorm_normalize_forward_f32(
            <float *>y, <float *>norm, <const float *>x, s.outer, s.length, s.inner, p, eps, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef inline vector_shape vector_shape_of(cnp.ndarray x) noexcept:
    """Of an array with three axes."""
    return vector_shape(cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, 1), cnp.PyArray_DIM(x, 2))


def normalize(cnp.ndarray x, double p, double eps, y, norm):
    """Backend protocol: vectors along the middle axis of three; without y the norms alone."""
    cdef bint wide = is_double(x)
    cdef vector_shape s = vector_shape_of(x)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = data_of(y)
    cdef void *norm_data = data_of(norm)
    cdef cnorm_status status
    with nogil:
        status = run_normalize(wide, y_data, norm_data, x_data, s, p, eps)
    raise_status(status)


def fast_normalize(x, p, axis, eps, out):
    """Do a plainly valid call of cnorm.normalize, or return None."""
    cdef vector_shape s
    cdef double p_value, eps_value
    if (plain_type(x) < 0 or not take_vector_axis(<cnp.ndarray>x, axis, &s) or not take_power(p, &p_value)
            or not take_number(eps, &eps_value)):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef cnorm_status status
    with nogil:
        status = run_normalize(wide, y_data, NULL, x_data, s, p_value, eps_value)
    return None if status != CNORM_OK else y


cdef int normalize_view(
        const floating[:, :, ::1] x, double p, double eps, floating[:, :, ::1] y, floating[::1] norm) noexcept nogil:
    if not (same_shape(x.shape, y.shape, 3) and is_length(norm, x.shape[0] * x.shape[2])):
        return CNORM_ERROR_VALUE
    return run_normalize(floating is double, &y[0, 0, 0], view_data(norm), &x[0, 0, 0],
                         vector_shape(x.shape[0], x.shape[1], x.shape[2]), p, eps)
