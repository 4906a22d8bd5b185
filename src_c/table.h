/* The table of kernels of one dtype: what the public functions call through, one constant per ISA level. */
#ifndef CN_TABLE_H
#define CN_TABLE_H

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
    size_t (*normalize_workspace)(size_t outer, size_t length, size_t inner);
    void (*normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner, double p,
                              double eps, cn_work work, void *workspace);
    void (*normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length, size_t inner,
                               double p, double eps, cn_work work, void *workspace);
    size_t (*weight_norm_workspace)(size_t outer, size_t channels, size_t inner);
    void (*weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels, size_t inner,
                                cn_work work, void *workspace);
    void (*weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g, size_t outer,
                                 size_t channels, size_t inner, cn_work work, void *workspace);
} CN_TABLE;

/* The table of the level in use. */
const CN_TABLE *CN_DTYPE_NAME(cn_kernels, CN_REAL)(void);

#endif
