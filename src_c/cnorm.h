/* cnorm: normalizations of neural networks on CPUs. The public C interface; C11, usable from C++.
 *
 *     size_t size = cnorm_layer_norm_forward_workspace_f32(rows, cols);
 *     void *workspace = size ? malloc(size) : NULL;
 *     cnorm_status status =
 *         cnorm_layer_norm_forward_f32(y, NULL, NULL, x, weight, bias, rows, cols, 1e-5, workspace, size);
 *     if (status != CNORM_OK)
 *         fprintf(stderr, "%s\n", cnorm_status_string(status));
 *
 * Grammar      cnorm_<op>_<pass>_<dtype>, dtype f32 or f64. Outputs first, inputs const, then sizes, then scalars.
 * Arrays       contiguous, row-major, of any alignment that their type allows. Optional pointers may be NULL where this
 *              says so. y may be x itself; any other overlap of an output is refused. Inputs are never written.
 * Sizes        elements. Any size may be 0: the call then has nothing to write and succeeds.
 * Workspace    cnorm_<op>_<pass>_workspace_<dtype> tells how many bytes a call of these sizes needs (0: NULL will do),
 *              aligned to 8 bytes, whatever the number of threads and the level. What it holds before and after a call
 *              means nothing. One workspace serves one call at a time. Nothing is allocated inside.
 * Statistics   mean and rstd = 1 / sqrt(var + eps), biased variance; rstd is 0 where var + eps is 0.
 * Accuracy     forward: within 6 u (max(1, |xhat|) |weight| + |bias|) of the exact result for the numbers given, xhat
 *              being the normalised x; backward: within 16 u of the largest gradient of the group or parameter array.
 *              u is 2^-24 (f32) or 2^-53 (f64). Any mean, spread and magnitude; a NaN or an infinity makes its own
 *              group NaN.
 * Errors       a call that returns anything but CNORM_OK has read no array and written nothing.
 * Threads      results have the same bits for any number of threads and on every ISA level. Calls are thread-safe.
 *              A call made inside an OpenMP region, or in a child after fork(), runs on its own thread.
 * State        the number of threads, the level in use, what was found out about the processor, and whether this is a
 *              forked child: a word each, read and written atomically. Nothing else outlives a call. No stdio, and
 *              no change of the floating-point environment.
 */
#ifndef CNORM_H
#define CNORM_H

#include <stddef.h>

#define CNORM_VERSION "0.1.0" /* of this header; cnorm_version() tells the library's */
#include <stdint.h>

#if defined(__GNUC__)
#define CNORM_API __attribute__((visibility("default")))
#else
#define CNORM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CNORM_OK = 0,
    CNORM_ERROR_NULL,      /* a pointer that must not be NULL is */
    CNORM_ERROR_VALUE,     /* a scalar or a size out of its range */
    CNORM_ERROR_OVERLAP,   /* an output overlaps an input without being it */
    CNORM_ERROR_WORKSPACE, /* workspace missing, too small or not aligned */
    CNORM_ERROR_ISA        /* no such level here */
} cnorm_status;

typedef enum {
    CNORM_CHANNELS_FIRST = 0, /* x[batch, channels, spatial] */
    CNORM_CHANNELS_LAST = 1   /* x[batch, spatial, channels] */
} cnorm_layout;

/* Of an array that is broadcast against x: elements from one to the next along each, 0 where it is broadcast. Along the last
 * one in memory (spatial, or channels where they are last) it is 0 or 1. */
typedef struct {
    size_t batch, channel, spatial;
} cnorm_strides;

/* All four: constants, never NULL. A number that is no status is an "unknown status". */
CNORM_API const char *cnorm_status_string(cnorm_status status);
CNORM_API const char *cnorm_version(void);
CNORM_API const char *cnorm_compiler(void);
CNORM_API int cnorm_has_openmp(void); /* 0: one thread, whatever is set */

/* Threads a large call uses, in the whole process; small calls stay on the calling thread. The default is OpenMP's.
 * Fewer than one are CNORM_ERROR_VALUE. */
CNORM_API int cnorm_get_num_threads(void);
CNORM_API cnorm_status cnorm_set_num_threads(int threads);

/* ISA levels that this build has and this CPU and operating system can run, best first: "avx512", "avx2", "base"
 * (x86-64); "sve", "neon" (64-bit ARM); "rvv", "base" (64-bit RISC-V); "base". The best is chosen at the first call.
 * cnorm_isa_level: level i, or NULL past the last. cnorm_isa: the one in use. cnorm_set_isa: another one, for the whole
 * process; a name that is not among them is CNORM_ERROR_ISA. */
CNORM_API const char *cnorm_isa_level(int i);
CNORM_API const char *cnorm_isa(void);
CNORM_API cnorm_status cnorm_set_isa(const char *level);

/* y[r, c] = (x[r, c] - mean[r]) * rstd[r] * weight[c] + bias[c].
 * x, y (rows, cols); weight, bias (cols) or NULL; mean, rstd (rows) or NULL. */
