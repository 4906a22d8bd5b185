/* The table of kernels of one dtype: what the public functions call through, one constant per ISA level. */
#ifndef CN_TABLE_H
#define CN_TABLE_H

#include "cnorm.h"
#include "dtype.h"
#include "parallel.h"

#define CN_TABLE CN_DTYPE_NAME(cn_table, CN_REAL)

typedef struct CN_TABLE {
    size_t (*layer_norm_workspace)(size_t rows, size_t cols);
    void (*layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                               size_t rows, size_t cols, double eps, cn_work work, void *workspace);
    size_t (*layer_norm_backward_workspace)(size_t rows, size_t cols);
    void (*layer_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                                const real *rstd, const real *weight, size_t rows, size_t cols, cn_work work,
                                void *workspace);
    size_t (*rms_norm_workspace)(size_t rows, size_t cols);
    void (*rms_norm_forward)(real *y, real *rstd, const real *x, const real *weight, const real *bias, size_t rows,
                             size_t cols, double eps, double weight_offset, cn_work work, void *workspace);
    size_t (*rms_norm_backward_workspace)(size_t rows, size_t cols);
    void (*rms_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *rstd,
                              const real *weight, size_t rows, size_t cols, double weight_offset, cn_work work,
                              void *workspace);
    size_t (*group_norm_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
    void (*group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                               size_t batch, size_t channels, size_t spatial, size_t groups, double eps, bool last,
                               cn_work work, void *workspace);
    size_t (*group_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
    void (*group_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                                const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                                size_t groups, bool last, cn_work work, void *workspace);
    size_t (*instance_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                                  const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                                  double eps, double momentum, bool last, cn_work work, void *workspace);
    size_t (*instance_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*instance_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                   const real *mean, const real *rstd, const real *weight, size_t batch,
                                   size_t channels, size_t spatial, bool last, cn_work work, void *workspace);
    size_t (*batch_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*batch_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                               const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                               double eps, double momentum, bool unbiased, bool last, cn_work work, void *workspace);
    size_t (*batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                                 const real *bias, size_t batch, size_t channels, size_t spatial, double eps, bool last,
                                 cn_work work, void *workspace);
    size_t (*batch_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*batch_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                                const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                                bool training, bool last, cn_work work, void *workspace);
    void (*copy)(real *y, const real *x, size_t n, cn_work work);
    size_t (*adain_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                              bool style_last);
    void (*adain_forward)(real *y, real *content_mean, real *content_rstd, real *style_mean, real *style_rstd,
                          const real *content, const real *style, size_t batch, size_t channels, size_t spatial,
                          size_t style_spatial, double eps, bool unbiased, bool last, bool style_last, cn_work work,
                          void *workspace);
    size_t (*adain_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                                       bool style_last);
    void (*adain_backward)(real *dcontent, real *dstyle, const real *dy, const real *content, const real *style,
                           const real *content_mean, const real *content_rstd, const real *style_rstd, size_t batch,
                           size_t channels, size_t spatial, size_t style_spatial, bool unbiased, bool last,
                           bool style_last, cn_work work, void *workspace);
    size_t (*ada_layer_norm_workspace)(size_t batch, size_t rows, size_t cols);
    void (*ada_layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *scale, const real *shift,
                                   size_t batch, size_t rows, size_t cols, double eps, cn_work work, void *workspace);
    size_t (*ada_layer_norm_backward_workspace)(size_t batch, size_t rows, size_t cols);
    void (*ada_layer_norm_backward)(real *dx, real *dscale, real *dshift, const real *dy, const real *x,
                                    const real *mean, const real *rstd, const real *scale, size_t batch, size_t rows,
                                    size_t cols, cn_work work, void *workspace);
    size_t (*spade_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
    void (*spade_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                          const real *gamma, cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides,
                          size_t batch, size_t channels, size_t spatial, size_t groups, double eps, double gamma_offset,
                          double momentum, bool unbiased, bool last, cn_work work, void *workspace);
    size_t (*spade_inference_workspace)(size_t channels);
    void (*spade_inference)(real *y, const real *x, const real *mean, const real *var, const real *gamma,
                            cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides, size_t batch,
                            size_t channels, size_t spatial, double eps, double gamma_offset, bool last, cn_work work,
                            void *workspace);
    size_t (*spade_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
    void (*spade_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *mean,
                           const real *rstd, const real *gamma, cnorm_strides strides, size_t batch, size_t channels,
                           size_t spatial, size_t groups, double gamma_offset, bool last, cn_work work,
                           void *workspace);
    void (*spade_inference_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x,
                                     const real *mean, const real *rstd, const real *gamma, cnorm_strides strides,
                                     size_t batch, size_t channels, size_t spatial, double gamma_offset, bool last,
                                     cn_work work);
    size_t (*sync_batch_norm_moments_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*sync_batch_norm_moments)(acc *out, const real *x, size_t batch, size_t channels, size_t spatial, double eps,
                                    bool last, cn_work work, void *workspace);
    void (*sync_batch_norm_merge)(acc *merged, real *mean, real *rstd, real *running_mean, real *running_var,
                                  const acc *counts, const acc *all, size_t ranks, size_t channels, double eps,
                                  double momentum, bool unbiased);
    size_t (*sync_batch_norm_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*sync_batch_norm_apply)(real *y, const real *x, const acc *merged, const real *weight, const real *bias,
                                  size_t batch, size_t channels, size_t spatial, bool last, cn_work work,
                                  void *workspace);
    size_t (*sync_batch_norm_backward_sums_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*sync_batch_norm_backward_sums)(acc *sums, const real *dy, const real *x, const real *mean, const real *rstd,
                                          size_t batch, size_t channels, size_t spatial, bool last, cn_work work,
                                          void *workspace);
    size_t (*sync_batch_norm_backward_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
    void (*sync_batch_norm_backward_apply)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                           const real *mean, const real *rstd, const real *weight, const acc *own,
                                           const acc *counts, const acc *all, size_t ranks, size_t batch,
                                           size_t channels, size_t spatial, bool last, cn_work work, void *workspace);
    size_t (*whiten_covariance_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two,
                                          bool last);
    void (*whiten_covariance)(double *mean, double *peak, double *covariance, const real *x, const real *other,
                              size_t batch, size_t channels, size_t spatial, size_t groups, bool last, cn_work work,
                              void *workspace);
    size_t (*whiten_apply_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two, bool last);
    void (*whiten_apply)(real *y, const real *x, const double *mean, const double *matrix, const real *other,
                         const double *other_mean, const double *other_matrix, size_t batch, size_t channels,
                         size_t spatial, size_t groups, bool last, cn_work work, void *workspace);
    size_t (*normalize_workspace)(size_t outer, size_t length, size_t inner);
    void (*normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner, double p,
                              double eps, cn_work work, void *workspace);
    void (*normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length, size_t inner,
                               double p, double eps, cn_work work, void *workspace);
    void (*cosine_norm_forward)(real *y, const real *x_norm, const real *weight_norm, size_t rows, size_t cols,
                                double eps, cn_work work);
    size_t (*weight_norm_workspace)(size_t outer, size_t channels, size_t inner);
    void (*weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels, size_t inner,
                                cn_work work, void *workspace);
    void (*weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g, size_t outer,
                                 size_t channels, size_t inner, cn_work work, void *workspace);
    size_t (*spectral_norm_workspace)(size_t outer, size_t rows, size_t inner);
    void (*spectral_norm_forward)(real *w, double *sigma, real *u, real *v, const real *weight, size_t outer,
                                  size_t rows, size_t inner, size_t iterations, double eps, cn_work work,
                                  void *workspace);
    size_t (*spectral_norm_backward_workspace)(size_t outer, size_t rows, size_t inner);
    void (*spectral_norm_backward)(real *dweight, const real *dw, const real *weight, const real *u, const real *v,
                                   double sigma, size_t outer, size_t rows, size_t inner, cn_work work,
                                   void *workspace);
} CN_TABLE;

/* The table of the level in use. */
const CN_TABLE *CN_DTYPE_NAME(cn_kernels, CN_REAL)(void);

#endif
