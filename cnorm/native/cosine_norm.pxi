# Cosine norm after the matrix product.

cdef cnorm_status run_cosine_norm(
        bint wide, void *y, const void *x_norm, const void *weight_norm, size_t rows, size_t cols,
        double eps) noexcept nogil:
    if wide:
        return cnorm_cosine_norm_forward_f64(
            <double *>y, <const double *>x_norm, <const double *>weight_norm, rows, cols, eps)
    return cnorm_cosine_norm_forward_f32(
        <float *>y, <const float *>x_norm, <const float *>weight_norm, rows, cols, eps)


def cosine_norm(cnp.ndarray y, cnp.ndarray x_norm, cnp.ndarray weight_norm, double eps):
    """Backend protocol: in place, over a (rows, cols) array of products."""
    cdef bint wide = is_double(y)
    cdef size_t rows = cnp.PyArray_DIM(y, 0), cols = cnp.PyArray_DIM(y, 1)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *x_data = cnp.PyArray_DATA(x_norm)
    cdef void *weight_data = cnp.PyArray_DATA(weight_norm)
    cdef cnorm_status status
    with nogil:
        status = run_cosine_norm(wide, y_data, x_data, weight_data, rows, cols, eps)
    raise_status(status)


cdef int cosine_norm_view(
        floating[:, ::1] y, const floating[::1] x_norm, const floating[::1] weight_norm, double eps) noexcept nogil:
    if not (x_norm.shape[0] == y.shape[0] and weight_norm.shape[0] == y.shape[1]):
        return CNORM_ERROR_VALUE
    return run_cosine_norm(floating is double, &y[0, 0], view_data(x_norm), view_data(weight_norm), y.shape[0],
                           y.shape[1], eps)
