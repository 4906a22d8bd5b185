# Adaptive instance norm, backward.

from cnorm._gradients import AdaINGradients

# The memory and the sizes of one call; NULL for gradients that are not wanted.
cdef struct adain_gradient_call:
    void *dcontent
    void *dstyle
    void *dy
    void *content
    void *style
    void *content_mean
    void *content_rstd
    void *style_rstd
    channel_shape shape
    channel_shape style_shape


cdef cnorm_status run_adain_backward(bint wide, adain_gradient_call c, bint unbiased) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef channel_shape s = c.shape, t = c.style_shape
    cdef size_t size = (
        cnorm_adain_backward_workspace_f64(s.batch, s.channels, s.spatial, t.spatial, s.layout, t.layout) if wide
        else cnorm_adain_backward_workspace_f32(s.batch, s.channels, s.spatial, t.spatial, s.layout, t.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_adain_backward_f64(
            <double *>c.dcontent, <double *>c.dstyle, <const double *>c.dy, <const double *>c.content,
            <const double *>c.style, <const double *>c.content_mean, <const double *>c.content_rstd,
            <const double *>c.style_rstd, s.batch, s.channels, s.spatial, t.spatial, unbiased, s.layout, t.layout,
            workspace, size)
    else:
        status = cnorm_adain_backward_f32(
            <float *>c.dcontent, <float *>c.dstyle, <const float *>c.dy, <const float *>c.content,
            <const float *>c.style, <const float *>c.content_mean, <const float *>c.content_rstd,
            <const float *>c.style_rstd, s.batch, s.channels, s.spatial, t.spatial, unbiased, s.layout, t.layout,
            workspace, size)
    drop_workspace(small, workspace)
    return status


def adain_backward(
        cnp.ndarray dy, cnp.ndarray content, cnp.ndarray style, cnp.ndarray content_mean, cnp.ndarray content_rstd,
        cnp.ndarray style_rstd, bint unbiased, bint content_last, bint style_last, dcontent, dstyle):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(content)
    cdef adain_gradient_call c
    c.dcontent, c.dstyle, c.dy = data_of(dcontent), data_of(dstyle), data_of(dy)
    c.content, c.style = data_of(content), data_of(style)
    c.content_mean, c.content_rstd = data_of(content_mean), data_of(content_rstd)
    c.style_rstd = data_of(style_rstd)
    c.shape = shape_of(content, content_last)
    c.style_shape = shape_of(style, style_last)
    cdef cnorm_status status
    with nogil:
        status = run_adain_backward(wide, c, unbiased)
    raise_status(status)


def fast_adain_backward(dy, content, style, content_mean, content_rstd, style_mean, style_rstd, axis, unbiased, need,
                        out):
    """Do a plainly valid call of cnorm.adain_backward, or return None."""
    cdef adain_gradient_call c
    cdef gradient_data g
    cdef void *style_mean_data
    cdef cnp.npy_intp[2] sizes
    cdef bint wants_content = False, wants_style = False
    if (not take_pair(content, style, axis, &c.shape, &c.style_shape) or not take_dy(dy, <cnp.ndarray>content, &g)
            or type(unbiased) is not bool or type(need) is not tuple):
        return None
    cdef cnp.ndarray like = <cnp.ndarray>content
    sizes[0], sizes[1] = c.shape.batch, c.shape.channels
    if not (take_statistic(content_mean, like, 2, sizes, &c.content_mean)
            and take_statistic(content_rstd, like, 2, sizes, &c.content_rstd)
            and take_statistic(style_mean, like, 2, sizes, &style_mean_data)
            and take_statistic(style_rstd, like, 2, sizes, &c.style_rstd)):
        return None
    for name in <tuple>need:
        if type(name) is not str or name not in ("content", "style"):
            return None
        wants_content |= name == "content"
        wants_style |= name == "style"
    if out is not None and not wants_content:
        return None
    cdef cnp.ndarray dcontent = None, dstyle = None
    if wants_content:
        dcontent = take_output(out, like)
        if dcontent is None:
            return None
    if wants_style:
        dstyle = take_output(None, <cnp.ndarray>style)
    c.dcontent, c.dstyle, c.dy = data_of(dcontent), data_of(dstyle), g.dy
    c.content, c.style = data_of(content), data_of(style)
    cdef bint wide = is_double(like), divide_by_less = unbiased
    cdef cnorm_status status
    with nogil:
        status = run_adain_backward(wide, c, divide_by_less)
    return None if status != CNORM_OK else AdaINGradients(dcontent, dstyle)


cdef int adain_backward_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] content, const floating[:, :, ::1] style,
        const floating[::1] content_mean, const floating[::1] content_rstd, const floating[::1] style_rstd,
        bint unbiased, bint channels_last, floating[:, :, ::1] dcontent, floating[:, :, ::1] dstyle) noexcept nogil:
    cdef adain_gradient_call c
    c.shape = view_shape(content.shape, channels_last)
    c.style_shape = view_shape(style.shape, channels_last)
    cdef Py_ssize_t statistics = c.shape.batch * c.shape.channels
    if not (same_shape(content.shape, dy.shape, 3)
            and (dcontent is None or same_shape(content.shape, dcontent.shape, 3))
            and (dstyle is None or same_shape(style.shape, dstyle.shape, 3))
            and c.shape.batch == c.style_shape.batch and c.shape.channels == c.style_shape.channels
            and content_mean.shape[0] == statistics and content_rstd.shape[0] == statistics
            and style_rstd.shape[0] == statistics):
        return CNORM_ERROR_VALUE
    c.dcontent = c.dstyle = NULL
    if dcontent is not None:
        c.dcontent = &dcontent[0, 0, 0]
    if dstyle is not None:
        c.dstyle = &dstyle[0, 0, 0]
    c.dy, c.content, c.style = <void *>&dy[0, 0, 0], <void *>&content[0, 0, 0], <void *>&style[0, 0, 0]
    c.content_mean, c.content_rstd = view_data(content_mean), view_data(content_rstd)
    c.style_rstd = view_data(style_rstd)
    return run_adain_backward(floating is double, c, unbiased)
