# Vectors divided by their norm, backward.

from cnorm._gradients import NormalizeGradients


cdef cnorm_status run_normalize_backward(
        bint wide, void *dx, const void *dy, const void *x, vector_shape s, double p, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_normalize_workspace_f64(s.outer, s.length, s.inner) if wide
                        else cnorm_normalize_workspace_f32(s.outer, s.length, s.inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_normalize_backward_f64(
            <double *>dx, <const double *>dy, <const double *>x, s.outer, s.length, s.inner, p, eps, workspace, size)
    else:
        status = cnorm_normalize_backward_f32(
            <float *>dx, <const float *>dy, <const float *>x, s.outer, s.length, s.inner, p, eps, workspace, size)
    drop_workspace(small, workspace)
    return status


def normalize_backward(cnp.ndarray dy, cnp.ndarray x, double p, double eps, cnp.ndarray dx):
    """Backend protocol: vectors along the middle axis of three."""
    cdef bint wide = is_double(x)
    cdef vector_shape s = vector_shape_of(x)
    cdef void *dx_data = cnp.PyArray_DATA(dx)
    cdef void *dy_data = cnp.PyArray_DATA(dy)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef cnorm_status status
    with nogil:
        status = run_normalize_backward(wide, dx_data, dy_data, x_data, s, p, eps)
    raise_status(status)


def fast_normalize_backward(dy, x, p, axis, eps, out):
    """Do a plainly valid call of cnorm.normalize_backward, or return None."""
    cdef vector_shape s
    cdef double p_value, eps_value
    cdef int type_number = plain_type(x)
    if (type_number < 0 or not take_vector_axis(<cnp.ndarray>x, axis, &s) or not take_power(p, &p_value)
            or not take_number(eps, &eps_value) or not is_plain(dy, type_number)
            or not cnp.PyArray_SAMESHAPE(<cnp.ndarray>dy, <cnp.ndarray>x)):
        return None
    cdef cnp.ndarray dx = take_output(out, <cnp.ndarray>x)
    if dx is None:
        return None
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *dx_data = cnp.PyArray_DATA(dx)
    cdef void *dy_data = cnp.PyArray_DATA(<cnp.ndarray>dy)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef cnorm_status status
    with nogil:
        status = run_normalize_backward(wide, dx_data, dy_data, x_data, s, p_value, eps_value)
    return None if status != CNORM_OK else NormalizeGradients(dx)


cdef int normalize_backward_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] x, double p, double eps,
        floating[:, :, ::1] dx) noexcept nogil:
    if not (same_shape(x.shape, dy.shape, 3) and same_shape(x.shape, dx.shape, 3)):
        return CNORM_ERROR_VALUE
    return run_normalize_backward(floating is double, &dx[0, 0, 0], &dy[0, 0, 0], &x[0, 0, 0],
                                  vector_shape(x.shape[0], x.shape[1], x.shape[2]), p, eps)
