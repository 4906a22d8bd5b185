/* normalize and weight_norm, both ways: every level and number of threads against the bits of the baseline, that against a
 * plain computation in long double, and wrong arguments. Compiled once per dtype. */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6
#define UNITS_ALLOWED_BACKWARD 16

/* p = 0 stands for weight_norm. */
typedef struct {
    size_t outer, length, inner;
    double p, scale, eps;
} vector_problem;

#define LARGE (sizeof(real) == 4 ? 0x1p+100 : 0x1p+900)
#define SMALL (sizeof(real) == 4 ? 0x1p-100 : 0x1p-900)

static const vector_problem problems[] = {
    {1, 1, 1, 2, 1, 1e-12},     {70, 3, 1, 2, 1, 1e-12},    {33, 25, 1, 2, 1, 1e-12},      {64, 768, 1, 2, 1, 1e-12},
    {2, 200003, 1, 2, 1, 0},    {3, 9001, 1, 1, 1, 0},      {3, 9001, 1, INFINITY, 1, 0},  {3, 33, 1, 3, 1, 0},
    {2, 65, 700, 2, 1, 1e-12},  {2, 3, 3000, 1, 1, 1e-12},  {1, 70, 5, INFINITY, 1, 0},    {4, 33, 7, 2, LARGE, 0},
    {4, 33, 7, 2, SMALL, 0},    {40, 5, 1, 2, SMALL, 1e-3}, {5, 40, 1, 2, 0, 0},           {1, 360, 512, 0, 1, 0},
    {512, 37, 1, 0, 1, 0},      {70, 20, 16, 0, 1, 0},      {3, 2, 700, 0, 1, 0},          {1, 1, 300001, 0, 1, 0},
    {1, 12, 50, 0, LARGE, 0},   {9, 12, 3, 0, SMALL, 0},    {30, 900, 1, 2.5, 1, 0},       {40, 33, 7, 1.5, LARGE, 0},
    {2, 901, 300, 2, 1, 1e-12}, {1, 901, 300, 1, 1, 0},     {1, 901, 300, INFINITY, 1, 0}, {1, 901, 300, 2.5, SMALL, 0},
    {601, 37, 13, 0, 1, 0},     {602, 481, 1, 0, 1, 0},     {602, 481, 1, 0, LARGE, 0},
};

typedef struct {
    size_t n, count, workspace_size;
    real *x, *dy, *g, *y, *dx, *noted, *dg;
    void *workspace;
} arrays;

static size_t vector_of(const vector_problem *p, size_t i)
{
    size_t inner = i % p->inner, middle = i / p->inner % p->length, outer = i / p->inner / p->length;
    return p->p == 0 ? middle : outer * p->inner + inner;
}

static arrays make_arrays(const vector_problem *p)
{
    arrays a = {.n = p->outer * p->length * p->inner, .count = p->p == 0 ? p->length : p->outer * p->inner};
    a.workspace_size = p->p == 0 ? CN_API(weight_norm_workspace)(p->outer, p->length, p->inner)
                                 : CN_API(normalize_workspace)(p->outer, p->length, p->inner);
    a.x = allocate(a.n * sizeof(real)), a.dy = allocate(a.n * sizeof(real));
    a.y = allocate(a.n * sizeof(real)), a.dx = allocate(a.n * sizeof(real));
    a.g = allocate(a.count * sizeof(real)), a.noted = allocate(a.count * sizeof(real));
    a.dg = allocate(a.count * sizeof(real)), a.workspace = allocate(a.workspace_size);
    for (size_t i = 0; i < a.n; i++)
        a.x[i] = (real)((noise() + 0.25) * p->scale), a.dy[i] = (real)noise();
    for (size_t c = 0; c < a.count; c++)
        a.g[c] = (real)(p->p == 0 ? 4 * noise() : 1);
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->x), free(a->dy), free(a->g), free(a->y), free(a->dx), free(a->noted), free(a->dg), free(a->workspace);
}

static cnorm_status run(const vector_problem *p, arrays *a)
{
    size_t o = p->outer, l = p->length, i = p->inner, size = a->workspace_size;
    memset(a->y, 0xff, a->n * sizeof(real));
    memset(a->dx, 0xff, a->n * sizeof(real));
    memset(a->noted, 0, a->count * sizeof(real));
    memset(a->dg, 0, a->count * sizeof(real));
    if (p->p == 0) {
        cnorm_status status = CN_API(weight_norm_forward)(a->y, a->x, a->g, o, l, i, a->workspace, size);
        if (status != CNORM_OK)
            return status;
        return CN_API(weight_norm_backward)(a->dx, a->dg, a->dy, a->x, a->g, o, l, i, a->workspace, size);
    }
    cnorm_status status = CN_API(normalize_forward)(a->y, a->noted, a->x, o, l, i, p->p, p->eps, a->workspace, size);
    if (status != CNORM_OK)
        return status;
    return CN_API(normalize_backward)(a->dx, a->dy, a->x, o, l, i, p->p, p->eps, a->workspace, size);
}

