# What other Cython code may cimport from cnorm.native._cnorm: the kernels on typed memoryviews, float32 or float64,
# without Python and without the GIL. weight, bias, mean, rstd and, in training, the running statistics may be None.
# Shapes are checked; the functions return 0 or, having written nothing, another of cnorm.h's status codes. This file
# needs no header.

from cython cimport floating

# x, y (rows, cols); weight, bias (cols,); mean, rstd (rows,)
cdef int layer_norm_view(
    const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps,
    floating[:, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil

cdef int rms_norm_view(
    const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps,
    double weight_offset, floating[:, ::1] y, floating[::1] rstd) noexcept nogil

# x, y (batch, channels, spatial) or (batch, spatial, channels); weight, bias, running_mean, running_var (channels,);
# mean, rstd (batch * num_groups,), (batch * channels,) and (channels,)
cdef int group_norm_view(
    const floating[:, :, ::1] x, size_t num_groups, const floating[::1] weight, const floating[::1] bias, double eps,
    bint channels_last, floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil

cdef int instance_norm_view(
    const floating[:, :, ::1] x, floating[::1] running_mean, floating[::1] running_var, const floating[::1] weight,
    const floating[::1] bias, double momentum, double eps, bint channels_last,
    floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil

cdef int batch_norm_training_view(
    const floating[:, :, ::1] x, floating[::1] running_mean, floating[::1] running_var, const floating[::1] weight,
    const floating[::1] bias, double momentum, double eps, bint unbiased, bint channels_last,
    floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil

cdef int batch_norm_inference_view(
    const floating[:, :, ::1] x, const floating[::1] running_mean, const floating[::1] running_var,
    const floating[::1] weight, const floating[::1] bias, double eps, bint channels_last,
    floating[:, :, ::1] y) noexcept nogil

# Backward: dy, x, dx of one shape; mean and rstd as the forward writes them. dx, dweight and dbias (cols,) or
# (channels,) may be None where they are not wanted; dx may be dy.
cdef int layer_norm_backward_view(
    const floating[:, ::1] dy, const floating[:, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    const floating[::1] weight, floating[:, ::1] dx, floating[::1] dweight, floating[::1] dbias) noexcept nogil

cdef int rms_norm_backward_view(
    const floating[:, ::1] dy, const floating[:, ::1] x, const floating[::1] rstd, const floating[::1] weight,
    double weight_offset, floating[:, ::1] dx, floating[::1] dweight, floating[::1] dbias) noexcept nogil

cdef int group_norm_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    size_t groups, const floating[::1] weight, bint channels_last, floating[:, :, ::1] dx, floating[::1] dweight,
    floating[::1] dbias) noexcept nogil

cdef int instance_norm_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    const floating[::1] weight, bint channels_last, floating[:, :, ::1] dx, floating[::1] dweight,
    floating[::1] dbias) noexcept nogil

cdef int batch_norm_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    const floating[::1] weight, bint training, bint channels_last, floating[:, :, ::1] dx, floating[::1] dweight,
    floating[::1] dbias) noexcept nogil

# content, y, dy, dcontent and style, dstyle of two shapes (batch, channels, spatial) or (batch, spatial, channels),
# which differ in spatial alone; statistics (batch * channels,). dcontent and dstyle may be None.
cdef int adain_view(
    const floating[:, :, ::1] content, const floating[:, :, ::1] style, double eps, bint unbiased, bint channels_last,
    floating[:, :, ::1] y, floating[::1] content_mean, floating[::1] content_rstd, floating[::1] style_mean,
    floating[::1] style_rstd) noexcept nogil

cdef int adain_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] content, const floating[:, :, ::1] style,
    const floating[::1] content_mean, const floating[::1] content_rstd, const floating[::1] style_rstd, bint unbiased,
    bint channels_last, floating[:, :, ::1] dcontent, floating[:, :, ::1] dstyle) noexcept nogil

# x, y, dy, dx (batch, rows, cols); scale, shift, dscale, dshift (batch, cols); mean, rstd (batch * rows,)
cdef int ada_layer_norm_view(
    const floating[:, :, ::1] x, const floating[:, ::1] scale, const floating[:, ::1] shift, double eps,
    floating[:, :, ::1] y, floating[::1] mean, floating[::1] rstd) noexcept nogil

cdef int ada_layer_norm_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    const floating[:, ::1] scale, floating[:, :, ::1] dx, floating[:, ::1] dscale,
    floating[:, ::1] dshift) noexcept nogil

# Batch norm over several processes, pass by pass (cnorm.h says what the numbers are): moments and merged (5, channels),
# counts (ranks,), every (ranks, 5, channels) the moments of all ranks; mean, rstd (channels,)
cdef int sync_batch_norm_moments_view(
    const floating[:, :, ::1] x, double eps, bint channels_last, double[:, ::1] moments) noexcept nogil

cdef int sync_batch_norm_merge_view(
    const double[::1] counts, const double[:, :, ::1] every, double eps, double momentum, bint unbiased,
    double[:, ::1] merged, floating[::1] mean, floating[::1] rstd, floating[::1] running_mean,
    floating[::1] running_var) noexcept nogil

cdef int sync_batch_norm_apply_view(
    const floating[:, :, ::1] x, const double[:, ::1] merged, const floating[::1] weight, const floating[::1] bias,
    bint channels_last, floating[:, :, ::1] y) noexcept nogil

# sums and own (8, channels), every (ranks, 8, channels)
cdef int sync_batch_norm_backward_sums_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    bint channels_last, double[:, ::1] sums) noexcept nogil

cdef int sync_batch_norm_backward_apply_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] rstd,
    const floating[::1] weight, const double[:, ::1] own, const double[::1] counts, const double[:, :, ::1] every,
    bint channels_last, floating[:, :, ::1] dx, floating[::1] dweight, floating[::1] dbias) noexcept nogil

# Vectors along the middle axis of x, y, dy, dx (outer, length, inner); norm (outer * inner,) or None
cdef int normalize_view(
    const floating[:, :, ::1] x, double p, double eps, floating[:, :, ::1] y, floating[::1] norm) noexcept nogil

cdef int cosine_norm_view(
    floating[:, ::1] y, const floating[::1] x_norm, const floating[::1] weight_norm, double eps) noexcept nogil

cdef int normalize_backward_view(
    const floating[:, :, ::1] dy, const floating[:, :, ::1] x, double p, double eps,
    floating[:, :, ::1] dx) noexcept nogil

# v, w, dw, dv (outer, channels, inner); g, dg (channels,), dg or None
cdef int weight_norm_view(
    const floating[:, :, ::1] v, const floating[::1] g, floating[:, :, ::1] w) noexcept nogil

cdef int weight_norm_backward_view(
    const floating[:, :, ::1] dw, const floating[:, :, ::1] v, const floating[::1] g, floating[:, :, ::1] dv,
    floating[::1] dg) noexcept nogil

# Weights (outer, rows, inner), u (rows,), v (outer * inner,), which are updated unless iterations is 0.
cdef int spectral_norm_view(
    const floating[:, :, ::1] weight, floating[::1] u, floating[::1] v, size_t iterations, double eps,
    floating[:, :, ::1] w, double *sigma) noexcept nogil

cdef int spectral_norm_backward_view(
    const floating[:, :, ::1] dw, const floating[:, :, ::1] weight, const floating[::1] u, const floating[::1] v,
    double sigma, floating[:, :, ::1] dweight) noexcept nogil
