/* RMS norm (Zhang, Sennrich 2019), forward.
 *
 *     y[r, c] = x[r, c] * rstd[r] * (weight_offset + weight[c]) + bias[c],   rstd = 1 / sqrt(sum(x^2) / cols + eps)
 *
 * Passes: x is read once from memory for its squares and again from the cache while y is written: 2S of traffic.
 * Split and determinism: as layer norm, with moments about 0 in place of those about the mean.
 */
#include "groups.h"
#include "kernels.h"

static inline void scale_run(real *y, const real *x, size_t n, real rstd, real offset, const real *weight,
                             const real *bias)
{
    if (weight && bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * rstd * (offset + weight[i]) + bias[i];
    } else if (weight) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * rstd * (offset + weight[i]);
    } else if (bias) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * rstd + bias[i];
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * rstd;
    }
}

CN_NOINLINE static void scale_past_caches(real *y, const real *x, size_t n, real rstd, real offset, const real *weight,
                                          const real *bias, size_t ahead)
{
    real buffer[STREAM_RUN];
    for (size_t i = 0, m; i < n; i += m) {
        m = stream_run(y + i, n - i);
        fetch_far(x + i, m, ahead);
        scale_run(buffer, x + i, m, rstd, offset, weight ? weight + i : NULL, bias ? bias + i : NULL);
        stream_out(y + i, buffer, m);
    }
}

static void apply_row(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                      size_t ahead)
{
    (void)parameter;
    real *y = g->y + at, offset = (real)g->weight_offset;
    const real *x = g->x + at, *weight = g->weight ? g->weight + start : NULL, *bias = g->bias ? g->bias + start : NULL;
    if (g->work.stream && n >= STREAM_RUN) {
        scale_past_caches(y, x, n, k->rstd, offset, weight, bias, ahead);
        return;
    }
    for (size_t i = 0, m; i < n; i += m) {
        m = next_run(y + i, n - i, ahead);
        fetch_near(x + i, m, ahead);
        scale_run(y + i, x + i, m, k->rstd, offset, weight ? weight + i : NULL, bias ? bias + i : NULL);
    }
}

static size_t first_parameter(const groups *g, size_t row)
{
    (void)g, (void)row;
    return 0;
}

static span row_span(size_t cols) { return (span){.runs = 1, .length = cols, .stride = cols}; }

size_t CN(rms_norm_workspace)(size_t rows, size_t cols) { return groups_workspace(rows, row_span(cols)); }

void CN(rms_norm_forward)(real *y, real *rstd, const real *x, const real *weight, const real *bias, size_t rows,
                          size_t cols, double eps, double weight_offset, cn_work work, void *workspace)
{
    groups g = {.y = y,
                .rstd = rstd,
                .x = x,
                .weight = weight,
                .bias = bias,
                .count = rows,
                .stride = cols,
                .shape = row_span(cols),
                .careful = {cols, cols, 0, 1, 1, cols},
                .eps = eps,
                .weight_offset = weight_offset,
                .work = work,
                .apply = apply_row,
                .parameter = first_parameter};
    normalise_groups(&g, workspace);
}