/* Of each vector. */
typedef struct {
    long double most, sum, ties, norm, dot, largest_dy;
} exact_norm;

static exact_norm *reference_norms(const vector_problem *p, const arrays *a)
{
    exact_norm *r = allocate(a->count * sizeof *r);
    long double order = p->p == 0 ? 2 : (long double)p->p;
    for (size_t v = 0; v < a->count; v++)
        r[v] = (exact_norm){0};
    for (size_t i = 0; i < a->n; i++) {
        exact_norm *one = &r[vector_of(p, i)];
        one->most = fmaxl(one->most, fabsl((long double)a->x[i]));
        one->largest_dy = fmaxl(one->largest_dy, fabsl((long double)a->dy[i]));
    }
    for (size_t i = 0; i < a->n; i++) {
        exact_norm *one = &r[vector_of(p, i)];
        long double ratio = one->most > 0 ? fabsl((long double)a->x[i]) / one->most : 0;
        one->sum += order == 2 ? ratio * ratio : isinf(order) ? 0 : powl(ratio, order);
        one->ties += ratio == 1;
        one->dot += (long double)a->x[i] * a->dy[i];
    }
    for (size_t v = 0; v < a->count; v++)
        r[v].norm = r[v].most * (order == 2 ? sqrtl(r[v].sum) : isinf(order) ? 1 : powl(r[v].sum, 1 / order));
    return r;
}

static long double direction_of(const vector_problem *p, const exact_norm *r, long double x)
{
    long double sign = x > 0 ? 1 : x < 0 ? -1 : 0, order = p->p == 0 ? 2 : p->p;
    if (isinf(order))
        return fabsl(x) == r->most ? sign / r->ties : 0;
    return sign * powl(fabsl(x) / r->norm, order - 1);
}

static long double exact_gradient(const vector_problem *p, const exact_norm *r, long double x, long double dy)
{
    if (r->norm == 0 || r->norm < p->eps)
        return p->eps > 0 ? dy / p->eps : 0;
    return (dy - direction_of(p, r, x) * (r->dot / r->norm)) / r->norm;
}

/* The larger of the two terms of a vector's gradient. */
static long double largest_term(const vector_problem *p, const exact_norm *r)
{
    long double n = fmaxl(r->norm, (long double)p->eps);
    if (n == 0)
        return 1;
    long double part = r->norm < p->eps ? 0 : fabsl(direction_of(p, r, r->most) * (r->dot / r->norm));
    return fmaxl(r->largest_dy, part) / n;
}

static void worst_errors(const vector_problem *p, const arrays *a, double *forward, double *backward)
{
    exact_norm *r = reference_norms(p, a);
    for (size_t i = 0; i < a->n; i++) {
        const exact_norm *one = &r[vector_of(p, i)];
        long double g = a->g[vector_of(p, i)], n = fmaxl(one->norm, (long double)p->eps);
        long double y = n > 0 ? a->x[i] / n * g : 0, unit = UNIT_ROUNDOFF * (n > 0 ? one->most / n * fabsl(g) : 1);
        long double dx = exact_gradient(p, one, a->x[i], a->dy[i]) * g;
        long double dx_unit = UNIT_ROUNDOFF * largest_term(p, one) * fabsl(g);
        double y_units = (double)(fabsl(a->y[i] - y) / unit), dx_units = (double)(fabsl(a->dx[i] - dx) / dx_unit);
        *forward = !(y_units <= *forward) && a->y[i] != y ? y_units : *forward;
        *backward = !(dx_units <= *backward) && a->dx[i] != dx ? dx_units : *backward;
    }
    free(r);
}

static uint64_t hash_outputs(const arrays *a)
{
    uint64_t hash = hash_bytes(HASH_START, a->y, a->n * sizeof(real));
    hash = hash_bytes(hash, a->dx, a->n * sizeof(real));
    hash = hash_bytes(hash, a->noted, a->count * sizeof(real));
    return hash_bytes(hash, a->dg, a->count * sizeof(real));
}

