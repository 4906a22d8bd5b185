/* The kernels of one (dtype, ISA level). */
#ifndef CN_KERNELS_H
#define CN_KERNELS_H

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

size_t CN(normalize_workspace)(size_t outer, size_t length, size_t inner);
void CN(normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner, double p,
                           double eps, cn_work work, void *workspace);
void CN(normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length, size_t inner,
                            double p, double eps, cn_work work, void *workspace);

size_t CN(weight_norm_workspace)(size_t outer, size_t channels, size_t inner);
void CN(weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels, size_t inner,
                             cn_work work, void *workspace);
void CN(weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g, size_t outer,
                              size_t channels, size_t inner, cn_work work, void *workspace);

#endif
