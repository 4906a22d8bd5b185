# Weight norm, backward.

from cnorm._gradients import WeightNormGradients


cdef cnorm_status run_weight_norm_backward(
        bint wide, void *dv, void *dg, const void *dw, const void *v, const void *g, vector_shape s) noexcept nogil:
    """`s.length` is the number of channels."""
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_weight_norm_workspace_f64(s.outer, s.length, s.inner) if wide
                        else cnorm_weight_norm_workspace_f32(s.outer, s.length, s.inner))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_weight_norm_backward_f64(
            <double *>dv, <double *>dg, <const double *>dw, <const double *>v, <const double *>g,
            s.outer, s.length, s.inner, workspace, size)
    else:
        status = cnorm_weight_norm_backward_f32(
            <float *>dv, <float *>dg, <const float *>dw, <const float *>v, <const float *>g,
            s.outer, s.length, s.inner, workspace, size)
    drop_workspace(small, workspace)
    return status


def weight_norm_backward(cnp.ndarray dw, cnp.ndarray v, cnp.ndarray g, cnp.ndarray dv, cnp.ndarray dg):
    """Backend protocol: channels along the middle axis of three."""
    cdef bint wide = is_double(v)
    cdef vector_shape s = vector_shape_of(v)
    cdef void *dv_data = cnp.PyArray_DATA(dv)
    cdef void *dg_data = cnp.PyArray_DATA(dg)
    cdef void *dw_data = cnp.PyArray_DATA(dw)
    cdef void *v_data = cnp.PyArray_DATA(v)
    cdef void *g_data = cnp.PyArray_DATA(g)
    cdef cnorm_status status
    with nogil:
        status = run_weight_norm_backward(wide, dv_data, dg_data, dw_data, v_data, g_data, s)
    raise_status(status)


def fast_weight_norm_backward(dw, v, g, dim, need):
    """Do a plainly valid call of cnorm.weight_norm_backward, or return None."""
    cdef vector_shape s
    if (need is not None or not take_weight(v, g, dim, &s)
            or not is_plain(dw, cnp.PyArray_TYPE(<cnp.ndarray>v))
            or not cnp.PyArray_SAMESHAPE(<cnp.ndarray>dw, <cnp.ndarray>v)):
        return None
    cdef cnp.ndarray dv = take_output(None, <cnp.ndarray>v)
    cdef cnp.ndarray dg = take_output(None, <cnp.ndarray>g)
    cdef bint wide = is_double(<cnp.ndarray>v)
    cdef void *dv_data = cnp.PyArray_DATA(dv)
    cdef void *dg_data = cnp.PyArray_DATA(dg)
    cdef void *dw_data = cnp.PyArray_DATA(<cnp.ndarray>dw)
    cdef void *v_data = cnp.PyArray_DATA(<cnp.ndarray>v)
    cdef void *g_data = cnp.PyArray_DATA(<cnp.ndarray>g)
    cdef cnorm_status status
    with nogil:
        status = run_weight_norm_backward(wide, dv_data, dg_data, dw_data, v_data, g_data, s)
    return None if status != CNORM_OK else WeightNormGradients(dv, dg)


cdef int weight_norm_backward_view(
        const floating[:, :, ::1] dw, const floating[:, :, ::1] v, const floating[::1] g, floating[:, :, ::1] dv,
        floating[::1] dg) noexcept nogil:
    if not (same_shape(v.shape, dw.shape, 3) and same_shape(v.shape, dv.shape, 3) and g.shape[0] == v.shape[1]
            and is_length(dg, v.shape[1])):
        return CNORM_ERROR_VALUE
    return run_weight_norm_backward(floating is double, &dv[0, 0, 0], view_data(dg), &dw[0, 0, 0], &v[0, 0, 0], &g[0],
                                    vector_shape(v.shape[0], v.shape[1], v.shape[2]))
