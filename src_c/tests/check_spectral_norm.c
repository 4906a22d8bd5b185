/* Spectral norm, forward and backward: every level and number of threads against the bits of the baseline, that against
 * a plain computation in long double, and wrong arguments. Compiled once per dtype. */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6
#define UNITS_ALLOWED_BACKWARD 16

typedef struct {
    size_t outer, rows, inner, iterations;
    double offset, scale, eps;
} spectral_problem;

#define LARGE (sizeof(real) == 4 ? 0x1p+100 : 0x1p+900)
#define SMALL (sizeof(real) == 4 ? 0x1p-100 : 0x1p-900)

static const spectral_problem problems[] = {
    {1, 1, 1, 1, 0, 1, 1e-12},        {1, 7, 13, 1, 0, 1, 1e-12},     {13, 7, 1, 1, 0, 1, 1e-12},
    {9, 5, 3, 1, 0, 1, 1e-12},        {20, 33, 16, 2, 1, 1, 1e-12},   {1, 3, 70001, 1, 0, 1, 1e-12},
    {1, 600, 700, 1, 0, 1, 1e-12},    {1, 600, 700, 3, 1, 1, 1e-12},  {700, 300, 1, 1, 0, 1, 1e-12},
    {1, 20000, 9, 1, 0, 1, 1e-12},    {3, 40, 130, 1, 0, 1, 1e-12},   {1, 600, 700, 0, 1, 1, 1e-12},
    {20, 33, 16, 1, 0, LARGE, 1e-12}, {20, 33, 16, 1, 0, SMALL, 0.0}, {4, 5, 6, 2, 0, 0, 0.0},
};

typedef struct {
    size_t n, cols, forward_size, backward_size;
    real *weight, *dw, *u0, *v0; /* given */
    real *w, *dweight, *u, *v;
    double sigma;
    void *workspace;
} arrays;

static void fill_unit(real *x, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(noise() + 1.5), square += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] = (real)(x[i] / sqrt(square));
}

static arrays make_arrays(const spectral_problem *p)
{
    arrays a = {.n = p->outer * p->rows * p->inner, .cols = p->outer * p->inner};
    a.forward_size = CN_API(spectral_norm_forward_workspace)(p->outer, p->rows, p->inner);
    a.backward_size = CN_API(spectral_norm_backward_workspace)(p->outer, p->rows, p->inner);
    a.weight = allocate(a.n * sizeof(real)), a.dw = allocate(a.n * sizeof(real));
    a.w = allocate(a.n * sizeof(real)), a.dweight = allocate(a.n * sizeof(real));
    a.u0 = allocate(p->rows * sizeof(real)), a.u = allocate(p->rows * sizeof(real));
    a.v0 = allocate(a.cols * sizeof(real)), a.v = allocate(a.cols * sizeof(real));
    a.workspace = allocate(a.forward_size > a.backward_size ? a.forward_size : a.backward_size);
    for (size_t i = 0; i < a.n; i++)
        a.weight[i] = (real)((p->offset + noise()) * p->scale), a.dw[i] = (real)noise();
    fill_unit(a.u0, p->rows), fill_unit(a.v0, a.cols);
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->weight), free(a->dw), free(a->w), free(a->dweight);
    free(a->u0), free(a->v0), free(a->u), free(a->v), free(a->workspace);
}

static cnorm_status run(const spectral_problem *p, arrays *a)
{
    memset(a->w, 0xff, a->n * sizeof(real));
    memset(a->dweight, 0xff, a->n * sizeof(real));
    memcpy(a->u, a->u0, p->rows * sizeof(real));
    memcpy(a->v, a->v0, a->cols * sizeof(real));
    cnorm_status status = CN_API(spectral_norm_forward)(a->w, &a->sigma, a->u, a->v, a->weight, p->outer, p->rows,
                                                        p->inner, p->iterations, p->eps, a->workspace, a->forward_size);
    if (status != CNORM_OK)
        return status;
    return CN_API(spectral_norm_backward)(a->dweight, a->dw, a->weight, a->u, a->v, a->sigma, p->outer, p->rows,
                                          p->inner, a->workspace, a->backward_size);
}

