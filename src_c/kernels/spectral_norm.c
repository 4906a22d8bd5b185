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
 * After an iteration all terms of sigma are positive. Of vectors as they come they may cancel: without iterations W v is
 * `exact`, and W^T u of the first iteration is done again that way if W v shows that it was needed (is_cold), which costs
 * two reads more.
 *
 * Split and determinism: matrix.h; w in equal parts. Between the products the vectors are rounded to real, as stored. If
 * a norm or sigma tells that something may have overflowed or vanished, the call goes through wide_spectral_norm.h.
 */
#include "kernels.h"
#include "matrix.h"
#include "stream.h"
#include "wide_spectral_norm.h"

typedef struct {
    const real *weight;
    size_t n, rows, cols, iterations;
    matrix matrix;
    bool transposed;   /* the rows of the weight are its last axis: rows and columns change places */
    real *u, *v;       /* of the call's own until it has succeeded */
    acc *row_products; /* W v of over_both */
    acc eps, sigma;
    acc first_square; /* ||W^T u||^2 of the first iteration, until W v has been compared with it; else 0 */
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
    size_t size = (parts_words(&m) + rows) * sizeof(acc) + (rows + outer * inner) * sizeof(real);
    return at_least(size, 2 * at_least(rows, outer * inner) * sizeof(acc)); /* of the careful way */
}

static const acc *times_transposed(power_iteration *g)
{
    return g->transposed ? over_cols(&g->matrix, g->u) : over_rows(&g->matrix, g->u);
}

static const acc *times_matrix(power_iteration *g)
{
    return g->transposed ? over_rows(&g->matrix, g->v) : over_cols(&g->matrix, g->v);
}

static acc divisor(acc square, acc eps)
{
    acc norm = sqrt(square);
    return norm <= eps ? eps : norm;
}

/* x = t / max(||t||, eps), t the product with `other`; false if that has to be done the careful way. */
static bool normalise(const power_iteration *g, real *x, const acc *t, size_t n, const real *other, size_t length,
                      acc eps)
{
    acc square = sum_of_squares(t, n);
    if (!wide_enough(square) && !(square == 0 && is_true_zero(g->weight, g->n, other, length)))
        return false;
    const acc d = divisor(square, eps), over = d == 0 ? 1 : d;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(t[i] / over);
    return true;
}

static bool update_v(power_iteration *g)
{
    const acc *t = times_transposed(g);
    g->first_square = sum_of_squares(t, g->cols);
    return normalise(g, g->v, t, g->cols, g->u, g->rows, g->eps);
}

#define COLD 2

/* Whether W v is so much longer than W^T u, of unit vectors, that u had little to do with the first singular vectors: the
 * terms of W^T u may have cancelled then, and their roundings show. */
static bool is_cold(power_iteration *g, acc square)
{
    acc length_u = 0, length_v = 0, first = g->first_square;
    if (first == 0)
        return false;
    for (size_t i = 0; i < g->rows; i++)
        length_u += (acc)g->u[i] * (acc)g->u[i];
    for (size_t i = 0; i < g->cols; i++)
        length_v += (acc)g->v[i] * (acc)g->v[i];
    g->first_square = 0;
    return square / length_v > COLD * COLD * (first / length_u);
}

/* v again, from exact products. */
static bool improve_v(power_iteration *g)
{
    g->matrix.exact = true;
    bool done = update_v(g);
    g->matrix.exact = false;
    g->first_square = 0;
    return done;
}

/* W v, or NULL if v has to be found the careful way. */
static const acc *warm_product(power_iteration *g)
{
    const acc *s = times_matrix(g);
    if (g->first_square == 0 || !is_cold(g, sum_of_squares(s, g->rows)))
        return s;
    return improve_v(g) ? times_matrix(g) : NULL;
}

static bool update_u(power_iteration *g, const acc *s)
{
    return s && normalise(g, g->u, s, g->rows, g->v, g->cols, g->eps);
}

/* u and v again; in one pass v is had without u: u = s / d, so W^T u = t / d. */
static bool advance(power_iteration *g)
{
    if (g->transposed || !takes_both(&g->matrix)) {
        bool done = update_u(g, warm_product(g)) && update_v(g);
        g->first_square = 0;
        return done;
    }
    const acc *t = over_both(&g->matrix, g->v, g->row_products);
    acc square = sum_of_squares(g->row_products, g->rows);
    if (is_cold(g, square)) {
        if (!improve_v(g))
            return false;
        t = over_both(&g->matrix, g->v, g->row_products);
        square = sum_of_squares(g->row_products, g->rows);
    }
    return wide_enough(square) && wide_enough(sum_of_squares(t, g->cols)) &&
           normalise(g, g->v, t, g->cols, NULL, 0, g->eps * divisor(square, g->eps));
}

/* u, v and sigma; false if they have to be found the careful way. */
static bool iterate(power_iteration *g)
{
    if (g->iterations && !update_v(g))
        return false;
    for (size_t i = 1; i < g->iterations; i++)
        if (!advance(g))
            return false;
    const acc *s = warm_product(g);
    if (!s || (g->iterations && !update_u(g, s)))
        return false;
    g->sigma = wide_dot(g->u, s, g->rows);
    if (sizeof(real) == sizeof(acc))
        g->sigma += wide_dot(g->u, s + g->rows, g->rows);
    return wide_enough(g->sigma * g->sigma) || (g->sigma == 0 && is_true_zero(g->weight, g->n, g->v, g->cols));
}

#define PART 16384

typedef struct {
    real *w;
    const real *weight;
    size_t n;
    acc sigma;
    bool stream;
} scale_job;

/* Rounded once: of float data the product with 1 / sigma, of double data the quotient itself. */
static void scale_run(real *w, const real *weight, size_t n, acc sigma)
{
    const acc factor = 1 / sigma;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        w[i] = sizeof(real) < sizeof(acc) ? (real)((acc)weight[i] * factor) : (real)(weight[i] / sigma);
}

static void scale_part(void *job, size_t task)
{
    const scale_job *g = job;
    size_t first = task * PART, last = lesser(first + PART, g->n);
    if (!g->stream) {
        scale_run(g->w + first, g->weight + first, last - first, g->sigma);
        return;
    }
    real buffer[STREAM_RUN];
    for (size_t i = first, n; i < last; i += n) {
        n = stream_run(g->w + i, last - i);
        scale_run(buffer, g->weight + i, n, g->sigma);
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
    power_iteration g = {.weight = weight, .n = n, .rows = rows, .cols = cols, .iterations = iterations};
    g.matrix = plan_weight(weight, outer, rows, inner), g.transposed = inner == 1;
    g.matrix.work = work, g.matrix.exact = iterations == 0, g.eps = eps;
    g.matrix.parts = workspace, g.row_products = g.matrix.parts + parts_words(&g.matrix);
    g.u = (real *)(g.row_products + rows), g.v = g.u + rows;
    memcpy(g.u, u, rows * sizeof(real));
    memcpy(g.v, v, cols * sizeof(real));
    if (!iterate(&g)) {
        *sigma = wide_spectral_norm(w, u, v, weight, (wide_shape){outer, rows, inner}, iterations, eps, workspace);
        return;
    }
    if (iterations) {
        memcpy(u, g.u, rows * sizeof(real));
        memcpy(v, g.v, cols * sizeof(real));
    }
    *sigma = g.sigma;
    scale_job job = {w, weight, n, g.sigma == 0 ? INFINITY : g.sigma, work.stream};
    cn_parallel_for(divide_up(n, PART), work, scale_part, &job);
}