CNORM_API size_t cnorm_layer_norm_forward_workspace_f32(size_t rows, size_t cols);
CNORM_API size_t cnorm_layer_norm_forward_workspace_f64(size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_layer_norm_forward_f32(float *y, float *mean, float *rstd, const float *x,
                                                    const float *weight, const float *bias, size_t rows, size_t cols,
                                                    double eps, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_layer_norm_forward_f64(double *y, double *mean, double *rstd, const double *x,
                                                    const double *weight, const double *bias, size_t rows, size_t cols,
                                                    double eps, void *workspace, size_t workspace_size);

/* y[r, c] = x[r, c] * rstd[r] * (weight_offset + weight[c]) + bias[c], rstd = 1 / sqrt(mean(x^2) + eps).
 * x, y (rows, cols); weight, bias (cols) or NULL; rstd (rows) or NULL. Without weight the factor is 1. */
CNORM_API size_t cnorm_rms_norm_forward_workspace_f32(size_t rows, size_t cols);
CNORM_API size_t cnorm_rms_norm_forward_workspace_f64(size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_rms_norm_forward_f32(float *y, float *rstd, const float *x, const float *weight,
                                                  const float *bias, size_t rows, size_t cols, double eps,
                                                  double weight_offset, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_rms_norm_forward_f64(double *y, double *rstd, const double *x, const double *weight,
                                                  const double *bias, size_t rows, size_t cols, double eps,
                                                  double weight_offset, void *workspace, size_t workspace_size);

/* Statistics of each sample over the channels of a group and the spatial positions; groups divides channels.
 * x, y (batch, channels, spatial) in `layout`; weight, bias (channels) or NULL; mean, rstd (batch, groups) or NULL. */
CNORM_API size_t cnorm_group_norm_forward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                        cnorm_layout layout);
CNORM_API size_t cnorm_group_norm_forward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                        cnorm_layout layout);
CNORM_API cnorm_status cnorm_group_norm_forward_f32(float *y, float *mean, float *rstd, const float *x,
                                                    const float *weight, const float *bias, size_t batch,
                                                    size_t channels, size_t spatial, size_t groups, double eps,
                                                    cnorm_layout layout, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_group_norm_forward_f64(double *y, double *mean, double *rstd, const double *x,
                                                    const double *weight, const double *bias, size_t batch,
                                                    size_t channels, size_t spatial, size_t groups, double eps,
                                                    cnorm_layout layout, void *workspace, size_t workspace_size);

/* Statistics of each sample and channel over the spatial positions. mean, rstd (batch, channels) or NULL.
 * running_mean, running_var (channels), both or neither: moved by `momentum` towards the batch's average mean and
 * unbiased variance; they need spatial > 1. */
CNORM_API size_t cnorm_instance_norm_forward_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                           cnorm_layout layout);
CNORM_API size_t cnorm_instance_norm_forward_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                           cnorm_layout layout);
CNORM_API cnorm_status cnorm_instance_norm_forward_f32(float *y, float *mean, float *rstd, float *running_mean,
                                                       float *running_var, const float *x, const float *weight,
                                                       const float *bias, size_t batch, size_t channels, size_t spatial,
                                                       double eps, double momentum, cnorm_layout layout,
                                                       void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_instance_norm_forward_f64(double *y, double *mean, double *rstd, double *running_mean,
                                                       double *running_var, const double *x, const double *weight,
                                                       const double *bias, size_t batch, size_t channels,
                                                       size_t spatial, double eps, double momentum, cnorm_layout layout,
                                                       void *workspace, size_t workspace_size);

/* Training: statistics of each channel over batch and spatial positions, more than one value a channel.
 * mean, rstd (channels) or NULL; running_mean, running_var (channels), both or neither: moved by `momentum` towards the
 * batch's mean and variance, the variance times n / (n - 1) when `unbiased`. */
CNORM_API size_t cnorm_batch_norm_forward_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                        cnorm_layout layout);
CNORM_API size_t cnorm_batch_norm_forward_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                        cnorm_layout layout);
CNORM_API cnorm_status cnorm_batch_norm_forward_f32(float *y, float *mean, float *rstd, float *running_mean,
                                                    float *running_var, const float *x, const float *weight,
                                                    const float *bias, size_t batch, size_t channels, size_t spatial,
                                                    double eps, double momentum, int unbiased, cnorm_layout layout,
                                                    void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_batch_norm_forward_f64(double *y, double *mean, double *rstd, double *running_mean,
                                                    double *running_var, const double *x, const double *weight,
                                                    const double *bias, size_t batch, size_t channels, size_t spatial,
                                                    double eps, double momentum, int unbiased, cnorm_layout layout,
                                                    void *workspace, size_t workspace_size);

/* Inference: y = (x - mean) / sqrt(var + eps) * weight + bias with the mean and var (channels) given. */
CNORM_API size_t cnorm_batch_norm_inference_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                          cnorm_layout layout);
CNORM_API size_t cnorm_batch_norm_inference_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                          cnorm_layout layout);
CNORM_API cnorm_status cnorm_batch_norm_inference_f32(float *y, const float *x, const float *mean, const float *var,
                                                      const float *weight, const float *bias, size_t batch,
                                                      size_t channels, size_t spatial, double eps, cnorm_layout layout,
                                                      void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_batch_norm_inference_f64(double *y, const double *x, const double *mean, const double *var,
                                                      const double *weight, const double *bias, size_t batch,
                                                      size_t channels, size_t spatial, double eps, cnorm_layout layout,
                                                      void *workspace, size_t workspace_size);

/* Backward passes. dy and x as the forward's y and x; mean and rstd as it returned them; weight (or NULL) as it was given.
 * dx, dweight, dbias: what is not wanted may be NULL; parameter gradients are sums over the whole call, written and not
 * added to. dx may be dy itself; any other overlap of an output is refused. With hat = (x - mean) * rstd, g = dy * weight:
 *
 *     dx = rstd * (g - average(g) - hat * average(g * hat)),   dweight = sum(dy * hat),   dbias = sum(dy)
 *
 * averages over a group, sums over all that share a parameter. What the rounding of the saved mean left is put right. */
CNORM_API size_t cnorm_layer_norm_backward_workspace_f32(size_t rows, size_t cols);
CNORM_API size_t cnorm_layer_norm_backward_workspace_f64(size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_layer_norm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                     const float *x, const float *mean, const float *rstd,
                                                     const float *weight, size_t rows, size_t cols, void *workspace,
                                                     size_t workspace_size);
CNORM_API cnorm_status cnorm_layer_norm_backward_f64(double *dx, double *dweight, double *dbias, const double *dy,
                                                     const double *x, const double *mean, const double *rstd,
                                                     const double *weight, size_t rows, size_t cols, void *workspace,
                                                     size_t workspace_size);

/* hat = x * rstd, g = dy * (weight_offset + weight), and no average(g). */
CNORM_API size_t cnorm_rms_norm_backward_workspace_f32(size_t rows, size_t cols);
CNORM_API size_t cnorm_rms_norm_backward_workspace_f64(size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_rms_norm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                   const float *x, const float *rstd, const float *weight, size_t rows,
                                                   size_t cols, double weight_offset, void *workspace,
                                                   size_t workspace_size);
CNORM_API cnorm_status cnorm_rms_norm_backward_f64(double *dx, double *dweight, double *dbias, const double *dy,
                                                   const double *x, const double *rstd, const double *weight,
                                                   size_t rows, size_t cols, double weight_offset, void *workspace,
                                                   size_t workspace_size);

CNORM_API size_t cnorm_group_norm_backward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                         cnorm_layout layout);
CNORM_API size_t cnorm_group_norm_backward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                         cnorm_layout layout);
CNORM_API cnorm_status cnorm_group_norm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                     const float *x, const float *mean, const float *rstd,
                                                     const float *weight, size_t batch, size_t channels, size_t spatial,
                                                     size_t groups, cnorm_layout layout, void *workspace,
                                                     size_t workspace_size);
