# SPADE, with statistics of its own and with fixed ones.

cdef inline cnorm_strides strides_of(cnp.ndarray a, channel_shape s) noexcept:
    """Of a contiguous 3-D array whose axes are of size 1 where it is broadcast, in the layout of x."""
    cdef bint last = s.layout == CNORM_CHANNELS_LAST
    cdef size_t inner = cnp.PyArray_DIM(a, 2), outer = cnp.PyArray_DIM(a, 1)
    cdef size_t by_outer = 0 if outer == 1 else inner, by_inner = 0 if inner == 1 else 1
    cdef size_t by_sample = 0 if cnp.PyArray_DIM(a, 0) == 1 else outer * inner
    return cnorm_strides(by_sample, by_inner if last else by_outer, by_outer if last else by_inner)


# The memory of gamma and beta.
cdef struct modulation_data:
    void *gamma
    void *beta
    cnorm_strides gamma_strides
    cnorm_strides beta_strides


cdef cnorm_status run_spade(
        bint wide, void *y, void *mean, void *rstd, void *running_mean, void *running_var, const void *x,
        modulation_data m, channel_shape s, size_t groups, double eps, double gamma_offset, double momentum,
        bint unbiased) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_spade_forward_workspace_f64(s.batch, s.channels, s.spatial, groups, s.layout) if wide
                        else cnorm_spade_forward_workspace_f32(s.batch, s.channels, s.spatial, groups, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spade_forward_f64(
            <double *>y, <double *>mean, <double *>rstd, <double *>running_mean, <double *>running_var,
            <const double *>x, <const double *>m.gamma, m.gamma_strides, <const double *>m.beta, m.beta_strides,
            s.batch, s.channels, s.spatial, groups, eps, gamma_offset, momentum, unbiased, s.layout, workspace, size)
    else:
        status = cnorm_spade_forward_f32(
            <float *>y, <float *>mean, <float *>rstd, <float *>running_mean, <float *>running_var,
            <const float *>x, <const float *>m.gamma, m.gamma_strides, <const float *>m.beta, m.beta_strides,
            s.batch, s.channels, s.spatial, groups, eps, gamma_offset, momentum, unbiased, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_spade_inference(
        bint wide, void *y, const void *x, const void *mean, const void *var, modulation_data m, channel_shape s,
        double eps, double gamma_offset) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_spade_inference_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_spade_inference_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_spade_inference_f64(
            <double *>y, <const double *>x, <const double *>mean, <const double *>var, <const double *>m.gamma,
            m.gamma_strides, <const double *>m.beta, m.beta_strides, s.batch, s.channels, s.spatial, eps,
            gamma_offset, s.layout, workspace, size)
    else:
        status = cnorm_spade_inference_f32(
            <float *>y, <const float *>x, <const float *>mean, <const float *>var, <const float *>m.gamma,
            m.gamma_strides, <const float *>m.beta, m.beta_strides, s.batch, s.channels, s.spatial, eps,
            gamma_offset, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def spade(cnp.ndarray x, cnp.ndarray gamma, cnp.ndarray beta, double gamma_offset, size_t num_groups, double eps,
          bint channels_last, cnp.ndarray y, mean, rstd, running_mean, running_var, double momentum, bint unbiased):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef modulation_data m = modulation_data(
        cnp.PyArray_DATA(gamma), cnp.PyArray_DATA(beta), strides_of(gamma, s), strides_of(beta, s))
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef void *rm_data = data_of(running_mean)
    cdef void *rv_data = data_of(running_var)
    cdef cnorm_status status
    with nogil:
        status = run_spade(wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, m, s, num_groups, eps,
                           gamma_offset, momentum, unbiased)
    raise_status(status)


def spade_inference(cnp.ndarray x, cnp.ndarray running_mean, cnp.ndarray running_var, cnp.ndarray gamma,
                    cnp.ndarray beta, double gamma_offset, double eps, bint channels_last, cnp.ndarray y):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef modulation_data m = modulation_data(
        cnp.PyArray_DATA(gamma), cnp.PyArray_DATA(beta), strides_of(gamma, s), strides_of(beta, s))
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = cnp.PyArray_DATA(running_mean)
    cdef void *var_data = cnp.PyArray_DATA(running_var)
    cdef cnorm_status status
    with nogil:
        status = run_spade_inference(wide, y_data, x_data, mean_data, var_data, m, s, eps, gamma_offset)
    raise_status(status)