/* t = W^T x or W x, and its norm. */
static long double product(const spectral_problem *p, const real *weight, const real *x, bool over_rows, long double *t)
{
    size_t n = over_rows ? p->outer * p->inner : p->rows, at = 0;
    long double square = 0;
    for (size_t i = 0; i < n; i++)
        t[i] = 0;
    for (size_t o = 0; o < p->outer; o++)
        for (size_t r = 0; r < p->rows; r++)
            for (size_t i = 0; i < p->inner; i++, at++)
                t[over_rows ? o * p->inner + i : r] += (long double)weight[at] * x[over_rows ? r : o * p->inner + i];
    for (size_t i = 0; i < n; i++)
        square += t[i] * t[i];
    return sqrtl(square);
}

static double units(const real *x, const long double *t, long double factor, size_t n)
{
    long double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        long double error = fabsl(x[i] - t[i] * factor);
        worst = !(error <= worst) ? error : worst;
        largest = fmaxl(largest, fabsl(t[i] * factor));
    }
    return (double)(worst == 0 ? 0 : worst / (largest * UNIT_ROUNDOFF));
}

/* Of what the call left: u from v, v from u where one iteration tells it, w and the gradient from both. */
static void worst_errors(const spectral_problem *p, const arrays *a, double *forward, double *backward)
{
    size_t longer = p->rows > a->cols ? p->rows : a->cols;
    long double *t = allocate((longer + a->n) * sizeof *t), *wide = t + longer, sigma = 0, sum = 0;
    double found[3] = {0};
    if (p->iterations == 1) {
        long double norm = product(p, a->weight, a->u0, true, t);
        found[0] = units(a->v, t, 1 / norm, a->cols);
    }
    long double norm = product(p, a->weight, a->v, false, t);
    if (p->iterations && norm > 0)
        found[1] = units(a->u, t, 1 / norm, p->rows);
    for (size_t i = 0; i < p->rows; i++)
        sigma += a->u[i] * t[i];
    long double inverse = sigma == 0 ? 0 : 1 / sigma, largest = 0;
    for (size_t i = 0; i < a->n; i++) {
        wide[i] = a->weight[i];
        sum += (long double)a->dw[i] * a->weight[i];
        largest = fmaxl(largest, fabsl((long double)a->dw[i]) * inverse / 2);
    }
    found[2] = units(a->w, wide, inverse, a->n);
    for (int i = 0; i < 3; i++)
        *forward = !(found[i] <= *forward) ? found[i] : *forward;
    long double worst = 0;
    for (size_t at = 0; at < a->n; at++) {
        size_t r = at / p->inner % p->rows, c = at / p->inner / p->rows * p->inner + at % p->inner;
        long double exact = (a->dw[at] - sum * inverse * a->u[r] * a->v[c]) * inverse;
        long double error = fabsl(a->dweight[at] - exact);
        worst = !(error <= worst) ? error : worst;
        largest = fmaxl(largest, fabsl(exact));
    }
    double of_gradient = worst == 0 ? 0 : (double)(worst / (largest * UNIT_ROUNDOFF));
    *backward = !(of_gradient <= *backward) ? of_gradient : *backward;
    free(t);
}

static uint64_t hash_outputs(const spectral_problem *p, const arrays *a)
{
    uint64_t hash = hash_bytes(HASH_START, a->w, a->n * sizeof(real));
    hash = hash_bytes(hash, a->dweight, a->n * sizeof(real));
    hash = hash_bytes(hash, a->u, p->rows * sizeof(real));
    hash = hash_bytes(hash, a->v, a->cols * sizeof(real));
    return hash_bytes(hash, &a->sigma, sizeof a->sigma);
}

static int expect(cnorm_status got, cnorm_status wanted, const char *what)
{
    if (got == wanted)
        return 0;
    printf("FAIL %s spectral_norm, %s: %s\n", DTYPE, what, cnorm_status_string(got));
    return 1;
}