CNORM_API cnorm_status cnorm_group_norm_backward_f64(double *dx, double *dweight, double *dbias, const double *dy,
                                                     const double *x, const double *mean, const double *rstd,
                                                     const double *weight, size_t batch, size_t channels,
                                                     size_t spatial, size_t groups, cnorm_layout layout,
                                                     void *workspace, size_t workspace_size);

CNORM_API size_t cnorm_instance_norm_backward_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                            cnorm_layout layout);
CNORM_API size_t cnorm_instance_norm_backward_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                            cnorm_layout layout);
CNORM_API cnorm_status cnorm_instance_norm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                        const float *x, const float *mean, const float *rstd,
                                                        const float *weight, size_t batch, size_t channels,
                                                        size_t spatial, cnorm_layout layout, void *workspace,
                                                        size_t workspace_size);
CNORM_API cnorm_status cnorm_instance_norm_backward_f64(double *dx, double *dweight, double *dbias, const double *dy,
                                                        const double *x, const double *mean, const double *rstd,
                                                        const double *weight, size_t batch, size_t channels,
                                                        size_t spatial, cnorm_layout layout, void *workspace,
                                                        size_t workspace_size);

/* With `training` 0 the statistics are constants: dx = dy * weight * rstd. */
CNORM_API size_t cnorm_batch_norm_backward_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                         cnorm_layout layout);
CNORM_API size_t cnorm_batch_norm_backward_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                         cnorm_layout layout);
CNORM_API cnorm_status cnorm_batch_norm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                     const float *x, const float *mean, const float *rstd,
                                                     const float *weight, size_t batch, size_t channels, size_t spatial,
                                                     int training, cnorm_layout layout, void *workspace,
                                                     size_t workspace_size);
