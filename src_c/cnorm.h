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

/* y = x, n elements, threaded: the machine's own limit, which the speed of the norms is given against. `stream`: store
 * past the caches. y and x do not overlap. */
CNORM_API cnorm_status cnorm_copy_f32(float *y, const float *x, size_t n, int stream);
CNORM_API cnorm_status cnorm_copy_f64(double *y, const double *x, size_t n, int stream);

#ifdef __cplusplus
}
#endif

#endif
