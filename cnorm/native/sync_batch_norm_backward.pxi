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