/* Each wrong argument is refused, and nothing is written. */
static int check_errors(void)
{
    enum { N = 12 };
    real weight[N], w[N] = {0}, u[3] = {0}, v[4] = {0};
    double sigma = 7, workspace[512];
    size_t size = sizeof workspace;
    int failures = 0;
    for (size_t i = 0; i < N; i++)
        weight[i] = (real)noise();
#define FORWARD(w, sigma, u, v, weight, outer, eps, size)                                                              \
    CN_API(spectral_norm_forward)(w, sigma, u, v, weight, outer, 3, 4, 1, eps, workspace, size)
#define BACKWARD(dweight, dw, weight, u, outer, size)                                                                  \
    CN_API(spectral_norm_backward)(dweight, dw, weight, u, v, 1, outer, 3, 4, workspace, size)
    failures += expect(FORWARD(w, &sigma, u, v, NULL, 1, 0, size), CNORM_ERROR_NULL, "no weight");
    failures += expect(FORWARD(w, NULL, u, v, weight, 1, 0, size), CNORM_ERROR_NULL, "no sigma");
    failures += expect(FORWARD(w, &sigma, NULL, v, weight, 1, 0, size), CNORM_ERROR_NULL, "no u");
    failures += expect(FORWARD(w, &sigma, u, v, weight, 1, -1, size), CNORM_ERROR_VALUE, "negative eps");
    failures += expect(FORWARD(w, &sigma, u, v, weight, SIZE_MAX / 2, 0, size), CNORM_ERROR_VALUE, "too many elements");
    failures += expect(FORWARD(w, &sigma, w, v, weight, 1, 0, size), CNORM_ERROR_OVERLAP, "u overlaps w");
    failures += expect(FORWARD(w, &sigma, u, weight, weight, 1, 0, size), CNORM_ERROR_OVERLAP, "v overlaps the weight");
    failures += expect(FORWARD(w, &sigma, v, v, weight, 1, 0, size), CNORM_ERROR_OVERLAP, "u is v");
    failures += expect(FORWARD(w, &sigma, u, v, weight, 1, 0, 8), CNORM_ERROR_WORKSPACE, "a small workspace");
    failures += expect(BACKWARD(NULL, weight, weight, u, 1, size), CNORM_ERROR_NULL, "no dweight");
    failures += expect(BACKWARD(w, weight, weight, NULL, 1, size), CNORM_ERROR_NULL, "backward without u");
    failures += expect(BACKWARD(weight, w, weight, u, 1, size), CNORM_ERROR_OVERLAP, "dweight is the weight");
    failures += expect(BACKWARD(w, weight, weight, u, 1, 8), CNORM_ERROR_WORKSPACE, "backward, a small workspace");
    for (size_t i = 0; i < N; i++)
        failures += w[i] != 0 || u[i % 3] != 0 || v[i % 4] != 0 || sigma != 7;
    failures += expect(FORWARD(w, &sigma, u, v, weight, 0, 0, 0), CNORM_OK, "an empty weight");
    return failures;
#undef FORWARD
#undef BACKWARD
}

check_result CN_DTYPE_NAME(check_spectral_norm, CN_REAL)(void)
{
    check_result result = {check_errors(), HASH_START};
    double forward = 0, backward = 0;
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        const spectral_problem *p = &problems[i];
        arrays a = make_arrays(p);
        uint64_t baseline = 0;
        for (int variant = 0; choose_variant(variant); variant++) {
            cnorm_status status = run(p, &a);
            uint64_t bits = hash_outputs(p, &a);
            if (variant == 0) {
                if (is_measured(a.n))
                    worst_errors(p, &a, &forward, &backward);
                result.hash = hash_bytes(result.hash, &bits, sizeof bits);
                baseline = bits;
            }
            if (status != CNORM_OK || bits != baseline) {
                result.failures++;
                printf("FAIL %s spectral_norm (%zu, %zu, %zu): %s, %d threads: %s\n", DTYPE, p->outer, p->rows,
                       p->inner, cnorm_isa(), cnorm_get_num_threads(),
                       status != CNORM_OK ? cnorm_status_string(status) : "other bits than the baseline");
            }
        }
        free_arrays(&a);
    }
    result.failures += !(forward <= UNITS_ALLOWED) + !(backward <= UNITS_ALLOWED_BACKWARD);
    report_op("spectral_norm", forward, backward, result.hash);
    return result;
}
