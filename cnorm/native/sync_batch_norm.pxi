# Batch norm over several processes: its three passes.

from cnorm._ranks import exchange, new_message

from cnorm import _ranks

cdef enum:
    MOMENTS_ROWS = 5
    SUMS_ROWS = 8

cdef int FORWARD = _ranks.FORWARD, BACKWARD = _ranks.BACKWARD
cdef int HEADER = _ranks.HEADER, NUMBERS = _ranks.NUMBERS

cdef cnorm_status run_sync_moments(bint wide, void *moments, const void *x, channel_shape s, double eps) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_sync_batch_norm_moments_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_sync_batch_norm_moments_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_moments_f64(
            <double *>moments, <const double *>x, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_moments_f32(
            <double *>moments, <const float *>x, s.batch, s.channels, s.spatial, eps, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


cdef cnorm_status run_sync_apply(
        bint wide, void *y, const void *x, const void *merged, const void *weight, const void *bias,
        channel_shape s) noexcept nogil:
    cdef double small[SMALL_WORKSPACE]
    cdef size_t size = (cnorm_sync_batch_norm_apply_workspace_f64(s.batch, s.channels, s.spatial, s.layout) if wide
                        else cnorm_sync_batch_norm_apply_workspace_f32(s.batch, s.channels, s.spatial, s.layout))
    cdef void *workspace = take_workspace(small, size)
    cdef cnorm_status status
    if wide:
        status = cnorm_sync_batch_norm_apply_f64(
            <double *>y, <const double *>x, <const double *>merged, <const double *>weight, <const double *>bias,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    else:
        status = cnorm_sync_batch_norm_apply_f32(
            <float *>y, <const float *>x, <const double *>merged, <const float *>weight, <const float *>bias,
            s.batch, s.channels, s.spatial, s.layout, workspace, size)
    drop_workspace(small, workspace)
    return status


def sync_batch_norm_moments(cnp.ndarray x, double eps, bint channels_last, cnp.ndarray moments):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *moments_data = cnp.PyArray_DATA(moments)
    cdef cnorm_status status
    with nogil:
        status = run_sync_moments(wide, moments_data, x_data, s, eps)
    raise_status(status)


cdef cnorm_status run_sync_merge(
        bint wide, void *merged, void *mean, void *rstd, void *running_mean, void *running_var, const double *counts,
        const double *moments, size_t ranks, size_t channels, double eps, double momentum,
        bint unbiased) noexcept nogil:
    if wide:
        return cnorm_sync_batch_norm_merge_f64(
            <double *>merged, <double *>mean, <double *>rstd, <double *>running_mean, <double *>running_var, counts,
            moments, ranks, channels, eps, momentum, unbiased)
    return cnorm_sync_batch_norm_merge_f32(
        <double *>merged, <float *>mean, <float *>rstd, <float *>running_mean, <float *>running_var, counts, moments,
        ranks, channels, eps, momentum, unbiased)


def sync_batch_norm_merge(cnp.ndarray counts, cnp.ndarray moments, double eps, cnp.ndarray merged, cnp.ndarray mean,
                          cnp.ndarray rstd, running_mean, running_var, double momentum, bint unbiased):
    """Backend protocol: moments (ranks, 5, channels). Small work: the GIL is kept."""
    raise_status(run_sync_merge(
        is_double(mean), cnp.PyArray_DATA(merged), cnp.PyArray_DATA(mean), cnp.PyArray_DATA(rstd),
        data_of(running_mean), data_of(running_var), <const double *>cnp.PyArray_DATA(counts),
        <const double *>cnp.PyArray_DATA(moments), cnp.PyArray_DIM(moments, 0), cnp.PyArray_DIM(moments, 2), eps,
        momentum, unbiased))


def sync_batch_norm_apply(cnp.ndarray x, cnp.ndarray merged, weight, bias, bint channels_last, cnp.ndarray y):
    """Backend protocol: a (batch, channels, spatial) or (batch, spatial, channels) array."""
    cdef bint wide = is_double(x)
    cdef channel_shape s = shape_of(x, channels_last)
    cdef void *x_data = cnp.PyArray_DATA(x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef void *merged_data = cnp.PyArray_DATA(merged)
    cdef void *w_data = data_of(weight)
    cdef void *b_data = data_of(bias)
    cdef cnorm_status status
    with nogil:
        status = run_sync_apply(wide, y_data, x_data, merged_data, w_data, b_data, s)
    raise_status(status)


cdef struct memory_range:
    const void *data
    size_t size


cdef bint apart(memory_range a, memory_range b) noexcept:
    """Whether two arrays, either of which may be absent, have no byte in common."""
    cdef size_t p = <size_t>a.data
    cdef size_t q = <size_t>b.data
    return p == 0 or q == 0 or p + a.size <= q or q + b.size <= p


cdef bint all_apart(memory_range *ranges, int written, int count) noexcept:
    """Whether each of the first `written` arrays is apart from all others. After an exchange it is too late to ask."""
    cdef int i, j
    for i in range(written):
        for j in range(i + 1, count):
            if not apart(ranges[i], ranges[j]):
                return False
    return True


cdef object own_message(int function, channel_shape s, cnp.ndarray x):
    """The message of a call, or None if its numbers need a second one."""
    cdef size_t rows = MOMENTS_ROWS if function == FORWARD else SUMS_ROWS
    if rows * s.channels > <size_t>NUMBERS:
        return None
    return new_message(function, s.batch * s.spatial, s.channels, cnp.PyArray_ITEMSIZE(x))


cdef double *numbers_of(cnp.ndarray gathered, size_t n) except NULL:
    """The counts of all ranks, and then the n numbers of each, together; to be freed."""
    cdef size_t ranks = cnp.PyArray_DIM(gathered, 0)
    cdef size_t words = cnp.PyArray_DIM(gathered, 1)
    cdef const double *message = <const double *>cnp.PyArray_DATA(gathered)
    cdef double *numbers = <double *>malloc(ranks * (1 + n) * sizeof(double))
    cdef size_t rank
    if numbers == NULL:
        raise MemoryError("no memory for the numbers of all ranks")
    for rank in range(ranks):
        numbers[rank] = message[rank * words]
        memcpy(numbers + ranks + rank * n, message + rank * words + <size_t>HEADER, n * sizeof(double))
    return numbers


def fast_sync_batch_norm(x, running_mean, running_var, weight, bias, momentum, eps, comm, axis, unbiased, out,
                         return_stats):
    """Do a plainly valid call of cnorm.sync_batch_norm in training, or return None before any exchange."""
    cdef channel_call c
    cdef double eps_value, momentum_value
    cdef void *rm_data
    cdef void *rv_data
    if (not take_channel_call(x, axis, weight, bias, &c) or not take_number(eps, &eps_value)
            or not take_number(momentum, &momentum_value) or eps_value < 0
            or not take_running_pair(running_mean, running_var, <cnp.ndarray>x, c.shape.channels, &rm_data, &rv_data)):
        return None
    cdef cnp.ndarray y = take_output(out, <cnp.ndarray>x)
    message = own_message(FORWARD, c.shape, <cnp.ndarray>x)
    if y is None or message is None:
        return None
    cdef bint wide = is_double(<cnp.ndarray>x)
    cdef void *x_data = cnp.PyArray_DATA(<cnp.ndarray>x)
    cdef void *y_data = cnp.PyArray_DATA(y)
    cdef size_t channel_bytes = c.shape.channels * (8 if wide else 4)
    cdef size_t bytes = channel_bytes * c.shape.batch * c.shape.spatial
    cdef memory_range ranges[6]
    ranges[0] = memory_range(y_data, bytes)
    ranges[1] = memory_range(rm_data, channel_bytes)
    ranges[2] = memory_range(rv_data, channel_bytes)
    ranges[3] = memory_range(c.weight, channel_bytes)
    ranges[4] = memory_range(c.bias, channel_bytes)
    ranges[5] = memory_range(x_data, 0 if x_data == y_data else bytes)
    if not all_apart(ranges, 3, 6):
        return None

    cdef cnp.npy_intp channels = c.shape.channels
    cdef cnp.ndarray mean = cnp.PyArray_EMPTY(1, &channels, cnp.PyArray_TYPE(<cnp.ndarray>x), 0)
    cdef cnp.ndarray rstd = cnp.PyArray_EMPTY(1, &channels, cnp.PyArray_TYPE(<cnp.ndarray>x), 0)
    cdef double *own = <double *>cnp.PyArray_DATA(<cnp.ndarray>message) + <size_t>HEADER
    cdef cnorm_status status
    with nogil:
        status = run_sync_moments(wide, own, x_data, c.shape, eps_value)
    raise_status(status)
    cdef cnp.ndarray gathered = exchange(comm, message)
    cdef size_t ranks = cnp.PyArray_DIM(gathered, 0)
    cdef double *numbers = numbers_of(gathered, MOMENTS_ROWS * c.shape.channels)
    cdef bint divided_by_less = bool(unbiased)
    # The own numbers have been sent: what is merged may lie there.
    status = run_sync_merge(wide, own, cnp.PyArray_DATA(mean), cnp.PyArray_DATA(rstd), rm_data, rv_data, numbers,
                            numbers + ranks, ranks, c.shape.channels, eps_value, momentum_value, divided_by_less)
    free(numbers)
    raise_status(status)
    with nogil:
        status = run_sync_apply(wide, y_data, x_data, own, c.weight, c.bias, c.shape)
    raise_status(status)
    return (y, mean, rstd) if return_stats else y


cdef inline bint has_numbers(const Py_ssize_t *shape, Py_ssize_t rows, size_t channels) noexcept nogil:
    """Whether the last two axes of a view of numbers of channels are these."""
    return shape[0] == rows and <size_t>shape[1] == channels


cdef int sync_batch_norm_moments_view(
        const floating[:, :, ::1] x, double eps, bint channels_last, double[:, ::1] moments) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not has_numbers(moments.shape, MOMENTS_ROWS, s.channels):
        return CNORM_ERROR_VALUE
    return run_sync_moments(floating is double, &moments[0, 0], &x[0, 0, 0], s, eps)


cdef int sync_batch_norm_merge_view(
        const double[::1] counts, const double[:, :, ::1] every, double eps, double momentum, bint unbiased,
        double[:, ::1] merged, floating[::1] mean, floating[::1] rstd, floating[::1] running_mean,
        floating[::1] running_var) noexcept nogil:
    cdef Py_ssize_t channels = merged.shape[1]
    if not (has_numbers(merged.shape, MOMENTS_ROWS, channels) and has_numbers(&every.shape[1], MOMENTS_ROWS, channels)
            and counts.shape[0] == every.shape[0] and is_length(mean, channels) and is_length(rstd, channels)
            and is_length(running_mean, channels) and is_length(running_var, channels)):
        return CNORM_ERROR_VALUE
    return run_sync_merge(
        floating is double, &merged[0, 0], view_data(mean), view_data(rstd), view_data(running_mean),
        view_data(running_var), &counts[0], &every[0, 0, 0], counts.shape[0], channels, eps, momentum, unbiased)


cdef int sync_batch_norm_apply_view(
        const floating[:, :, ::1] x, const double[:, ::1] merged, const floating[::1] weight, const floating[::1] bias,
        bint channels_last, floating[:, :, ::1] y) noexcept nogil:
    cdef channel_shape s = view_shape(x.shape, channels_last)
    if not (same_shape(x.shape, y.shape, 3) and has_numbers(merged.shape, MOMENTS_ROWS, s.channels)
            and is_length(weight, s.channels) and is_length(bias, s.channels)):
        return CNORM_ERROR_VALUE
    return run_sync_apply(floating is double, &y[0, 0, 0], &x[0, 0, 0], &merged[0, 0], view_data(weight),
                          view_data(bias), s)
