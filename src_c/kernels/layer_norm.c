/* Layer norm (Ba, Kiros, Hinton 2016), forward.
 *
 *     y[r, c] = (x[r, c] - mean[r]) * rstd[r] * weight[c] + bias[c],   rstd = 1 / sqrt(var + eps), var = M2 / cols
 *
 * Passes: x is read once from memory for its moments and again from the cache while y is written: 2S of traffic.
 * Split: rows among tasks, or the pieces of a row where there are few and long ones (groups.h).
 * Determinism: blocks and pieces depend on cols alone (span.h), so a row has the same bits in any batch.
 */
#include "groups.h"
#include "kernels.h"

static void apply_row(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                      size_t ahead)
{
    (void)parameter;
    affine_vectors(g->y + at, g->x + at, n, *k, g->weight ? g->weight + start : NULL, g->bias ? g->bias + start : NULL,
                   g->work.stream, ahead);
}

static size_t first_parameter(const groups *g, size_t row)
{
    (void)g, (void)row;
    return 0;
}

static span row_span(size_t cols) { return (span){.runs = 1, .length = cols, .stride = cols, .centred = true}; }

size_t CN(layer_norm_workspace)(size_t rows, size_t cols) { return groups_workspace(rows, row_span(cols)); }

void CN(layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t rows, size_t cols, double eps, cn_work work, void *workspace)
{
    groups g = {.y = y,
                .mean = mean,
                .rstd = rstd,
                .x = x,
                .weight = weight,
                .bias = bias,
                .count = rows,
                .stride = cols,
                .shape = row_span(cols),
                .careful = {cols, cols, 0, 1, 1, cols},
                .eps = eps,
                .work = work,
                .apply = apply_row,
                .parameter = first_parameter};
    normalise_groups(&g, workspace);
}
