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


cdef bint take_spade_modulation(object a, cnp.ndarray x, object axis, channel_shape s, void **data,
                                cnorm_strides *strides) noexcept:
    """A plain array of the type of x that broadcasts against it, along all spatial axes or none of them. Where there is
    one value for many elements, other kernels are asked (_modulation.per_channel)."""
    cdef int ndim = cnp.PyArray_NDIM(x), lead, i
    cdef int at = 1 if axis == 1 else ndim - 1
    cdef bint last = s.layout == CNORM_CHANNELS_LAST
    cdef bint[3] full = [True, True, True]  # batch, channels, spatial
    cdef cnp.npy_intp n
    cdef int kind
    if not is_plain(a, cnp.PyArray_TYPE(x)) or cnp.PyArray_NDIM(<cnp.ndarray>a) > ndim:
        return False
    lead = ndim - cnp.PyArray_NDIM(<cnp.ndarray>a)
    cdef size_t spatial = 1
    for i in range(ndim):
        n = 1 if i < lead else cnp.PyArray_DIM(<cnp.ndarray>a, i - lead)
        kind = 0 if i == 0 else 1 if i == at else 2
        if n != cnp.PyArray_DIM(x, i):
            if n != 1:
                return False
            full[kind] = False
        if kind == 2:
            spatial *= <size_t>n
    if s.spatial > 1 and spatial != s.spatial:
        return False
    data[0] = cnp.PyArray_DATA(<cnp.ndarray>a)
    cdef size_t channels = s.channels if full[1] else 1
    strides.spatial = 0 if s.spatial == 1 else channels if last else 1
    strides.channel = 0 if not full[1] else 1 if last else spatial
    strides.batch = 0 if not full[0] else channels * spatial
    return True


cdef Py_ssize_t take_groups(object norm, object num_groups, size_t channels) noexcept:
    """The groups of a sample by the norm's name, 0 for batch norm, -1 for what is not plain."""
    cdef size_t groups
    if type(norm) is not str:
        return -1
    if norm == "group":
        if type(num_groups) is not int or not 0 < num_groups <= channels:
            return -1
        groups = num_groups
        return groups if channels % groups == 0 else -1
    if num_groups is not None:
        return -1
    return 0 if norm == "batch" else channels if norm == "instance" else 1 if norm == "layer" else -1


cdef int spade_statistics_shape(object norm, Py_ssize_t groups, cnp.ndarray x, channel_shape s,
                                cnp.npy_intp *sizes) noexcept:
    """As the norm's own function returns them; the number of axes."""
    cdef int i
    sizes[0] = s.batch if groups else s.channels
    sizes[1] = groups
    if norm != "layer":
        return 2 if groups else 1
    for i in range(1, cnp.PyArray_NDIM(x)):
        sizes[i] = 1
    return cnp.PyArray_NDIM(x)


def fast_spade(x, gamma, beta, eps, norm, gamma_offset, axis, num_groups, running_mean, running_var, training, momentum,
               unbiased, out, return_stats):
    """Do a plainly valid call of cnorm.spade, or return None."""
    cdef int type_number = plain_type(x)
    cdef channel_shape s
    cdef modulation_data m
    cdef double eps_value, offset, momentum_value
    cdef void *rm_data
    cdef void *rv_data
    if (type_number < 0 or not take_channels(<cnp.ndarray>x, axis, &s) or s.batch * s.channels * s.spatial == 0
            or not take_spade_modulation(gamma, <cnp.ndarray>x, axis, s, &m.gamma, &m.gamma_strides)
            or not take_spade_modulation(beta, <cnp.ndarray>x, axis, s, &m.beta, &m.beta_strides)
            or not take_number(eps, &eps_value) or not take_number(gamma_offset, &offset)
            or not take_number(momentum, &momentum_value)
            or not take_running_pair(running_mean, running_var, <cnp.ndarray>x, s.channels, &rm_data, &rv_data)):
        return None
    cdef Py_ssize_t groups = take_groups(norm, num_groups, s.channels)
    if groups < 0 or (groups and rm_data != NULL) or training is not True:
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    if y is None:
        return None
    cdef cnp.ndarray mean = None, rstd = None
    cdef cnp.npy_intp[64] sizes
    cdef int ndim
    if return_stats:
        ndim = spade_statistics_shape(norm, groups, <cnp.ndarray>x, s, sizes)
        mean = cnp.PyArray_EMPTY(ndim, sizes, type_number, 0)
        rstd = cnp.PyArray_EMPTY(ndim, sizes, type_number, 0)
    cdef bint wide = is_double(<cnp.ndarray>x), biased = not unbiased
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *mean_data = data_of(mean)
    cdef void *rstd_data = data_of(rstd)
    cdef cnorm_status status
    with nogil:
        status = run_spade(wide, y_data, mean_data, rstd_data, rm_data, rv_data, x_data, m, s, groups, eps_value,
                           offset, momentum_value, not biased)
    if status != CNORM_OK:
        return None
    return y if mean is None else (y, mean, rstd)
