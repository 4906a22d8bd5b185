# Batch norm over several processes, backward: its two passes.

# What the processes have exchanged.
cdef struct exchanged_sums:
    const double *own
    const double *counts
    const double *all
    size_t ranks


cdef cnorm_status run_sync_sums(bint wide, void *sums, gradient_data g, channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_sync_batch_norm_backward_sums_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
        else cnorm_sync_batch_norm_backward_sums_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_backward_sums_f64(
            <double *>sums, <const double *>g.dy, <const double *>g.x, <const double *>g.mean, <const double *>g.rstd,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_backward_sums_f32(
            <double *>sums, <const float *>g.dy, <const float *>g.x, <const float *>g.mean, <const float *>g.rstd,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_sync_gradient(bint wide, gradient_data g, exchanged_sums e, channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (
        cnorm_sync_batch_norm_backward_apply_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
        else cnorm_sync_batch_norm_backward_apply_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_backward_apply_f64(
            <double *>g.dx, <double *>g.dweight, <double *>g.dbias, <const double *>g.dy, <const double *>g.x,
            <const double *>g.mean, <const double *>g.rstd, <const double *>g.weight, e.own, e.counts, e.all, e.ranks,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_backward_apply_f32(
            <float *>g.dx, <float *>g.dweight, <float *>g.dbias, <const float *>g.dy, <const float *>g.x,
            <const float *>g.mean, <const float *>g.rstd, <const float *>g.weight, e.own, e.counts, e.all, e.ranks,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def sync_batch_norm_backward_sums(cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd,
                                  bint channels_last, cnp.ndarray sums):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, None, None, None, None)
    cdef void *sums_data = cnp.PyArray_DATA(sums)
    cdef cnorm_status status
    with nogil:
        status = run_sync_sums(wide, sums_data, g, s)
    raise_status(status)


def sync_batch_norm_backward_apply(
        cnp.ndarray dy, cnp.ndarray x, cnp.ndarray mean, cnp.ndarray rstd, weight, cnp.ndarray own, cnp.ndarray counts,
        cnp.ndarray sums, bint channels_last, dx, dweight, dbias):
    """Backend protocol: (batch, channels, spatial) or (batch, spatial, channels) arrays; sums (ranks, 8, channels)."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef gradient_data g = gradient_data_of(dy, x, mean, rstd, weight, dx, dweight, dbias)
    cdef exchanged_sums e = exchanged_sums(
        <const double *>cnp.PyArray_DATA(own), <const double *>cnp.PyArray_DATA(counts),
        <const double *>cnp.PyArray_DATA(sums), cnp.PyArray_DIM(sums, 0))
    cdef cnorm_status status
    with nogil:
        status = run_sync_gradient(wide, g, e, s)
    raise_status(status)


def fast_sync_batch_norm_backward(dy, x, mean, rstd, weight, comm, axis, need, out):
    """Do a plainly valid call of cnorm.sync_batch_norm_backward in training, or return None before any exchange."""
    cdef channel_gradient_call c
    if not take_channel_gradient(dy, x, mean, rstd, weight, axis, need, out, 1, 0, &c):
        return None
    message = own_message(BACKWARD, c.shape, <cnp.ndarray>x)
    if message is None:
        return None
    cdef cnp.ndarray dx = None
    if c.wanted.x:
        dx = take_output(out, <cnp.ndarray>x)
        if dx is None:
            return None
    cdef cnp.npy_intp channels = c.shape.channels
    cdef cnp.ndarray dweight = new_parameter(c.wanted.weight, <cnp.ndarray>x, 1, &channels)
    cdef cnp.ndarray dbias = new_parameter(c.wanted.bias, <cnp.ndarray>x, 1, &channels)
    c.data.dx, c.data.dweight, c.data.dbias = data_of(dx), data_of(dweight), data_of(dbias)
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef size_t channel_bytes = c.shape.channels * (8 if wide else 4)
    cdef size_t bytes = channel_bytes * c.shape.batch * c.shape.spatial
    cdef memory_range ranges[6]
    ranges[0] = memory_range(c.data.dx, bytes)
    ranges[1] = memory_range(c.data.dy, 0 if c.data.dy == c.data.dx else bytes)
    ranges[2] = memory_range(c.data.x, bytes)
    ranges[3] = memory_range(c.data.mean, channel_bytes)
    ranges[4] = memory_range(c.data.rstd, channel_bytes)
    ranges[5] = memory_range(c.data.weight, channel_bytes)
    if not all_apart(ranges, 1, 6):
        return None

    cdef double *own = <double *>cnp.PyArray_DATA(<cnp.ndarray>message) + <size_t>HEADER
    cdef cnorm_status status
    with nogil:
        status = run_sync_sums(wide, own, c.data, c.shape)
    raise_status(status)
    cdef cnp.ndarray gathered = exchange(comm, message)
    cdef double *numbers = numbers_of(gathered, SUMS_ROWS * c.shape.channels)
    cdef size_t ranks = cnp.PyArray_DIM(gathered, 0)
    cdef exchanged_sums e = exchanged_sums(own, numbers, numbers + ranks, ranks)
    with nogil:
        status = run_sync_gradient(wide, c.data, e, c.shape)
    free(numbers)
    raise_status(status)
    return Gradients(dx, dweight, dbias)


cdef int sync_batch_norm_backward_sums_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
        const floating[::1] rstd, bint channels_last, double[:, ::1] sums) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    cdef Py_ssize_t channels = s.channels
    if not (same_shape(x.shape, dy.shape, 3) and mean.shape[0] == channels and rstd.shape[0] == channels
            and has_numbers(sums.shape, SUMS_ROWS, channels)):
        return CNORM_ERROR_VALUE
    return run_sync_sums(
        floating is double, &sums[0, 0],
        gradient_data(NULL, NULL, NULL, <void *>&dy[0, 0, 0], <void *>&x[0, 0, 0], view_data(mean), view_data(rstd),
                      NULL), s)


cdef int sync_batch_norm_backward_apply_view(
        const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
        const floating[::1] rstd, const floating[::1] weight, const double[:, ::1] own, const double[::1] counts,
        const double[:, :, ::1] every, bint channels_last, floating[:, :, ::1] dx, floating[::1] dweight,
        floating[::1] dbias) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    cdef Py_ssize_t channels = s.channels
    if not (same_shape(x.shape, dy.shape, 3) and (dx is None or same_shape(x.shape, dx.shape, 3))
            and mean.shape[0] == channels and rstd.shape[0] == channels and is_length(weight, channels)
            and has_numbers(own.shape, SUMS_ROWS, channels) and has_numbers(&every.shape[1], SUMS_ROWS, channels)
            and counts.shape[0] == every.shape[0] and is_length(dweight, channels) and is_length(dbias, channels)):
        return CNORM_ERROR_VALUE
    cdef void *dx_data = NULL
    if dx is not None:
        dx_data = &dx[0, 0, 0]
    return run_sync_gradient(
        floating is double,
        gradient_data(dx_data, view_data(dweight), view_data(dbias), <void *>&dy[0, 0, 0], <void *>&x[0, 0, 0],
                      view_data(mean), view_data(rstd), view_data(weight)),
        exchanged_sums(&own[0, 0], &counts[0], &every[0, 0, 0], counts.shape[0]), s)