static int expect(cnorm_status got, cnorm_status wanted, const char *what)
{
    if (got == wanted)
        return 0;
    printf("FAIL %s vectors, %s: %s\n", DTYPE, what, cnorm_status_string(got));
    return 1;
}

/* Each wrong argument is refused, and nothing is written. */
static int check_errors(void)
{
    enum { N = 12 };
    real x[N], y[N] = {0}, g[3] = {1, 1, 1}, dg[3] = {0};
    int failures = 0;
    for (size_t i = 0; i < N; i++)
        x[i] = (real)noise();
#define NORMALIZE(y, norm, x, outer, p, eps) CN_API(normalize_forward)(y, norm, x, outer, 4, 1, p, eps, NULL, 0)
#define WEIGHT(dw, v, g, dv, dg) CN_API(weight_norm_backward)(dv, dg, dw, v, g, 1, 3, 4, NULL, 0)
    failures += expect(NORMALIZE(y, NULL, NULL, 3, 2, 0), CNORM_ERROR_NULL, "no x");
    failures += expect(NORMALIZE(y, NULL, x, 3, 0, 0), CNORM_ERROR_VALUE, "p = 0");
    failures += expect(NORMALIZE(y, NULL, x, 3, NAN, 0), CNORM_ERROR_VALUE, "p not a number");
    failures += expect(NORMALIZE(y, NULL, x, 3, 2, -1), CNORM_ERROR_VALUE, "negative eps");
    failures += expect(NORMALIZE(y, NULL, x, SIZE_MAX / 2, 2, 0), CNORM_ERROR_VALUE, "too many elements");
    failures += expect(NORMALIZE(x + 1, NULL, x, 2, 2, 0), CNORM_ERROR_OVERLAP, "y overlaps x");
    failures += expect(NORMALIZE(y, y, x, 3, 2, 0), CNORM_ERROR_OVERLAP, "the norm overlaps y");
    failures += expect(CN_API(normalize_forward)(x, NULL, x, 1, 200000, 1, 2, 0, NULL, 0), CNORM_ERROR_WORKSPACE,
                       "no workspace");
    failures += expect(CN_API(normalize_backward)(y, x, NULL, 3, 4, 1, 2, 0, NULL, 0), CNORM_ERROR_NULL, "no x");
    failures += expect(CN_API(normalize_backward)(x, y, x, 3, 4, 1, 2, 0, NULL, 0), CNORM_ERROR_OVERLAP, "dx is x");
    failures += expect(CN_API(weight_norm_forward)(y, x, NULL, 1, 3, 4, NULL, 0), CNORM_ERROR_NULL, "no g");
    failures += expect(WEIGHT(x, NULL, g, y, dg), CNORM_ERROR_NULL, "no v");
    failures += expect(WEIGHT(x, x, g, y, y), CNORM_ERROR_OVERLAP, "dg overlaps dv");
    failures += expect(WEIGHT(x, x, g, y, g), CNORM_ERROR_OVERLAP, "dg is g");
    for (size_t i = 0; i < N; i++)
        failures += y[i] != 0 || dg[i % 3] != 0 || g[i % 3] != 1;
    failures += expect(NORMALIZE(NULL, NULL, NULL, 0, 2, 0), CNORM_OK, "no vectors");
    return failures;
#undef NORMALIZE
#undef WEIGHT
}

check_result CN_DTYPE_NAME(check_vectors, CN_REAL)(void)
{
    check_result result = {check_errors(), HASH_START};
    double forward = 0, backward = 0;
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        const vector_problem *p = &problems[i];
        arrays a = make_arrays(p);
        uint64_t baseline = 0;
        for (int variant = 0; choose_variant(variant); variant++) {
            cnorm_status status = run(p, &a);
            uint64_t bits = hash_outputs(&a);
            if (variant == 0) {
                if (is_measured(a.n))
                    worst_errors(p, &a, &forward, &backward);
                result.hash = hash_bytes(result.hash, &bits, sizeof bits);
                baseline = bits;
            }
            if (status != CNORM_OK || bits != baseline) {
                result.failures++;
                printf("FAIL %s vectors (%zu, %zu, %zu), p %g: %s, %d threads: %s\n", DTYPE, p->outer, p->length,
                       p->inner, p->p, cnorm_isa(), cnorm_get_num_threads(),
                       status != CNORM_OK ? cnorm_status_string(status) : "other bits than the baseline");
            }
        }
        free_arrays(&a);
    }
    result.failures += !(forward <= UNITS_ALLOWED) + !(backward <= UNITS_ALLOWED_BACKWARD);
    report_op("normalize, weight", forward, backward, result.hash);
    return result;
}
