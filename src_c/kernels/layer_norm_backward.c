/* Layer norm, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean) * rstd,  g = dy * weight
 *     dx[r, c] = rstd[r] * (g - average_c(g) - hat * average_c(g * hat))
 *     dweight[c] = sum_r(dy * hat),   dbias[c] = sum_r(dy)
 *
 * Passes, split and determinism: rows_gradient.h. 3S of traffic: x, dy and dx once each.
 */
#include "kernels.h"
#include "rows_gradient.h"

static void add(const rows_gradient *g, gradient_lanes *sums, size_t row, size_t first, size_t n)
{
    add_columns(g, sums, row, first, n, true);
}

static void sum_rows(const rows_gradient *g, gradient_sums *sums, size_t row, size_t rows)
{
    add_rows(g, sums, row, rows, true);
}

static void apply(const rows_gradient *g, real *dx, size_t stride, acc *sums, size_t row, size_t rows, size_t first,
                  size_t n, const gradient *k)
{
    apply_gradients(g, dx, stride, sums, row, rows, first, n, k, true);
}

size_t CN(layer_norm_backward_workspace)(size_t rows, size_t cols) { return rows_gradient_workspace(rows, cols); }

void CN(layer_norm_backward)(real *dx, real *dweight, real *dbias, const real *dy, const real *x, const real *mean,
                             const real *rstd, const real *weight, size_t rows, size_t cols, cn_work work,
                             void *workspace)
{
    rows_gradient g = {.dx = dx,
                       .parameters = {.dweight = dweight, .dbias = dbias},
                       .dy = dy,
                       .x = x,
                       .mean = mean,
                       .rstd = rstd,
                       .weight = weight,
                       .rows = rows,
                       .cols = cols,
                       .centred = true,
                       .work = work,
                       .add = add,
                       .sum_rows = sum_rows,
                       .apply = apply};
    rows_backward(&g, workspace);
}
