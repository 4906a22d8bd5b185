# The public C interface, src_c/cnorm.h.

cdef extern from "cnorm.h" nogil:
    ctypedef enum cnorm_status:
        CNORM_OK
        CNORM_ERROR_VALUE
        CNORM_ERROR_WORKSPACE

    ctypedef enum cnorm_layout:
        CNORM_CHANNELS_FIRST
        CNORM_CHANNELS_LAST

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

    cnorm_status cnorm_copy_f32(float *y, const float *x, size_t n, int stream)
    cnorm_status cnorm_copy_f64(double *y, const double *x, size_t n, int stream)

    size_t cnorm_normalize_workspace_f32(size_t outer, size_t length, size_t inner)
    cnorm_status cnorm_normalize_forward_f32(
        float *y, float *norm, const float *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_normalize_backward_f32(
        float *dx, const float *dy, const float *x, size_t outer, size_t length, size_t inner, double p, double eps,
        void *workspace, size_t workspace_size)
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
    size_t cnorm_weight_norm_workspace_f64(size_t outer, size_t channels, size_t inner)
    cnorm_status cnorm_weight_norm_forward_f64(
        double *w, const double *v, const double *g, size_t outer, size_t channels, size_t inner,
        void *workspace, size_t workspace_size)
    cnorm_status cnorm_weight_norm_backward_f64(
        double *dv, double *dg, const double *dw, const double *v, const double *g, size_t outer, size_t channels,
        size_t inner, void *workspace, size_t workspace_size)
