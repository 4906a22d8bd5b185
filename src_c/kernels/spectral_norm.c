/* Spectral norm of a weight (Miyato, Kataoka, Koyama, Yoshida 2018), forward. The matrix W has the elements
 * weight[o, r, i] in row r and column (o, i); u and v estimate its first singular vectors.
 *
 *     `iterations` times   v = W^T u / max(||W^T u||, eps),   u = W v / max(||W v||, eps)
 *     sigma = u^T W v,     w = weight / sigma
 *
 * Without iterations u and v are used as they are. Vectors that are 0 over 0 (eps = 0) are 0, and so is w where sigma is.
 *
 * Passes over weight: one for each product with the matrix and one that writes w, so 2 reads and then 2S of traffic for
 * one iteration: sigma is u^T of the last product, no pass of its own. A further iteration costs one read more where
 * W^T (W v) can be had in one pass (takes_both in matrix.h), else two; without iterations 1 read and 2S.
 *
 * Split and determinism: matrix.h; w in equal parts. Sums are in acc, the vectors are rounded to real as stored between
 * the products, as PyTorch does; only W v of over_both stays in acc. Of double data a norm or sigma that may have
 * overflowed or lost bits sends the call through wide_spectral_norm.h; of float data nothing can.
 */
#include "kernels.h"
#include "matrix.h"
#include "stream.h"
#include "wide_spectral_norm.h"

typedef struct {
    matrix matrix;
    bool transposed; /* rows and columns are exchanged: weights without an inner axis, dim = 1 */
    size_t rows, cols, iterations;
    acc *u, *v; /* numbers of real, rounded */
    acc eps, sigma;
    cn_work work;
} power_iteration;

static matrix plan_weight(const real *weight, size_t outer, size_t rows, size_t inner)
{
    return inner == 1 ? plan_matrix(weight, 1, outer, rows) : plan_matrix(weight, outer, rows, inner);
}

size_t CN(spectral_norm_workspace)(size_t outer, size_t rows, size_t inner)
{
    if (outer * rows * inner == 0)
        return 0;
    matrix m = plan_weight(NULL, outer, rows, inner);
    return (parts_words(&m) + rows + outer * inner) * sizeof(acc);
}

static const acc *times_transposed(power_iteration *g)
{
    return g->transposed ? over_cols(&g->matrix, g->u, g->work) : over_rows(&g->matrix, g->u, g->work);
}

static const acc *times_matrix(power_iteration *g)
{
    return g->transposed ? over_rows(&g->matrix, g->v, g->work) : over_cols(&g->matrix, g->v, g->work);
}

/* What a product of this squared norm is divided by; NaN if it is not finite. */
static acc divisor(acc square, acc eps)
{
    acc norm = sqrt(square), d = norm <= eps ? eps : norm;
    return d == 0 ? 1 : d <= DBL_MAX ? d : NAN;
}

/* x = t / max(||t||, eps), rounded to real; false if that has to be done the careful way. */
static bool normalise(acc *x, const acc *t, size_t n, acc eps)
{
    acc square = inner_product(t, t, n);
    if (!wide_enough(square))
        return false;
    const acc d = divisor(square, eps);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = (acc)(real)(t[i] / d);
    return true;
}

/* v of the next iteration from v, without rounding u in between: u = s / d, and so W^T u = t / d. */
static bool advance(power_iteration *g)
{
    if (g->transposed || !takes_both(&g->matrix))
        return normalise(g->u, times_matrix(g), g->rows, g->eps) &&
               normalise(g->v, times_transposed(g), g->cols, g->eps);
    const acc *t = over_both(&g->matrix, g->v, g->u, g->work);
    acc square = inner_product(g->u, g->u, g->rows);
    return wide_enough(square) && normalise(g->v, t, g->cols, g->eps * divisor(square, g->eps));
}

/* u, v and sigma; false if they have to be found the careful way. */
static bool iterate(power_iteration *g)
{
    if (g->iterations && !normalise(g->v, times_transposed(g), g->cols, g->eps))
        return false;
    for (size_t i = 1; i < g->iterations; i++)
        if (!advance(g))
            return false;
    const acc *s = times_matrix(g);
    if (g->iterations && !normalise(g->u, s, g->rows, g->eps))
        return false;
    g->sigma = inner_product(g->u, s, g->rows);
    return wide_enough(g->sigma * g->sigma);
}

#define PART 65536

typedef struct {
    real *w;
    const real *weight;
    size_t n;
    acc factor;
    bool stream;
} scale_job;

static void scale_run(real *w, const real *weight, size_t n, acc factor)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        w[i] = (real)((acc)weight[i] * factor);
}

static void scale_part(void *job, size_t task)
{
    const scale_job *g = job;
    size_t first = task * PART, last = lesser(first + PART, g->n);
    if (!g->stream) {
        scale_run(g->w + first, g->weight + first, last - first, g->factor);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = first, n; i < last; i += n) {
        n = stream_run(g->w + i, last - i);
        scale_run(buffer, g->weight + i, n, g->factor);
        stream_out(g->w + i, buffer, n);
    }
    stream_fence();
}

void CN(spectral_norm_forward)(real *w, double *sigma, real *u, real *v, const real *weight, size_t outer, size_t rows,
                               size_t inner, size_t iterations, double eps, cn_work work, void *workspace)
{
    size_t cols = outer * inner, n = rows * cols;
    *sigma = 0;
    if (n == 0)
        return;
    power_iteration g = {.matrix = plan_weight(weight, outer, rows, inner), .transposed = inner == 1};
    g.rows = rows, g.cols = cols, g.iterations = iterations, g.eps = eps, g.work = work;
    g.u = workspace, g.v = g.u + rows, g.matrix.parts = g.v + cols;
    for (size_t i = 0; i < rows; i++)
        g.u[i] = u[i];
    for (size_t i = 0; i < cols; i++)
        g.v[i] = v[i];
    if (!iterate(&g)) {
        *sigma = wide_spectral_norm(w, u, v, weight, (wide_weight){outer, rows, inner}, iterations, eps, g.u);
        return;
    }
    for (size_t i = 0; i < (iterations ? rows : 0); i++)
        u[i] = (real)g.u[i];
    for (size_t i = 0; i < (iterations ? cols : 0); i++)
        v[i] = (real)g.v[i];
    scale_job job = {w, weight, n, g.sigma == 0 ? 0 : 1 / g.sigma, work.stream};
    if (!(fabs(g.sigma) <= DBL_MAX))
        job.factor = *sigma = NAN;
    else
        *sigma = g.sigma;
    cn_parallel_for(divide_up(n, PART), work, scale_part, &job);
}
