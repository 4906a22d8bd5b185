/* Adaptive layer norm (Peebles, Xie 2023), forward: layer norm whose weight and bias belong to a sample.
 *
 *     y[n, r, c] = (x[n, r, c] - mean[n, r]) * rstd[n, r] * (1 + scale[n, c]) + shift[n, c]
 *
 * 1 + scale is rounded to real, once for each sample. Passes, split and determinism as in layer norm: 2S of traffic.
 */
#include "groups.h"
#include "kernels.h"

typedef struct {
    groups base; /* first: the driver hands back a pointer to it */
    size_t rows; /* of a sample */
} sample_rows;

static void apply_row(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                      size_t ahead)
{
    const real *weight = g->weight + parameter + start, *bias = g->bias + parameter + start;
    affine_vectors(g->y + at, g->x + at, n, *k, weight, bias, g->work.stream, ahead);
}

static size_t first_of_sample(const groups *g, size_t row) { return row / ((const sample_rows *)g)->rows * g->stride; }

static span row_span(size_t cols) { return (span){.runs = 1, .length = cols, .stride = cols, .centred = true}; }

/* The weights, in whole acc, so that what follows is aligned. */
static size_t weights_size(size_t n) { return divide_up(n * sizeof(real), sizeof(acc)) * sizeof(acc); }

size_t CN(ada_layer_norm_workspace)(size_t batch, size_t rows, size_t cols)
{
    return weights_size(batch * cols) + groups_workspace(batch * rows, row_span(cols));
}

void CN(ada_layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *scale, const real *shift,
                                size_t batch, size_t rows, size_t cols, double eps, cn_work work, void *workspace)
{
    real *weight = workspace;
#pragma omp simd
    for (size_t i = 0; i < batch * cols; i++)
        weight[i] = 1 + scale[i];
    sample_rows g = {.base = {.y = y,
                              .mean = mean,
                              .rstd = rstd,
                              .x = x,
                              .weight = weight,
                              .bias = shift,
                              .count = batch * rows,
                              .stride = cols,
                              .shape = row_span(cols),
                              .careful = {cols, cols, 0, 1, 1, cols},
                              .eps = eps,
                              .work = work,
                              .apply = apply_row,
                              .parameter = first_of_sample},
                     .rows = rows};
    normalise_groups(&g.base, (unsigned char *)workspace + weights_size(batch * cols));
}
