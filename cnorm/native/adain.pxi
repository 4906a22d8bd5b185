# Adaptive instance norm.

# The memory and the sizes of one call; NULL for statistics that are not wanted.
cdef struct adain_call:
    void *y
    void *content_mean
    void *content_rstd
    void *style_mean
    void *style_rstd
    void *content
    void *style
    channel_shape shape
    channel_shape style_shape


cdef cnorm_status run_adain(bint wide, adain_call c, double eps, bint unbiased) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef channel_shape s = c.shape, t = c.style_shape
    cdef size_t size = (
        cnorm_adain_forward_workspace_f64(s.batch, s.channels, s.spatial, t.spatial, s.layout, t.layout) if wide
        else cnorm_adain_forward_workspace_f32(s.batch, s.channels, s.spatial, t.spatial, s.layout, t.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_adain_forward_f64(
            <double *>c.y, <double *>c.content_mean, <double *>c.content_rstd, <double *>c.style_mean,
            <double *>c.style_rstd, <const double *>c.content, <const double *>c.style, s.batch, s.channels, s.spatial,
            t.spatial, eps, unbiased, s.layout, t.layout, workspace, size)
    else:
        status = cnorm_adain_forward_f32(
            <float *>c.y, <float *>c.content_mean, <float *>c.content_rstd, <float *>c.style_mean,
            <float *>c.style_rstd, <const float *>c.content, <const float *>c.style, s.batch, s.channels, s.spatial,
            t.spatial, eps, unbiased, s.layout, t.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def adain(cnp.ndarray content, cnp.ndarray style, double eps, bint unbiased, bint content_last, bint style_last,
          cnp.ndarray y, content_mean, content_rstd, style_mean, style_rstd):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(content)
    cdef adain_call c
    c.y, c.content, c.style = data_of(y), data_of(content), data_of(style)
    c.content_mean, c.content_rstd = data_of(content_mean), data_of(content_rstd)
    c.style_mean, c.style_rstd = data_of(style_mean), data_of(style_rstd)
    c.shape = shape_of(content, content_last)
    c.style_shape = shape_of(style, style_last)
    cdef cnorm_status status
    with nogil:
        status = run_adain(wide, c, eps, unbiased)
    raise_status(status)


cdef bint take_pair(object content, object style, object axis, channel_shape *s, channel_shape *t) noexcept:
    """Two plain arrays of one type, with values and as many samples and channels."""
    cdef int type_number = plain_type(content)
    return (type_number >= 0 and is_plain(style, type_number) and take_channels(<cnp.ndarray>content, axis, s)
            and take_channels(<cnp.ndarray>style, axis, t) and s.batch == t.batch and s.channels == t.channels
            and s.batch * s.channels * s.spatial > 0 and t.spatial > 0)


def fast_adain(content, style, eps, axis, unbiased, out, return_stats):
    """Do a plainly valid call of cnorm.adain, or return None."""
    cdef adain_call c
    cdef double eps_value
    if (not take_pair(content, style, axis, &c.shape, &c.style_shape) or not take_number(eps, &eps_value)
            or type(unbiased) is not bool):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>content)
    if y is None:
        return None
    cdef cnp.ndarray means = None, rstds = None, style_means = None, style_rstds = None
    cdef cnp.npy_intp batch = c.shape.batch, channels = c.shape.channels
    if return_stats:
        means, rstds = new_pair(batch, channels, y), new_pair(batch, channels, y)
        style_means, style_rstds = new_pair(batch, channels, y), new_pair(batch, channels, y)
    c.y, c.content, c.style = cnp.PyArray_DATA(y), data_of(content), data_of(style)
    c.content_mean, c.content_rstd = data_of(means), data_of(rstds)
    c.style_mean, c.style_rstd = data_of(style_means), data_of(style_rstds)
    cdef bint wide = is_double(y), divide_by_less = unbiased
    cdef cnorm_status status
    with nogil:
        status = run_adain(wide, c, eps_value, divide_by_less)
    if status != CNORM_OK:
        return None
    return y if means is None else (y, means, rstds, style_means, style_rstds)


cdef int adain_view(
        const floating[:, :, ::1] content, const floating[:, :, ::1] style, double eps, bint unbiased,
        bint channels_last, floating[:, :, ::1] y, floating[::1] content_mean, floating[::1] content_rstd,
        floating[::1] style_mean, floating[::1] style_rstd) noexcept nogil:
    cdef adain_call c
    c.shape = view_shape(content.shape, channels_last)
    c.style_shape = view_shape(style.shape, channels_last)
    cdef Py_ssize_t statistics = c.shape.batch * c.shape.channels
    if not (same_shape(content.shape, y.shape, 3) and c.shape.batch == c.style_shape.batch
            and c.shape.channels == c.style_shape.channels
            and is_length(content_mean, statistics) and is_length(content_rstd, statistics)
            and is_length(style_mean, statistics) and is_length(style_rstd, statistics)):
        return CNORM_ERROR_VALUE
    c.y, c.content, c.style = &y[0, 0, 0], <void *>&content[0, 0, 0], <void *>&style[0, 0, 0]
    c.content_mean, c.content_rstd = view_data(content_mean), view_data(content_rstd)
    c.style_mean, c.style_rstd = view_data(style_mean), view_data(style_rstd)
    return run_adain(floating is double, c, eps, unbiased)
