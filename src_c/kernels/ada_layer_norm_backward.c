/* Adaptive layer norm, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean) * rstd,  g = dy * (1 + scale[n])
 *     dx[n, r, c] = rstd[n, r] * (g - average_c(g) - hat * average_c(g * hat))
 *     dscale[n, c] = sum_r(dy * hat),   dshift[n, c] = sum_r(dy)
 *
 * Layer norm's gradient, a sample at a time (samples.h), each with passes, split and determinism of rows_gradient.h: 3S of
 * traffic, x, dy and dx once each.
 */
#include "kernels.h"
#include "samples.h"

typedef struct {
    real *dx, *dscale, *dshift; /* each may be NULL */
    const real *dy, *x, *mean, *rstd, *scale;
    size_t rows, cols;
} ada_gradient;

/* The weights of a sample, in whole acc, so that what follows is aligned. */
static size_t weights_size(size_t n) { return divide_up(n * sizeof(real), sizeof(acc)) * sizeof(acc); }

static void sample_gradient(const void *job, size_t sample, cn_work work, void *workspace)
{
    const ada_gradient *g = job;
    size_t row = sample * g->rows, first = sample * g->cols, at = row * g->cols;
    real *weight = workspace;
#pragma omp simd
    for (size_t c = 0; c < g->cols; c++)
        weight[c] = 1 + g->scale[first + c];
    CN(layer_norm_backward)(g->dx ? g->dx + at : NULL, g->dscale ? g->dscale + first : NULL,
                            g->dshift ? g->dshift + first : NULL, g->dy + at, g->x + at, g->mean + row, g->rstd + row,
                            weight, g->rows, g->cols, work, (unsigned char *)workspace + weights_size(g->cols));
}

static size_t sample_size(size_t rows, size_t cols)
{
    return weights_size(cols) + CN(layer_norm_backward_workspace)(rows, cols);
}

size_t CN(ada_layer_norm_backward_workspace)(size_t batch, size_t rows, size_t cols)
{
    return samples_workspace(batch, sample_size(rows, cols));
}

void CN(ada_layer_norm_backward)(real *dx, real *dscale, real *dshift, const real *dy, const real *x, const real *mean,
                                 const real *rstd, const real *scale, size_t batch, size_t rows, size_t cols,
                                 cn_work work, void *workspace)
{
    ada_gradient g = {dx, dscale, dshift, dy, x, mean, rstd, scale, rows, cols};
    sample_jobs jobs = {
        .job = &g, .sample = sample_gradient, .samples = batch, .slot_size = sample_size(rows, cols), .work = work};
    run_samples(&jobs, workspace);
}
