# Weight norm.

cdef cnorm_status run_weight_norm(bint wide, void *w, const void *v, const void *g, vector_shape s) noexcept nogil:
    """`s.length` is the number of channels."""
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_weight_norm_workspace_f64(s.outer, s.length, s.inner) if wide
                        else cnorm_weight_norm_workspace_f32(s.outer, s.length, s.inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_weight_norm_forward_f64(
            <double *>w, <const double *>v, <const double *>g, s.outer, s.length, s.inner, workspace, size)
    else:
        status = cnorm_weight_norm_forward_f32(
            <float *>w, <const float *>v, <const float *>g, s.outer, s.length, s.inner, workspace, size)
    drop_workspace(small, workspace)
    return status


def weight_norm(cnp.ndarray v, cnp.ndarray g, cnp.ndarray w):
    """Backend protocol: channels along the middle axis of three."""
    cdef bint wide = is_double(v)
    cdef vector_shape s = vector_shape_of(v)
    cdef void *w_data = cnp.PyArray_DATA(w)
    cdef void *v_data = cnp.PyArray_DATA(v)
    cdef void *g_data = cnp.PyArray_DATA(g)
    cdef cnorm_status status
    with nogil:
        status = run_weight_norm(wide, w_data, v_data, g_data, s)
    raise_status(status)


cdef bint take_weight(object v, object g, object dim, vector_shape *s) noexcept:
    """A plain weight, and its plain g: of size 1 on every axis but `dim`, or without `dim` a single number."""
    cdef int type_number = plain_type(v), ndim, at, i
    if type_number < 0 or not is_plain(g, type_number):
        return False
    ndim = cnp.PyArray_NDIM(<cnp.ndarray>v)
    if dim is None:
        s.outer = s.length = 1
        s.inner = cnp.PyArray_SIZE(<cnp.ndarray>v)
        return s.inner > 0 and cnp.PyArray_NDIM(<cnp.ndarray>g) == 0
    if not take_vector_axis(<cnp.ndarray>v, dim, s) or cnp.PyArray_NDIM(<cnp.ndarray>g) != ndim:
        return False
    at = dim
    at = at + ndim if at < 0 else at
    for i in range(ndim):
        if cnp.PyArray_DIM(<cnp.ndarray>g, i) != (cnp.PyArray_DIM(<cnp.ndarray>v, i) if i == at else 1):
            return False
    return True


def fast_weight_norm(v, g, dim, out):
    """Do a plainly valid call of cnorm.weight_norm, or return None."""
    cdef vector_shape s
    if not take_weight(v, g, dim, &s):
        return None
    cdef cnp.ndarray w = take_output(out, <cnp.ndarray>v)
    if w is None:
        return None
    cdef bint wide = is_double(<cnp.ndarray>v)
    cdef void *w_data = cnp.PyArray_DATA(w)
    cdef void *v_data = cnp.PyArray_DATA(<cnp.ndarray>v)
    cdef void *g_data = cnp.PyArray_DATA(<cnp.ndarray>g)
    cdef cnorm_status status
    with nogil:
        status = run_weight_norm(wide, w_data, v_data, g_data, s)
    return None if status != CNORM_OK else w


cdef int weight_norm_view(
        const floating[:, :, ::1] v, const floating[::1] g, floating[:, :, ::1] w) noexcept nogil:
    if not (same_shape(v.shape, w.shape, 3) and g.shape[0] == v.shape[1]):
        return CNORM_ERROR_VALUE
    return run_weight_norm(floating is double, &w[0, 0, 0], &v[0, 0, 0], &g[0],
                           vector_shape(v.shape[0], v.shape[1], v.shape[2]))
