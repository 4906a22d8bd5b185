# The public C interface, src_c/cnorm.h.

cdef extern from "cnorm.h" nogil:
    ctypedef enum cnorm_status:
        CNORM_OK
        CNORM_ERROR_VALUE
        CNORM_ERROR_WORKSPACE

    ctypedef enum cnorm_layout:
        CNORM_CHANNELS_FIRST
        CNORM_CHANNELS_LAST

    ctypedef struct cnorm_strides:
        size_t batch
        size_t channel
        size_t spatial

    const char *cnorm_status_string(cnorm_status status)
    const char *cnorm_version()
    const char *cnorm_compiler()
    int cnorm_has_openmp()
    int cnorm_get_num_threads()
    cnorm_status cnorm_set_num_threads(int threads)
    const char *cnorm_isa_level(int i)
    const char *cnorm_isa()
    cnorm_status cnorm_set_isa(const char *level)

    size_t cnorm_layer_norm_forward_workspace_f32(size_t rows, size_t cols)
    size_t cnorm_layer_norm_forward_workspace_f64(size_t rows, size_t cols)
    cnorm_status cnorm_layer_norm_forward_f32(
        float *y, float *mean, float *rstd, const float *x, const float *weight, const float *bias,
        size_t rows, size_t cols, double eps, void *workspace, size_t workspace_size)
    cnorm_status cnorm_layer_norm_forward_f64(
        double *y, double *mean, double *rstd, const double *x, const double *weight, const double *bias,
        size_t rows, size_t cols, double eps, void *workspace, size_t workspace_size)

    size_t cnorm_rms_norm_forward_workspace_f32(size_t rows, size_t cols)
    size_t cnorm_rms_norm_forward_workspace_f64(size_t rows, size_t cols)
    cnorm_status cnorm_rms_norm_forward_f32(
        float *y, float *rstd, const float *x, const float *weight, const float *bias, size_t rows, size_t cols,
        double eps, double weight_offset, void *workspace, size_t workspace_size)
    cnorm_status cnorm_rms_norm_forward_f64(
        double *y, double *rstd, const double *x, const double *weight, const double *bias, size_t rows, size_t cols,
        double eps, double weight_offset, void *workspace, size_t workspace_size)

    size_t cnorm_group_norm_forward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    size_t cnorm_group_norm_forward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    cnorm_status cnorm_group_norm_forward_f32(
        float *y, float *mean, float *rstd, const float *x, const float *weight, const float *bias,
        size_t batch, size_t channels, size_t spatial, size_t groups, double eps, cnorm_layout layout,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_group_norm_forward_f64(
        double *y, double *mean, double *rstd, const double *x, const double *weight, const double *bias,
        size_t batch, size_t channels, size_t spatial, size_t groups, double eps, cnorm_layout layout,
        void *workspace, size_t workspace_size)

    size_t cnorm_instance_norm_forward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_instance_norm_forward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_instance_norm_forward_f32(
        float *y, float *mean, float *rstd, float *running_mean, float *running_var,
        const float *x, const float *weight, const float *bias, size_t batch, size_t channels, size_t spatial,
        double eps, double momentum, cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_instance_norm_forward_f64(
        double *y, double *mean, double *rstd, double *running_mean, double *running_var,
        const double *x, const double *weight, const double *bias, size_t batch, size_t channels, size_t spatial,
        double eps, double momentum, cnorm_layout layout, void *workspace, size_t workspace_size)

    size_t cnorm_batch_norm_forward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_batch_norm_forward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_batch_norm_forward_f32(
        float *y, float *mean, float *rstd, float *running_mean, float *running_var,
        const float *x, const float *weight, const float *bias, size_t batch, size_t channels, size_t spatial,
        double eps, double momentum, int unbiased, cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_batch_norm_forward_f64(
        double *y, double *mean, double *rstd, double *running_mean, double *running_var,
        const double *x, const double *weight, const double *bias, size_t batch, size_t channels, size_t spatial,
        double eps, double momentum, int unbiased, cnorm_layout layout, void *workspace, size_t workspace_size)

    size_t cnorm_batch_norm_inference_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_batch_norm_inference_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_batch_norm_inference_f32(
        float *y, const float *x, const float *mean, const float *var, const float *weight, const float *bias,
        size_t batch, size_t channels, size_t spatial, double eps, cnorm_layout layout,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_batch_norm_inference_f64(
        double *y, const double *x, const double *mean, const double *var, const double *weight, const double *bias,
        size_t batch, size_t channels, size_t spatial, double eps, cnorm_layout layout,
        void *workspace, size_t workspace_size)

    size_t cnorm_layer_norm_backward_workspace_f32(size_t rows, size_t cols)
    size_t cnorm_layer_norm_backward_workspace_f64(size_t rows, size_t cols)
    cnorm_status cnorm_layer_norm_backward_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *weight, size_t rows, size_t cols, void *workspace, size_t workspace_size)
    cnorm_status cnorm_layer_norm_backward_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *weight, size_t rows, size_t cols, void *workspace, size_t workspace_size)
    size_t cnorm_rms_norm_backward_workspace_f32(size_t rows, size_t cols)
    size_t cnorm_rms_norm_backward_workspace_f64(size_t rows, size_t cols)
    cnorm_status cnorm_rms_norm_backward_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *rstd,
        const float *weight, size_t rows, size_t cols, double weight_offset, void *workspace, size_t workspace_size)
    cnorm_status cnorm_rms_norm_backward_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *rstd,
        const double *weight, size_t rows, size_t cols, double weight_offset, void *workspace, size_t workspace_size)
    size_t cnorm_group_norm_backward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    size_t cnorm_group_norm_backward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    cnorm_status cnorm_group_norm_backward_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *weight, size_t batch, size_t channels, size_t spatial, size_t groups,
        cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_group_norm_backward_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *weight, size_t batch, size_t channels, size_t spatial, size_t groups,
        cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_instance_norm_backward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_instance_norm_backward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_instance_norm_backward_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *weight, size_t batch, size_t channels, size_t spatial, cnorm_layout layout,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_instance_norm_backward_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *weight, size_t batch, size_t channels, size_t spatial, cnorm_layout layout,
        void *workspace, size_t workspace_size)
    size_t cnorm_batch_norm_backward_workspace_f32(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_batch_norm_backward_workspace_f64(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_batch_norm_backward_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *weight, size_t batch, size_t channels, size_t spatial, int training,
        cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_batch_norm_backward_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *weight, size_t batch, size_t channels, size_t spatial, int training,
        cnorm_layout layout, void *workspace, size_t workspace_size)

    size_t cnorm_spectral_norm_forward_workspace_f32(size_t outer, size_t rows, size_t inner)
    cnorm_status cnorm_spectral_norm_forward_f32(
        float *w, double *sigma, float *u, float *v, const float *weight, size_t outer, size_t rows, size_t inner,
        size_t iterations, double eps, void *workspace, size_t workspace_size)
    size_t cnorm_spectral_norm_forward_workspace_f64(size_t outer, size_t rows, size_t inner)
    cnorm_status cnorm_spectral_norm_forward_f64(
        double *w, double *sigma, double *u, double *v, const double *weight, size_t outer, size_t rows, size_t inner,
        size_t iterations, double eps, void *workspace, size_t workspace_size)
    size_t cnorm_spectral_norm_backward_workspace_f32(size_t outer, size_t rows, size_t inner)
    cnorm_status cnorm_spectral_norm_backward_f32(
        float *dweight, const float *dw, const float *weight, const float *u, const float *v, double sigma,
        size_t outer, size_t rows, size_t inner, void *workspace, size_t workspace_size)
    size_t cnorm_spectral_norm_backward_workspace_f64(size_t outer, size_t rows, size_t inner)
    cnorm_status cnorm_spectral_norm_backward_f64(
        double *dweight, const double *dw, const double *weight, const double *u, const double *v, double sigma,
        size_t outer, size_t rows, size_t inner, void *workspace, size_t workspace_size)

    cnorm_status cnorm_copy_f32(float *y, const float *x, size_t n, int stream)
    cnorm_status cnorm_copy_f64(double *y, const double *x, size_t n, int stream)

    size_t cnorm_adain_forward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t style_spatial, cnorm_layout layout,
        cnorm_layout style_layout)
    size_t cnorm_adain_forward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t style_spatial, cnorm_layout layout,
        cnorm_layout style_layout)
    cnorm_status cnorm_adain_forward_f32(
        float *y, float *content_mean, float *content_rstd, float *style_mean, float *style_rstd,
        const float *content, const float *style, size_t batch, size_t channels, size_t spatial,
        size_t style_spatial, double eps, int unbiased, cnorm_layout layout, cnorm_layout style_layout,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_adain_forward_f64(
        double *y, double *content_mean, double *content_rstd, double *style_mean, double *style_rstd,
        const double *content, const double *style, size_t batch, size_t channels, size_t spatial,
        size_t style_spatial, double eps, int unbiased, cnorm_layout layout, cnorm_layout style_layout,
        void *workspace, size_t workspace_size)
    size_t cnorm_adain_backward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t style_spatial, cnorm_layout layout,
        cnorm_layout style_layout)
    size_t cnorm_adain_backward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t style_spatial, cnorm_layout layout,
        cnorm_layout style_layout)
    cnorm_status cnorm_adain_backward_f32(
        float *dcontent, float *dstyle, const float *dy, const float *content, const float *style,
        const float *content_mean, const float *content_rstd, const float *style_rstd, size_t batch,
        size_t channels, size_t spatial, size_t style_spatial, int unbiased, cnorm_layout layout,
        cnorm_layout style_layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_adain_backward_f64(
        double *dcontent, double *dstyle, const double *dy, const double *content, const double *style,
        const double *content_mean, const double *content_rstd, const double *style_rstd, size_t batch,
        size_t channels, size_t spatial, size_t style_spatial, int unbiased, cnorm_layout layout,
        cnorm_layout style_layout, void *workspace, size_t workspace_size)
    size_t cnorm_ada_layer_norm_forward_workspace_f32(size_t batch, size_t rows, size_t cols)
    size_t cnorm_ada_layer_norm_forward_workspace_f64(size_t batch, size_t rows, size_t cols)
    cnorm_status cnorm_ada_layer_norm_forward_f32(
        float *y, float *mean, float *rstd, const float *x, const float *scale, const float *shift,
        size_t batch, size_t rows, size_t cols, double eps, void *workspace, size_t workspace_size)
    cnorm_status cnorm_ada_layer_norm_forward_f64(
        double *y, double *mean, double *rstd, const double *x, const double *scale, const double *shift,
        size_t batch, size_t rows, size_t cols, double eps, void *workspace, size_t workspace_size)
    size_t cnorm_ada_layer_norm_backward_workspace_f32(size_t batch, size_t rows, size_t cols)
    size_t cnorm_ada_layer_norm_backward_workspace_f64(size_t batch, size_t rows, size_t cols)
    cnorm_status cnorm_ada_layer_norm_backward_f32(
        float *dx, float *dscale, float *dshift, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *scale, size_t batch, size_t rows, size_t cols, void *workspace,
        size_t workspace_size)
    cnorm_status cnorm_ada_layer_norm_backward_f64(
        double *dx, double *dscale, double *dshift, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *scale, size_t batch, size_t rows, size_t cols, void *workspace,
        size_t workspace_size)

    size_t cnorm_spade_forward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    size_t cnorm_spade_forward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    cnorm_status cnorm_spade_forward_f32(
        float *y, float *mean, float *rstd, float *running_mean, float *running_var, const float *x, const
        float *gamma, cnorm_strides gamma_strides, const float *beta, cnorm_strides beta_strides, size_t
        batch, size_t channels, size_t spatial, size_t groups, double eps, double gamma_offset, double
        momentum, int unbiased, cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_spade_forward_f64(
        double *y, double *mean, double *rstd, double *running_mean, double *running_var, const double *x,
        const double *gamma, cnorm_strides gamma_strides, const double *beta, cnorm_strides beta_strides,
        size_t batch, size_t channels, size_t spatial, size_t groups, double eps, double gamma_offset, double
        momentum, int unbiased, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_spade_inference_workspace_f32(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    size_t cnorm_spade_inference_workspace_f64(size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_spade_inference_f32(
        float *y, const float *x, const float *mean, const float *var, const float *gamma, cnorm_strides
        gamma_strides, const float *beta, cnorm_strides beta_strides, size_t batch, size_t channels, size_t
        spatial, double eps, double gamma_offset, cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_spade_inference_f64(
        double *y, const double *x, const double *mean, const double *var, const double *gamma, cnorm_strides
        gamma_strides, const double *beta, cnorm_strides beta_strides, size_t batch, size_t channels, size_t
        spatial, double eps, double gamma_offset, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_spade_backward_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    size_t cnorm_spade_backward_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, cnorm_layout layout)
    cnorm_status cnorm_spade_backward_f32(
        float *dx, float *dgamma, float *dbeta, const float *dy, const float *x, const float *mean, const
        float *rstd, const float *gamma, cnorm_strides gamma_strides, size_t batch, size_t channels, size_t
        spatial, size_t groups, double gamma_offset, int training, cnorm_layout layout, void *workspace,
        size_t workspace_size)
    cnorm_status cnorm_spade_backward_f64(
        double *dx, double *dgamma, double *dbeta, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *gamma, cnorm_strides gamma_strides, size_t batch, size_t channels,
        size_t spatial, size_t groups, double gamma_offset, int training, cnorm_layout layout, void
        *workspace, size_t workspace_size)

    size_t cnorm_sync_batch_norm_moments_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_moments_f32(
        double *moments, const float *x, size_t batch, size_t channels, size_t spatial, double eps,
        cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_sync_batch_norm_merge_f32(
        double *merged, float *mean, float *rstd, float *running_mean, float *running_var, const double *counts,
        const double *all, size_t ranks, size_t channels, double eps, double momentum, int unbiased)
    size_t cnorm_sync_batch_norm_apply_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_apply_f32(
        float *y, const float *x, const double *merged, const float *weight, const float *bias, size_t batch,
        size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_sync_batch_norm_backward_sums_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_backward_sums_f32(
        double *sums, const float *dy, const float *x, const float *mean, const float *rstd, size_t batch,
        size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_sync_batch_norm_backward_apply_workspace_f32(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_backward_apply_f32(
        float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean,
        const float *rstd, const float *weight, const double *own, const double *counts, const double *all,
        size_t ranks, size_t batch, size_t channels, size_t spatial, cnorm_layout layout, void *workspace,
        size_t workspace_size)
    size_t cnorm_sync_batch_norm_moments_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_moments_f64(
        double *moments, const double *x, size_t batch, size_t channels, size_t spatial, double eps,
        cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_sync_batch_norm_merge_f64(
        double *merged, double *mean, double *rstd, double *running_mean, double *running_var,
        const double *counts, const double *all, size_t ranks, size_t channels, double eps, double momentum,
        int unbiased)
    size_t cnorm_sync_batch_norm_apply_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_apply_f64(
        double *y, const double *x, const double *merged, const double *weight, const double *bias, size_t batch,
        size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_sync_batch_norm_backward_sums_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_backward_sums_f64(
        double *sums, const double *dy, const double *x, const double *mean, const double *rstd, size_t batch,
        size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_sync_batch_norm_backward_apply_workspace_f64(
        size_t batch, size_t channels, size_t spatial, cnorm_layout layout)
    cnorm_status cnorm_sync_batch_norm_backward_apply_f64(
        double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
        const double *rstd, const double *weight, const double *own, const double *counts, const double *all,
        size_t ranks, size_t batch, size_t channels, size_t spatial, cnorm_layout layout, void *workspace,
        size_t workspace_size)

    size_t cnorm_whiten_covariance_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, int two, cnorm_layout layout)
    size_t cnorm_whiten_covariance_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, int two, cnorm_layout layout)
    cnorm_status cnorm_whiten_covariance_f32(
        double *mean, double *peak, double *covariance, const float *x, const float *other, size_t batch,
        size_t channels, size_t spatial, size_t groups, cnorm_layout layout, void *workspace, size_t workspace_size)
    cnorm_status cnorm_whiten_covariance_f64(
        double *mean, double *peak, double *covariance, const double *x, const double *other, size_t batch,
        size_t channels, size_t spatial, size_t groups, cnorm_layout layout, void *workspace, size_t workspace_size)
    size_t cnorm_whiten_apply_workspace_f32(
        size_t batch, size_t channels, size_t spatial, size_t groups, int two, cnorm_layout layout)
    size_t cnorm_whiten_apply_workspace_f64(
        size_t batch, size_t channels, size_t spatial, size_t groups, int two, cnorm_layout layout)
    cnorm_status cnorm_whiten_apply_f32(
        float *y, const float *x, const double *mean, const double *matrix, const float *other,
        const double *other_mean, const double *other_matrix, size_t batch, size_t channels, size_t spatial,
        size_t groups, cnorm_layout layout,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_whiten_apply_f64(
        double *y, const double *x, const double *mean, const double *matrix, const double *other,
        const double *other_mean, const double *other_matrix, size_t batch, size_t channels, size_t spatial,
        size_t groups, cnorm_layout layout,
        void *workspace, size_t workspace_size)

    size_t cnorm_normalize_workspace_f32(size_t outer, size_t length, size_t inner)
    cnorm_status cnorm_normalize_forward_f32(
        float *y, float *norm, const float *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_normalize_backward_f32(
        float *dx, const float *dy, const float *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_cosine_norm_forward_f32(
        float *y, const float *x_norm, const float *weight_norm, size_t rows, size_t cols, double eps)
    size_t cnorm_weight_norm_workspace_f32(size_t outer, size_t channels, size_t inner)
    cnorm_status cnorm_weight_norm_forward_f32(
        float *w, const float *v, const float *g, size_t outer, size_t channels, size_t inner,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_weight_norm_backward_f32(
        float *dv, float *dg, const float *dw, const float *v, const float *g, size_t outer, size_t channels,
        size_t inner, void *workspace, size_t workspace_size)
    size_t cnorm_normalize_workspace_f64(size_t outer, size_t length, size_t inner)
    cnorm_status cnorm_normalize_forward_f64(
        double *y, double *norm, const double *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_normalize_backward_f64(
        double *dx, const double *dy, const double *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_cosine_norm_forward_f64(
        double *y, const double *x_norm, const double *weight_norm, size_t rows, size_t cols, double eps)
    size_t cnorm_weight_norm_workspace_f64(size_t outer, size_t channels, size_t inner)
    cnorm_status cnorm_weight_norm_forward_f64(
        double *w, const double *v, const double *g, size_t outer, size_t channels, size_t inner,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_weight_norm_backward_f64(
        double *dv, double *dg, const double *dw, const double *v, const double *g, size_t outer, size_t channels,
        size_t inner, void *workspace, size_t workspace_size)
