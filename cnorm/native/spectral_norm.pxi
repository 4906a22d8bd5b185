# Spectral norm.

# A plain weight, seen as (outer, rows, inner), and its vectors.
cdef struct spectral_call:
    size_t outer
    size_t rows
    size_t inner
    void *u
    void *v


cdef bint take_spectral_weight(object weight, object u, object v, object dim, spectral_call *c) noexcept:
    cdef int type_number = plain_type(weight), i, axis
    if type_number < 0 or type(dim) is not int or u is None or v is None:
        return False
    cdef cnp.ndarray w = <cnp.ndarray>weight
    cdef int ndim = cnp.PyArray_NDIM(w)
    if not -ndim <= dim < ndim:
        return False
    axis = dim + ndim if dim < 0 else dim
    c.outer = c.inner = 1
    c.rows = cnp.PyArray_DIM(w, axis)
    for i in range(ndim):
        if i < axis:
            c.outer *= <size_t>cnp.PyArray_DIM(w, i)
        elif i > axis:
            c.inner *= <size_t>cnp.PyArray_DIM(w, i)
    return (take_vector(u, type_number, c.rows, &c.u) and take_vector(v, type_number, c.outer * c.inner, &c.v))


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


def fast_spectral_norm(weight, u, v, n_power_iterations, dim, eps, training, out):
    """Do a plainly valid call of cnorm.spectral_norm, or return None."""
    cdef spectral_call c
    cdef double eps_value, sigma = 0
    cdef size_t iterations = 0
    if not take_spectral_weight(weight, u, v, dim, &c) or not take_number(eps, &eps_value):
        return None
    if type(n_power_iterations) is not int or not 1 <= n_power_iterations <= 1 << 30:
        return None
    if training:
        if not (cnp.PyArray_ISWRITEABLE(<cnp.ndarray>u) and cnp.PyArray_ISWRITEABLE(<cnp.ndarray>v)):
            return None
        iterations = n_power_iterations
    cdef cnp.ndarray w = take_output(out, <cnp.ndarray>weight)
    if w is None:
        return None
    cdef bint wide = is_double(w)
    cdef void *weight_data = cnp.PyArray_DATA(<cnp.ndarray>weight)
    cdef void *w_data = cnp.PyArray_DATA(w)
    cdef cnorm_status status
    with nogil:
        status = run_spectral_norm(
            wide, w_data, &sigma, c.u, c.v, weight_data, c.outer, c.rows, c.inner, iterations, eps_value)
    return None if status != CNORM_OK else (w, sigma)


cdef int spectral_norm_view(
        const floating[:, :, ::1] weight, floating[::1] u, floating[::1] v, size_t iterations, double eps,
        floating[:, :, ::1] w, double *sigma) noexcept nogil:
    if not (same_shape(weight.shape, w.shape, 3) and u.shape[0] == weight.shape[1]
            and v.shape[0] == weight.shape[0] * weight.shape[2]):
        return CNORM_ERROR_VALUE
    return run_spectral_norm(
        floating is double, &w[0, 0, 0], sigma, &u[0], &v[0], &weight[0, 0, 0], weight.shape[0], weight.shape[1],
        weight.shape[2], iterations, eps)
