# Spectral norm. Its calls on tiny weights cost less than half of the peers' without a fast_<op>.

cdef cnorm_status run_spectral_norm(
        bint wide, void *w, double *sigma, void *u, void *v, const void *weight, size_t outer, size_t rows,
        size_t inner, size_t iterations, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_spectral_norm_forward_workspace_f64(outer, rows, inner) if wide
                        else cnorm_spectral_norm_forward_workspace_f32(outer, rows, inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spectral_norm_forward_f64(
            <double *>w, sigma, <double *>u, <double *>v, <const double *>weight, outer, rows, inner, iterations, eps,
            workspace, size)
    else:
        status = cnorm_spectral_norm_forward_f32(
            <float *>w, sigma, <float *>u, <float *>v, <const float *>weight, outer, rows, inner, iterations, eps,
            workspace, size)
    drop_workspace(small, workspace)
    return status


def spectral_norm(
        cnp.ndarray weight, cnp.ndarray u, cnp.ndarray v, size_t iterations, double eps, cnp.ndarray w):
    """Backend protocol: a weight (outer, rows, inner)."""
    cdef bint wide = is_double(weight)
    cdef size_t outer = cnp.PyArray_DIM(weight, 0), rows = cnp.PyArray_DIM(weight, 1)
    cdef size_t inner = cnp.PyArray_DIM(weight, 2)
    cdef void *weight_data = cnp.PyArray_DATA(weight)
    cdef void *w_data = cnp.PyArray_DATA(w)
    cdef void *u_data = cnp.PyArray_DATA(u)
    cdef void *v_data = cnp.PyArray_DATA(v)
    cdef double sigma = 0
    cdef cnorm_status status
    with nogil:
        status = run_spectral_norm(
            wide, w_data, &sigma, u_data, v_data, weight_data, outer, rows, inner, iterations, eps)
    raise_status(status)
    return sigma


cdef int spectral_norm_view(
        const floating[:, :, ::1] weight, floating[::1] u, floating[::1] v, size_t iterations, double eps,
        floating[:, :, ::1] w, double *sigma) noexcept nogil:
    if not (same_shape(weight.shape, w.shape, 3) and u.shape[0] == weight.shape[1]
            and v.shape[0] == weight.shape[0] * weight.shape[2]):
        return CNORM_ERROR_VALUE
    return run_spectral_norm(
        floating is double, &w[0, 0, 0], sigma, &u[0], &v[0], &weight[0, 0, 0], weight.shape[0], weight.shape[1],
        weight.shape[2], iterations, eps)
