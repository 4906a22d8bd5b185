/* Spectral norm of a weight, backward, with u and v constant; derived in docs/backward.md.
 *
 *     a = sum(dw * weight) / sigma
 *     dweight[o, r, i] = (dw[o, r, i] - a * u[r] * v[o, i]) / sigma
 *
 * Where sigma is 0, so is the gradient. Passes: one over dw and weight for the sum, one that reads dw again and writes
 * dweight, so 4S of traffic, or 3S where dw stays in the caches.
 *
 * Split and determinism: equal parts of the flat arrays, cut by their size alone; their sums are added in order. Gradients
 * are computed in acc and rounded once. A sum or sigma that may have left the range goes through wide_spectral_gradient.h.
 */
#include "kernels.h"
#include "products.h"
#include "span.h"
#include "stream.h"
#include "wide_spectral_gradient.h"

#define PART 16384

typedef struct {
    real *dweight;
    const real *dw, *weight;
    size_t rows, inner, n;
    acc *sums, *u, *v; /* sums of each part */
    acc slope, factor; /* a, 1 / sigma */
    bool stream;
} spectral_gradient;

static void sum_part(void *job, size_t task)
{
    spectral_gradient *g = job;
    size_t first = task * PART, last = lesser(first + PART, g->n);
    g->sums[task] = dot(g->dw + first, g->weight + first, last - first);
}

/* n elements from `first` on. */
static void gradient_run(const spectral_gradient *g, real *to, size_t first, size_t n)
{
    size_t run = first / g->inner, k = first % g->inner, row = run % g->rows, slab = run / g->rows;
    for (size_t i = 0, m; i < n; i += m, k = 0) {
        m = lesser(g->inner - k, n - i);
        const real *dw = g->dw + first + i;
        const acc *v = g->v + slab * g->inner + k, slope = g->slope * g->u[row], factor = g->factor;
        real *out = to + i;
#pragma omp simd
        for (size_t j = 0; j < m; j++)
            out[j] = (real)(((acc)dw[j] - slope * v[j]) * factor);
        row = row + 1 == g->rows ? 0 : row + 1;
        slab += row == 0;
    }
}

static void gradient_part(void *job, size_t task)
{
    const spectral_gradient *g = job;
    size_t first = task * PART, last = lesser(first + PART, g->n);
    if (!g->stream) {
        gradient_run(g, g->dweight + first, first, last - first);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = first, n; i < last; i += n) {
        n = stream_run(g->dweight + i, last - i);
        gradient_run(g, buffer, i, n);
        stream_out(g->dweight + i, buffer, n);
    }
    stream_fence();
}

size_t CN(spectral_norm_backward_workspace)(size_t outer, size_t rows, size_t inner)
{
    size_t n = outer * rows * inner;
    return n == 0 ? 0 : (divide_up(n, PART) + rows + outer * inner) * sizeof(acc);
}

static acc add_parts(const acc *sums, size_t n)
{
    acc sum = 0, low = 0;
    for (size_t i = 0; i < n; i++)
        add_to(&sum, &low, sums[i]);
    return sum + low;
}

/* NaN if an element is not finite, else 0. */
static acc nothing(const acc *x, size_t n)
{
    acc sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] - x[i];
    return sum;
}

void CN(spectral_norm_backward)(real *dweight, const real *dw, const real *weight, const real *u, const real *v,
                                double sigma, size_t outer, size_t rows, size_t inner, cn_work work, void *workspace)
{
    size_t cols = outer * inner, n = rows * cols, parts = divide_up(n, PART);
    if (n == 0)
        return;
    spectral_gradient g = {.dweight = dweight, .dw = dw, .weight = weight, .rows = rows, .inner = inner, .n = n};
    g.u = workspace, g.v = g.u + rows, g.sums = g.v + cols, g.stream = work.stream;
    for (size_t i = 0; i < rows; i++)
        g.u[i] = u[i];
    for (size_t i = 0; i < cols; i++)
        g.v[i] = v[i];
    cn_parallel_for(parts, work, sum_part, &g);
    acc sum = add_parts(g.sums, parts) + nothing(g.u, rows) + nothing(g.v, cols);
    if (sigma != 0 && fabs(sigma) <= DBL_MAX && !sum_is_safe(sum, sigma, dw, n)) {
        wide_spectral_gradient(dweight, dw, weight, u, v, sigma, (wide_shape){outer, rows, inner});
        return;
    }
    g.factor = sigma == 0 ? 0 : 1 / sigma;
    g.slope = sum * g.factor;
    if (n == 1 && sigma != 0) /* w = 1 or -1 whatever the weight: the gradient is exactly 0 */
        g.slope = dw[0] * (weight[0] / sigma);
    if (!(fabs(sum) <= DBL_MAX))
        g.slope = NAN;
    if (inner == 1) { /* runs along the rows instead: what they are multiplied by changes places too */
        acc *swap = g.u;
        g.u = g.v, g.v = swap, g.rows = outer, g.inner = rows;
    }
    cn_parallel_for(parts, work, gradient_part, &g);
}
