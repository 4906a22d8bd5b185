/* The kernels of one (dtype, ISA level). */
#ifndef CN_KERNELS_H
#define CN_KERNELS_H

#include "../cnorm.h"
#include "../parallel.h"
#include "level.h"

size_t CN(layer_norm_workspace)(size_t rows, size_t cols);
void CN(layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t rows, size_t cols, double eps, cn_work work, void *workspace);

size_t CN(layer_norm_backward_workspace)(size_t rows, size_t cols);
void CN(layer_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t rows, size_t cols, cn_work work,
                             void *workspace);

size_t CN(rms_norm_workspace)(size_t rows, size_t cols);
void CN(rms_norm_forward)(real *y, real *rstd, const real *x, const real *weight, const real *bias, size_t rows,
                          size_t cols, double eps, double weight_offset, cn_work work, void *workspace);

size_t CN(rms_norm_backward_workspace)(size_t rows, size_t cols);
void CN(rms_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *rstd,
                           const real *weight, size_t rows, size_t cols, double weight_offset, cn_work work,
                           void *workspace);

size_t CN(group_norm_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
void CN(group_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t batch, size_t channels, size_t spatial, size_t groups, double eps, bool last,
                            cn_work work, void *workspace);

size_t CN(group_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
void CN(group_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                             size_t groups, bool last, cn_work work, void *workspace);

size_t CN(instance_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(instance_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                               const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                               double eps, double momentum, bool last, cn_work work, void *workspace);

size_t CN(instance_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(instance_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                                const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                                bool last, cn_work work, void *workspace);

size_t CN(batch_norm_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(batch_norm_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                            const real *weight, const real *bias, size_t batch, size_t channels, size_t spatial,
                            double eps, double momentum, bool unbiased, bool last, cn_work work, void *workspace);

size_t CN(batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                              const real *bias, size_t batch, size_t channels, size_t spatial, double eps, bool last,
                              cn_work work, void *workspace);

size_t CN(batch_norm_backward_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(batch_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t batch, size_t channels, size_t spatial,
                             bool training, bool last, cn_work work, void *workspace);

void CN(copy)(real *y, const real *x, size_t n, cn_work work);

size_t CN(adain_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                           bool style_last);
void CN(adain_forward)(real *y, real *content_mean, real *content_rstd, real *style_mean, real *style_rstd,
                       const real *content, const real *style, size_t batch, size_t channels, size_t spatial,
                       size_t style_spatial, double eps, bool unbiased, bool last, bool style_last, cn_work work,
                       void *workspace);

size_t CN(adain_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                                    bool style_last);
void CN(adain_backward)(real *dcontent, real *dstyle, const real *dy, const real *content, const real *style,
                        const real *content_mean, const real *content_rstd, const real *style_rstd, size_t batch,
                        size_t channels, size_t spatial, size_t style_spatial, bool unbiased, bool last,
                        bool style_last, cn_work work, void *workspace);

size_t CN(ada_layer_norm_workspace)(size_t batch, size_t rows, size_t cols);
void CN(ada_layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *scale, const real *shift,
                                size_t batch, size_t rows, size_t cols, double eps, cn_work work, void *workspace);

size_t CN(ada_layer_norm_backward_workspace)(size_t batch, size_t rows, size_t cols);
void CN(ada_layer_norm_backward)(real *dx, real *dscale, real *dshift, const real *dy, const real *x, const real *mean,
                                 const real *rstd, const real *scale, size_t batch, size_t rows, size_t cols,
                                 cn_work work, void *workspace);

size_t CN(spade_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
void CN(spade_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                       const real *gamma, cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides,
                       size_t batch, size_t channels, size_t spatial, size_t groups, double eps, double gamma_offset,
                       double momentum, bool unbiased, bool last, cn_work work, void *workspace);

size_t CN(spade_inference_workspace)(size_t channels);
void CN(spade_inference)(real *y, const real *x, const real *mean, const real *var, const real *gamma,
                         cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides, size_t batch,
                         size_t channels, size_t spatial, double eps, double gamma_offset, bool last, cn_work work,
                         void *workspace);

size_t CN(spade_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last);
void CN(spade_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *mean,
                        const real *rstd, const real *gamma, cnorm_strides strides, size_t batch, size_t channels,
                        size_t spatial, size_t groups, double gamma_offset, bool last, cn_work work, void *workspace);

void CN(spade_inference_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *mean,
                                  const real *rstd, const real *gamma, cnorm_strides strides, size_t batch,
                                  size_t channels, size_t spatial, double gamma_offset, bool last, cn_work work);

size_t CN(sync_batch_norm_moments_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(sync_batch_norm_moments)(acc *out, const real *x, size_t batch, size_t channels, size_t spatial, double eps,
                                 bool last, cn_work work, void *workspace);
void CN(sync_batch_norm_merge)(acc *merged, real *mean, real *rstd, real *running_mean, real *running_var,
                               const acc *counts, const acc *all, size_t ranks, size_t channels, double eps,
                               double momentum, bool unbiased);
size_t CN(sync_batch_norm_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(sync_batch_norm_apply)(real *y, const real *x, const acc *merged, const real *weight, const real *bias,
                               size_t batch, size_t channels, size_t spatial, bool last, cn_work work, void *workspace);

size_t CN(sync_batch_norm_backward_sums_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(sync_batch_norm_backward_sums)(acc *sums, const real *dy, const real *x, const real *mean, const real *rstd,
                                       size_t batch, size_t channels, size_t spatial, bool last, cn_work work,
                                       void *workspace);
size_t CN(sync_batch_norm_backward_apply_workspace)(size_t batch, size_t channels, size_t spatial, bool last);
void CN(sync_batch_norm_backward_apply)(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                                        const real *mean, const real *rstd, const real *weight, const acc *own,
                                        const acc *counts, const acc *all, size_t ranks, size_t batch, size_t channels,
                                        size_t spatial, bool last, cn_work work, void *workspace);

size_t CN(whiten_covariance_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two,
                                       bool last);
void CN(whiten_covariance)(double *mean, double *peak, double *covariance, const real *x, const real *other,
                           size_t batch, size_t channels, size_t spatial, size_t groups, bool last, cn_work work,
                           void *workspace);

size_t CN(whiten_apply_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two, bool last);
void CN(whiten_apply)(real *y, const real *x, const double *mean, const double *matrix, const real *other,
                      const double *other_mean, const double *other_matrix, size_t batch, size_t channels,
                      size_t spatial, size_t groups, bool last, cn_work work, void *workspace);

size_t CN(normalize_workspace)(size_t outer, size_t length, size_t inner);
void CN(normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner, double p,
                           double eps, cn_work work, void *workspace);
void CN(normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length, size_t inner,
                            double p, double eps, cn_work work, void *workspace);

void CN(cosine_norm_forward)(real *y, const real *x_norm, const real *weight_norm, size_t rows, size_t cols, double eps,
                             cn_work work);

size_t CN(weight_norm_workspace)(size_t outer, size_t channels, size_t inner);
void CN(weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels, size_t inner,
                             cn_work work, void *workspace);
void CN(weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g, size_t outer,
                              size_t channels, size_t inner, cn_work work, void *workspace);

size_t CN(spectral_norm_workspace)(size_t outer, size_t rows, size_t inner);
void CN(spectral_norm_forward)(real *w, double *sigma, real *u, real *v, const real *weight, size_t outer, size_t rows,
                               size_t inner, size_t iterations, double eps, cn_work work, void *workspace);

size_t CN(spectral_norm_backward_workspace)(size_t outer, size_t rows, size_t inner);
void CN(spectral_norm_backward)(real *dweight, const real *dw, const real *weight, const real *u, const real *v,
                                double sigma, size_t outer, size_t rows, size_t inner, cn_work work, void *workspace);

#endif