CNORM_API cnorm_status cnorm_batch_norm_backward_f64(double *dx, double *dweight, double *dbias, const double *dy,
                                                     const double *x, const double *mean, const double *rstd,
                                                     const double *weight, size_t batch, size_t channels,
                                                     size_t spatial, int training, cnorm_layout layout, void *workspace,
                                                     size_t workspace_size);

/* w = weight / sigma, sigma = u^T W v, of the matrix with the elements weight[o, r, i] in row r and column (o, i); before
 * that `iterations` times v = W^T u, u = W v, each divided by its norm or `eps`, whichever is larger; u and v are not
 * written if iterations is 0. weight, w (outer, rows, inner); u (rows); v (outer, inner); sigma one number; where it is
 * 0, w is 0. w may be weight. */
CNORM_API size_t cnorm_spectral_norm_forward_workspace_f32(size_t outer, size_t rows, size_t inner);
CNORM_API size_t cnorm_spectral_norm_forward_workspace_f64(size_t outer, size_t rows, size_t inner);
CNORM_API cnorm_status cnorm_spectral_norm_forward_f32(float *w, double *sigma, float *u, float *v, const float *weight,
                                                       size_t outer, size_t rows, size_t inner, size_t iterations,
                                                       double eps, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_spectral_norm_forward_f64(double *w, double *sigma, double *u, double *v,
                                                       const double *weight, size_t outer, size_t rows, size_t inner,
                                                       size_t iterations, double eps, void *workspace,
                                                       size_t workspace_size);

/* Backward: dweight = (dw - sum(dw * weight) / sigma * u v^T) / sigma, u, v and sigma as the forward left them; 0 where
 * sigma is 0. dweight may be dw. */
CNORM_API size_t cnorm_spectral_norm_backward_workspace_f32(size_t outer, size_t rows, size_t inner);
CNORM_API size_t cnorm_spectral_norm_backward_workspace_f64(size_t outer, size_t rows, size_t inner);
CNORM_API cnorm_status cnorm_spectral_norm_backward_f32(float *dweight, const float *dw, const float *weight,
                                                        const float *u, const float *v, double sigma, size_t outer,
                                                        size_t rows, size_t inner, void *workspace,
                                                        size_t workspace_size);
CNORM_API cnorm_status cnorm_spectral_norm_backward_f64(double *dweight, const double *dw, const double *weight,
                                                        const double *u, const double *v, double sigma, size_t outer,
                                                        size_t rows, size_t inner, void *workspace,
                                                        size_t workspace_size);

/* y = x, n elements, threaded: the machine's own limit, which the speed of the norms is given against. `stream`: store
 * past the caches. y and x do not overlap. */
CNORM_API cnorm_status cnorm_copy_f32(float *y, const float *x, size_t n, int stream);
CNORM_API cnorm_status cnorm_copy_f64(double *y, const double *x, size_t n, int stream);

/* Adaptive instance norm: the content's channels take mean and standard deviation of the style's, by sample.
 *
 *     y = (content - content_mean) * content_rstd * style_std + style_mean
 *
 * std = 1 / rstd = sqrt(var + eps), var biased or, when `unbiased`, with n / (n - 1), and 0 of a single element.
 * content, y (batch, channels, spatial) in `layout`; style (batch, channels, style_spatial) in `style_layout`; statistics
 * (batch, channels) or NULL. y may be content. */
CNORM_API size_t cnorm_adain_forward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                                   cnorm_layout layout, cnorm_layout style_layout);
CNORM_API size_t cnorm_adain_forward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                                   cnorm_layout layout, cnorm_layout style_layout);
CNORM_API cnorm_status cnorm_adain_forward_f32(float *y, float *content_mean, float *content_rstd, float *style_mean,
                                               float *style_rstd, const float *content, const float *style,
                                               size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                               double eps, int unbiased, cnorm_layout layout, cnorm_layout style_layout,
                                               void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_adain_forward_f64(double *y, double *content_mean, double *content_rstd,
                                               double *style_mean, double *style_rstd, const double *content,
                                               const double *style, size_t batch, size_t channels, size_t spatial,
                                               size_t style_spatial, double eps, int unbiased, cnorm_layout layout,
                                               cnorm_layout style_layout, void *workspace, size_t workspace_size);

/* dcontent, dstyle: what is not wanted may be NULL; dcontent may be dy and dstyle style. Statistics as the forward function writes them; the
 * means of the style are taken from it again. Without content the gradient of the style is 0.
 *
 *     dcontent = style_std * content_rstd * (dy - average(dy) - hat * sum(dy * hat) / m)
 *     dstyle = sum(dy) / n_style + style_hat * sum(dy * hat) / m_style,   m = n - 1 where `unbiased` (and n > 1), else n */
CNORM_API size_t cnorm_adain_backward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                                    cnorm_layout layout, cnorm_layout style_layout);
CNORM_API size_t cnorm_adain_backward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t style_spatial,
                                                    cnorm_layout layout, cnorm_layout style_layout);
