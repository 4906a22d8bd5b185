# Spectral norm, backward.

cdef cnorm_status run_spectral_norm_backward(
        bint wide, void *dweight, const void *dw, const void *weight, const void *u, const void *v, double sigma,
        size_t outer, size_t rows, size_t inner) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_spectral_norm_backward_workspace_f64(outer, rows, inner) if wide
                        else cnorm_spectral_norm_backward_workspace_f32(outer, rows, inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spectral_norm_backward_f64(
            <double *>dweight, <const double *>dw, <const double *>weight, <const double *>u, <const double *>v,
            sigma, outer, rows, inner, workspace, size)
    else:
        status = cnorm_spectral_norm_backward_f32(
            <float *>dweight, <const float *>dw, <const float *>weight, <const float *>u, <const float *>v,
            sigma, outer, rows, inner, workspace, size)
    drop_workspace(small, workspace)
    return status


def spectral_norm_backward(
        cnp.ndarray dw, cnp.ndarray weight, cnp.ndarray u, cnp.ndarray v, double sigma, cnp.ndarray dweight):
    """Backend protocol: a weight (outer, rows, inner)."""
    cdef bint wide = is_double(weight)
    cdef size_t outer = cnp.PyArray_DIM(weight, 0), rows = cnp.PyArray_DIM(weight, 1)
    cdef size_t inner = cnp.PyArray_DIM(weight, 2)
    cdef void *dw_data = cnp.PyArray_DATA(dw)
    cdef void *weight_data = cnp.PyArray_DATA(weight)
    cdef void *u_data = cnp.PyArray_DATA(u)
    cdef void *v_data = cnp.PyArray_DATA(v)
    cdef void *dweight_data = cnp.PyArray_DATA(dweight)
    cdef cnorm_status status
    with nogil:
        status = run_spectral_norm_backward(
            wide, dweight_data, dw_data, weight_data, u_data, v_data, sigma, outer, rows, inner)
    raise_status(status)


def fast_spectral_norm_backward(dw, weight, u, v, sigma, dim, out):
    """Do a plainly valid call of cnorm.spectral_norm_backward, or return None."""
    cdef spectral_call c
    cdef double divisor
    if not take_spectral_weight(weight, u, v, dim, &c) or not take_number(sigma, &divisor):
        return None
    if (not is_plain(dw, cnp.PyArray_TYPE(<cnp.ndarray>weight))
            or not cnp.PyArray_SAMESHAPE(<cnp.ndarray>dw, <cnp.ndarray>weight)):
        return None
    cdef cnp.ndarray dweight = take_output(out, <cnp.ndarray>weight)
    if dweight is None:
        return None
    cdef bint wide = is_double(dweight)
    cdef void *dw_data = cnp.PyArray_DATA(<cnp.ndarray>dw)
    cdef void *weight_data = cnp.PyArray_DATA(<cnp.ndarray>weight)
    cdef void *dweight_data = cnp.PyArray_DATA(dweight)
    cdef cnorm_status status
    with nogil:
        status = run_spectral_norm_backward(
            wide, dweight_data, dw_data, weight_data, c.u, c.v, divisor, c.outer, c.rows, c.inner)
    return None if status != CNORM_OK else dweight


cdef int spectral_norm_backward_view(
        const floating[:, :, ::1] dw, const floating[:, :, ::1] weight, const floating[::1] u, const floating[::1] v,
        double sigma, floating[:, :, ::1] dweight) noexcept nogil:
    if not (same_shape(weight.shape, dw.shape, 3) and same_shape(weight.shape, dweight.shape, 3)
            and u.shape[0] == weight.shape[1] and v.shape[0] == weight.shape[0] * weight.shape[2]):
        return CNORM_ERROR_VALUE
    return run_spectral_norm_backward(
        floating is double, &dweight[0, 0, 0], &dw[0, 0, 0], &weight[0, 0, 0], &u[0], &v[0], sigma, weight.shape[0],
        weight.shape[1], weight.shape[2])