CNORM_API cnorm_status cnorm_adain_backward_f32(float *dcontent, float *dstyle, const float *dy, const float *content,
                                                const float *style, const float *content_mean,
                                                const float *content_rstd, const float *style_rstd, size_t batch,
                                                size_t channels, size_t spatial, size_t style_spatial, int unbiased,
                                                cnorm_layout layout, cnorm_layout style_layout, void *workspace,
                                                size_t workspace_size);
CNORM_API cnorm_status cnorm_adain_backward_f64(double *dcontent, double *dstyle, const double *dy,
                                                const double *content, const double *style, const double *content_mean,
                                                const double *content_rstd, const double *style_rstd, size_t batch,
                                                size_t channels, size_t spatial, size_t style_spatial, int unbiased,
                                                cnorm_layout layout, cnorm_layout style_layout, void *workspace,
                                                size_t workspace_size);

/* Adaptive layer norm: y[n, r, c] = (x[n, r, c] - mean[n, r]) * rstd[n, r] * (1 + scale[n, c]) + shift[n, c].
 * x, y (batch, rows, cols); scale, shift (batch, cols); mean, rstd (batch, rows) or NULL. */
CNORM_API size_t cnorm_ada_layer_norm_forward_workspace_f32(size_t batch, size_t rows, size_t cols);
CNORM_API size_t cnorm_ada_layer_norm_forward_workspace_f64(size_t batch, size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_ada_layer_norm_forward_f32(float *y, float *mean, float *rstd, const float *x,
                                                        const float *scale, const float *shift, size_t batch,
                                                        size_t rows, size_t cols, double eps, void *workspace,
                                                        size_t workspace_size);
CNORM_API cnorm_status cnorm_ada_layer_norm_forward_f64(double *y, double *mean, double *rstd, const double *x,
                                                        const double *scale, const double *shift, size_t batch,
                                                        size_t rows, size_t cols, double eps, void *workspace,
                                                        size_t workspace_size);

/* As layer norm's, with g = dy * (1 + scale); dscale = sum(dy * hat) and dshift = sum(dy) over the rows of a sample. */
CNORM_API size_t cnorm_ada_layer_norm_backward_workspace_f32(size_t batch, size_t rows, size_t cols);
CNORM_API size_t cnorm_ada_layer_norm_backward_workspace_f64(size_t batch, size_t rows, size_t cols);
CNORM_API cnorm_status cnorm_ada_layer_norm_backward_f32(float *dx, float *dscale, float *dshift, const float *dy,
                                                         const float *x, const float *mean, const float *rstd,
                                                         const float *scale, size_t batch, size_t rows, size_t cols,
                                                         void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_ada_layer_norm_backward_f64(double *dx, double *dscale, double *dshift, const double *dy,
                                                         const double *x, const double *mean, const double *rstd,
                                                         const double *scale, size_t batch, size_t rows, size_t cols,
                                                         void *workspace, size_t workspace_size);

/* SPADE: a norm without parameters, then a scale and a shift for each element, which may be broadcast.
 *
 *     y = (x - mean) * rstd * (gamma_offset + gamma) + beta
 *
 * groups = 0: statistics of each channel over the batch, as in batch norm's training; mean, rstd (channels), and running
 * statistics. Else as group norm of so many groups; mean, rstd (batch, groups), and no running statistics. */
CNORM_API size_t cnorm_spade_forward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                   cnorm_layout layout);
CNORM_API size_t cnorm_spade_forward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                   cnorm_layout layout);
CNORM_API cnorm_status cnorm_spade_forward_f32(float *y, float *mean, float *rstd, float *running_mean,
                                               float *running_var, const float *x, const float *gamma,
                                               cnorm_strides gamma_strides, const float *beta,
                                               cnorm_strides beta_strides, size_t batch, size_t channels,
                                               size_t spatial, size_t groups, double eps, double gamma_offset,
                                               double momentum, int unbiased, cnorm_layout layout, void *workspace,
                                               size_t workspace_size);
CNORM_API cnorm_status cnorm_spade_forward_f64(double *y, double *mean, double *rstd, double *running_mean,
                                               double *running_var, const double *x, const double *gamma,
                                               cnorm_strides gamma_strides, const double *beta,
                                               cnorm_strides beta_strides, size_t batch, size_t channels,
                                               size_t spatial, size_t groups, double eps, double gamma_offset,
                                               double momentum, int unbiased, cnorm_layout layout, void *workspace,
                                               size_t workspace_size);

/* The same with the mean and var (channels) given. */
CNORM_API size_t cnorm_spade_inference_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                     cnorm_layout layout);
CNORM_API size_t cnorm_spade_inference_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                     cnorm_layout layout);
CNORM_API cnorm_status cnorm_spade_inference_f32(float *y, const float *x, const float *mean, const float *var,
                                                 const float *gamma, cnorm_strides gamma_strides, const float *beta,
                                                 cnorm_strides beta_strides, size_t batch, size_t channels,
                                                 size_t spatial, double eps, double gamma_offset, cnorm_layout layout,
                                                 void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_spade_inference_f64(double *y, const double *x, const double *mean, const double *var,
                                                 const double *gamma, cnorm_strides gamma_strides, const double *beta,
                                                 cnorm_strides beta_strides, size_t batch, size_t channels,
                                                 size_t spatial, double eps, double gamma_offset, cnorm_layout layout,
                                                 void *workspace, size_t workspace_size);

/* dx as in the other backward passes, with g = dy * (gamma_offset + gamma), and of each element dgamma = dy * hat and
 * dbeta = dy: where gamma or beta was broadcast, their sums are the caller's affair. dx, dgamma, dbeta (as x) or NULL.
 * With `training` 0 and groups = 0 the statistics are constants. */
CNORM_API size_t cnorm_spade_backward_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                    cnorm_layout layout);
CNORM_API size_t cnorm_spade_backward_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                    cnorm_layout layout);
CNORM_API cnorm_status cnorm_spade_backward_f32(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                                                const float *mean, const float *rstd, const float *gamma,
                                                cnorm_strides gamma_strides, size_t batch, size_t channels,
                                                size_t spatial, size_t groups, double gamma_offset, int training,
                                                cnorm_layout layout, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_spade_backward_f64(double *dx, double *dgamma, double *dbeta, const double *dy,
                                                const double *x, const double *mean, const double *rstd,
                                                const double *gamma, cnorm_strides gamma_strides, size_t batch,
                                                size_t channels, size_t spatial, size_t groups, double gamma_offset,
                                                int training, cnorm_layout layout, void *workspace,
                                                size_t workspace_size);

/* Batch norm in training with statistics over the values of several processes (ranks), in three passes:
 *
 *     moments   of each channel of this rank's x; a rank may have none (batch 0): counts its values a channel, batch * spatial
 *     merge     the moments of all ranks, which the processes have exchanged, in rank order: the same bits on each
 *     apply     y = (x - mean) * rstd * weight + bias with the merged statistics
 *
 * moments (5, channels): mean and sum((x - mean)^2) in two words each, of x / 2^k, and k; counts (ranks), all (ranks, 5,
 * channels); merged (5, channels) is for apply alone. eps is the same in both passes that take it. mean, rstd (channels) or
 * NULL; running_mean, running_var (channels), both or neither, left alone where no rank has a value. More than one value a
 * channel over all ranks. */
CNORM_API size_t cnorm_sync_batch_norm_moments_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                             cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_moments_f32(double *moments, const float *x, size_t batch, size_t channels,
                                                         size_t spatial, double eps, cnorm_layout layout,
                                                         void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_sync_batch_norm_merge_f32(double *merged, float *mean, float *rstd, float *running_mean,
                                                       float *running_var, const double *counts, const double *all,
                                                       size_t ranks, size_t channels, double eps, double momentum,
                                                       int unbiased);
CNORM_API size_t cnorm_sync_batch_norm_apply_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                           cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_apply_f32(float *y, const float *x, const double *merged,
                                                       const float *weight, const float *bias, size_t batch,
                                                       size_t channels, size_t spatial, cnorm_layout layout,
                                                       void *workspace, size_t workspace_size);
CNORM_API size_t cnorm_sync_batch_norm_moments_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                             cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_moments_f64(double *moments, const double *x, size_t batch,
                                                         size_t channels, size_t spatial, double eps,
                                                         cnorm_layout layout, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_sync_batch_norm_merge_f64(double *merged, double *mean, double *rstd, double *running_mean,
                                                       double *running_var, const double *counts, const double *all,
                                                       size_t ranks, size_t channels, double eps, double momentum,
                                                       int unbiased);
CNORM_API size_t cnorm_sync_batch_norm_apply_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                           cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_apply_f64(double *y, const double *x, const double *merged,
                                                       const double *weight, const double *bias, size_t batch,
                                                       size_t channels, size_t spatial, cnorm_layout layout,
                                                       void *workspace, size_t workspace_size);

/* Its gradients, in two passes, between which the processes exchange the sums: sums (8, channels) of this rank, `own` the same
 * numbers, counts (ranks), all (ranks, 8, channels). dx is of this rank's x, and dweight and dbias are sums over this rank's
 * values. */
CNORM_API size_t cnorm_sync_batch_norm_backward_sums_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                                   cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_backward_sums_f32(double *sums, const float *dy, const float *x,
                                                               const float *mean, const float *rstd, size_t batch,
                                                               size_t channels, size_t spatial, cnorm_layout layout,
                                                               void *workspace, size_t workspace_size);
CNORM_API size_t cnorm_sync_batch_norm_backward_apply_workspace_f32(size_t batch, size_t channels, size_t spatial,
                                                                    cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_backward_apply_f32(
    float *dx, float *dweight, float *dbias, const float *dy, const float *x, const float *mean, const float *rstd,
    const float *weight, const double *own, const double *counts, const double *all, size_t ranks, size_t batch,
    size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size);
CNORM_API size_t cnorm_sync_batch_norm_backward_sums_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                                   cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_backward_sums_f64(double *sums, const double *dy, const double *x,
                                                               const double *mean, const double *rstd, size_t batch,
                                                               size_t channels, size_t spatial, cnorm_layout layout,
                                                               void *workspace, size_t workspace_size);
CNORM_API size_t cnorm_sync_batch_norm_backward_apply_workspace_f64(size_t batch, size_t channels, size_t spatial,
                                                                    cnorm_layout layout);
CNORM_API cnorm_status cnorm_sync_batch_norm_backward_apply_f64(
    double *dx, double *dweight, double *dbias, const double *dy, const double *x, const double *mean,
    const double *rstd, const double *weight, const double *own, const double *counts, const double *all, size_t ranks,
    size_t batch, size_t channels, size_t spatial, cnorm_layout layout, void *workspace, size_t workspace_size);

/* Whitening, statistics: for channel c, mean[c] + mean[channels + c] is its mean, peak[c] at least its largest distance
 * from it; covariance (groups, d, d), d = channels / groups, is the average of (x_i - mean_i) * (x_j - mean_j) over batch
 * and space. With `other`, of the shape of x, it is that of x_i and other_j; mean and peak have the words of x, then of
 * other: mean (4, channels), peak (2, channels). NaN or infinite where x is, within that group. `two` says whether there
 * is another array. Nothing may be empty here. */
CNORM_API size_t cnorm_whiten_covariance_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                       int two, cnorm_layout layout);
CNORM_API size_t cnorm_whiten_covariance_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups,
                                                       int two, cnorm_layout layout);
CNORM_API cnorm_status cnorm_whiten_covariance_f32(double *mean, double *peak, double *covariance, const float *x,
                                                   const float *other, size_t batch, size_t channels, size_t spatial,
                                                   size_t groups, cnorm_layout layout, void *workspace,
                                                   size_t workspace_size);
CNORM_API cnorm_status cnorm_whiten_covariance_f64(double *mean, double *peak, double *covariance, const double *x,
                                                   const double *other, size_t batch, size_t channels, size_t spatial,
                                                   size_t groups, cnorm_layout layout, void *workspace,
                                                   size_t workspace_size);

/* Whitening, linear maps: y = A (x - mean), and with other, + B (other - other_mean), of the channels of each group, at
 * every position. mean, other_mean (2, channels) in two words as above; matrices (groups, d, d). y may be x. */
CNORM_API size_t cnorm_whiten_apply_workspace_f32(size_t batch, size_t channels, size_t spatial, size_t groups, int two,
                                                  cnorm_layout layout);
CNORM_API size_t cnorm_whiten_apply_workspace_f64(size_t batch, size_t channels, size_t spatial, size_t groups, int two,
                                                  cnorm_layout layout);
CNORM_API cnorm_status cnorm_whiten_apply_f32(float *y, const float *x, const double *mean, const double *matrix,
                                              const float *other, const double *other_mean, const double *other_matrix,
                                              size_t batch, size_t channels, size_t spatial, size_t groups,
                                              cnorm_layout layout, void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_whiten_apply_f64(double *y, const double *x, const double *mean, const double *matrix,
                                              const double *other, const double *other_mean, const double *other_matrix,
                                              size_t batch, size_t channels, size_t spatial, size_t groups,
                                              cnorm_layout layout, void *workspace, size_t workspace_size);

/* y = x / n, n = max((sum |x|^p)^(1/p), eps) along the middle axis of x, y (outer, length, inner); p > 0, INFINITY for the
 * largest magnitude. norm (outer, inner) or NULL takes the norms themselves; with y NULL, nothing else is computed. A
 * vector of zeros gives zeros.
 * Backward: dx = (dy - direction * sum(dy * x) / n) / n, where direction is the gradient of the norm, and 0 where the norm
 * is below eps. dx may be dy itself. The workspace is that of the forward pass. */
CNORM_API size_t cnorm_normalize_workspace_f32(size_t outer, size_t length, size_t inner);
CNORM_API size_t cnorm_normalize_workspace_f64(size_t outer, size_t length, size_t inner);
CNORM_API cnorm_status cnorm_normalize_forward_f32(float *y, float *norm, const float *x, size_t outer, size_t length,
                                                   size_t inner, double p, double eps, void *workspace,
                                                   size_t workspace_size);
CNORM_API cnorm_status cnorm_normalize_forward_f64(double *y, double *norm, const double *x, size_t outer,
                                                   size_t length, size_t inner, double p, double eps, void *workspace,
                                                   size_t workspace_size);
CNORM_API cnorm_status cnorm_normalize_backward_f32(float *dx, const float *dy, const float *x, size_t outer,
                                                    size_t length, size_t inner, double p, double eps, void *workspace,
                                                    size_t workspace_size);
CNORM_API cnorm_status cnorm_normalize_backward_f64(double *dx, const double *dy, const double *x, size_t outer,
                                                    size_t length, size_t inner, double p, double eps, void *workspace,
                                                    size_t workspace_size);

/* Cosine norm after a matrix product: y (rows, cols), of vectors x (rows) and weight (cols), becomes
 *     y[r, c] / max(x_norm[r] * weight_norm[c], eps), within [-1, 1]
 * in place. The norms, of normalize_forward, and their products have to be normal numbers: scale other vectors first. */
CNORM_API cnorm_status cnorm_cosine_norm_forward_f32(float *y, const float *x_norm, const float *weight_norm,
                                                     size_t rows, size_t cols, double eps);
CNORM_API cnorm_status cnorm_cosine_norm_forward_f64(double *y, const double *x_norm, const double *weight_norm,
                                                     size_t rows, size_t cols, double eps);

/* w = v * g / norm, the norm sqrt(sum v^2) over the first and the last axis of v, w (outer, channels, inner); g (channels).
 * A channel of zeros gives zeros. Backward: dg = sum(dw * v) / norm, dv = (dw - v * dg / norm) * g / norm; both 0 for a
 * channel of zeros. dv may be dw itself. dg may be NULL. The workspace is that of the forward pass. */
CNORM_API size_t cnorm_weight_norm_workspace_f32(size_t outer, size_t channels, size_t inner);
CNORM_API size_t cnorm_weight_norm_workspace_f64(size_t outer, size_t channels, size_t inner);
CNORM_API cnorm_status cnorm_weight_norm_forward_f32(float *w, const float *v, const float *g, size_t outer,
                                                     size_t channels, size_t inner, void *workspace,
                                                     size_t workspace_size);
CNORM_API cnorm_status cnorm_weight_norm_forward_f64(double *w, const double *v, const double *g, size_t outer,
                                                     size_t channels, size_t inner, void *workspace,
                                                     size_t workspace_size);
CNORM_API cnorm_status cnorm_weight_norm_backward_f32(float *dv, float *dg, const float *dw, const float *v,
                                                      const float *g, size_t outer, size_t channels, size_t inner,
                                                      void *workspace, size_t workspace_size);
CNORM_API cnorm_status cnorm_weight_norm_backward_f64(double *dv, double *dg, const double *dw, const double *v,
                                                      const double *g, size_t outer, size_t channels, size_t inner,
                                                      void *workspace, size_t workspace_size);

/* Fixed point, for processors without floating point: int8 data, integer arithmetic alone (fixed/). Quantised as
 * TensorFlow Lite quantises int8: real = scale * (q - zero_point), a scale and a zero point for a whole tensor; the int16
 * weights and int32 biases have the zero point 0.
 *
 *     layer norm   xhat = (x - mean) / sqrt(var + eps)          RMS norm   xhat = x / sqrt(mean(x^2) + eps)
 *     y = xhat * weight + bias, rounded to the nearest step and clamped to -128 .. 127
 *
 * A result is at most one step from the correctly rounded one, whatever the input: the two can differ only where the
 * exact result is all but halfway between two steps. A row without variance gives its bias. */
#define CNORM_S8_COLS_MAX 8388608    /* 2^23 elements of a row */
#define CNORM_S8_EPS_EXPONENT 96     /* -96 .. 96 */
#define CNORM_S8_SHIFT_MIN (-40)     /* of either shift */
#define CNORM_S8_WEIGHT_SHIFT_MAX 8  /* weight_scale < 256 output_scale */
#define CNORM_S8_BIAS_SHIFT_MAX (-5) /* bias_scale < output_scale / 32 */

/* What the scales come to, for rows of one length: computed once, on the host or at start-up, and const from then on. */
typedef struct {
    uint32_t cols;
    int32_t input_zero_point, output_zero_point; /* -128 .. 127 */
    uint32_t eps_multiplier;                     /* eps * (cols / input_scale)^2 = multiplier * 2^exponent, */
    int32_t eps_exponent;                        /* 2^31 <= multiplier < 2^32, or 0 */
    int32_t weight_multiplier, weight_shift;     /* weight_scale / output_scale = multiplier * 2^(shift - 31), */
    int32_t bias_multiplier, bias_shift;         /* likewise; 2^30 <= multiplier < 2^31, or both 0 */
} cnorm_norm_s8;

/* The one function here that uses floating point, in an object of its own. Without weights, weight_scale is 1. */
CNORM_API cnorm_status cnorm_norm_s8_setup(cnorm_norm_s8 *norm, size_t cols, double eps, double input_scale,
                                           int input_zero_point, double weight_scale, double bias_scale,
                                           double output_scale, int output_zero_point);

/* x, y (rows, norm->cols); weight, bias (norm->cols) or NULL, which are weights of 1 and biases of 0. y may be x.
 * No workspace. A norm out of the ranges above is CNORM_ERROR_VALUE. Layer norm needs no input_zero_point. */
CNORM_API cnorm_status cnorm_layer_norm_s8(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias,
                                           size_t rows, const cnorm_norm_s8 *norm);
CNORM_API cnorm_status cnorm_rms_norm_s8(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias,
                                         size_t rows, const cnorm_norm_s8 *norm);

#ifdef __cplusplus
}
#endif

#endif
