/* Whitening's kernels for one dtype (-DCN_REAL=f32 or f64): the baseline against a plain computation, every other level and
 * thread count against its bits, and the errors of wrong arguments.
 *
 * A unit of a covariance is u sqrt(c_ii c_jj); one of a product is u times the sum of its terms' magnitudes.
 */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6

typedef struct {
    size_t batch, channels, spatial, groups;
    cnorm_layout layout;
    double offset;
} shape;

static const shape shapes[] = {
    {9, 1, 1, 1, 0, 0},     {70, 3, 1, 1, 0, 1e4},  {3, 12, 35, 3, 0, 10},   {3, 12, 35, 3, 1, 10},
    {40, 64, 49, 1, 0, 1},  {40, 64, 49, 1, 1, 1},  {5, 40, 300, 2, 0, 1e4}, {5, 40, 300, 2, 1, 1e4},
    {6000, 20, 1, 5, 0, 0}, {2, 130, 70, 1, 0, -3}, {64, 48, 16, 12, 0, 1},  {1, 7, 100, 7, 1, 100},
};

typedef struct {
    size_t n, d, matrix, workspace_size, apply_size;
    real *x, *other, *y;
    double *mean, *peak, *covariance, *a, *b;
    void *workspace, *apply_workspace;
} arrays;

static arrays make_arrays(const shape *s)
{
    arrays a = {.n = s->batch * s->channels * s->spatial, .d = s->channels / s->groups};
    a.matrix = s->groups * a.d * a.d;
    a.workspace_size = CN_API(whiten_covariance_workspace)(s->batch, s->channels, s->spatial, s->groups, 1, s->layout);
    a.apply_size = CN_API(whiten_apply_workspace)(s->batch, s->channels, s->spatial, s->groups, 1, s->layout);
    a.x = allocate(a.n * sizeof(real)), a.other = allocate(a.n * sizeof(real)), a.y = allocate(a.n * sizeof(real));
    a.mean = allocate(4 * s->channels * sizeof(double)), a.peak = allocate(2 * s->channels * sizeof(double));
    a.covariance = allocate(a.matrix * sizeof(double));
    a.a = allocate(a.matrix * sizeof(double)), a.b = allocate(a.matrix * sizeof(double));
    a.workspace = allocate(a.workspace_size), a.apply_workspace = allocate(a.apply_size);
    for (size_t i = 0; i < a.n; i++)
        a.x[i] = (real)(s->offset + noise()), a.other[i] = (real)(noise() - s->offset);
    for (size_t i = 0; i < a.matrix; i++)
        a.a[i] = noise(), a.b[i] = noise();
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->x), free(a->other), free(a->y), free(a->mean), free(a->peak), free(a->covariance);
    free(a->a), free(a->b), free(a->workspace), free(a->apply_workspace);
}

static cnorm_status covariance(const shape *s, arrays *a, const real *other)
{
    return CN_API(whiten_covariance)(a->mean, a->peak, a->covariance, a->x, other, s->batch, s->channels, s->spatial,
                                     s->groups, s->layout, a->workspace, a->workspace_size);
}

static cnorm_status apply(const shape *s, arrays *a)
{
    const double *other_mean = a->mean + 2 * s->channels;
    return CN_API(whiten_apply)(a->y, a->x, a->mean, a->a, a->other, other_mean, a->b, s->batch, s->channels,
                                s->spatial, s->groups, s->layout, a->apply_workspace, a->apply_size);
}

/* Where channel c of column k lies. */
static size_t place(const shape *s, size_t c, size_t k)
{
    if (s->layout == CNORM_CHANNELS_LAST)
        return k * s->channels + c;
    return (k / s->spatial * s->channels + c) * s->spatial + k % s->spatial;
}

static long double centred(const shape *s, const real *x, const double *mean, size_t c, size_t k)
{
    return ((long double)x[place(s, c, k)] - mean[c]) - mean[s->channels + c];
}

static double covariance_units(const shape *s, const arrays *a, const real *b, const double *b_mean)
{
    size_t columns = s->batch * s->spatial;
    double worst = 0;
    for (size_t g = 0; g < s->groups; g++)
        for (size_t i = 0; i < a->d; i++)
            for (size_t j = 0; j < a->d; j++) {
                long double ab = 0, aa = 0, bb = 0;
                for (size_t k = 0; k < columns; k++) {
                    long double p = centred(s, a->x, a->mean, g * a->d + i, k);
                    long double q = centred(s, b, b_mean, g * a->d + j, k);
                    ab += p * q, aa += p * p, bb += q * q;
                }
                long double got = a->covariance[(g * a->d + i) * a->d + j] * (long double)columns;
                double units = (double)(fabsl(got - ab) / (UNIT_ROUNDOFF * sqrtl(aa * bb)));
                if (!(units <= worst))
                    worst = units;
            }
    return worst;
}

static double apply_units(const shape *s, const arrays *a)
{
    const double *other_mean = a->mean + 2 * s->channels;
    double worst = 0;
    for (size_t k = 0; k < s->batch * s->spatial; k += 7)
        for (size_t c = 0; c < s->channels; c++) {
            long double sum = 0, size = 0;
            for (size_t j = 0; j < a->d; j++) {
                size_t at = c / a->d * a->d + j;
                long double p = a->a[c * a->d + j] * centred(s, a->x, a->mean, at, k);
                long double q = a->b[c * a->d + j] * centred(s, a->other, other_mean, at, k);
                sum += p + q, size += fabsl(p) + fabsl(q);
            }
            double units = (double)(fabsl(a->y[place(s, c, k)] - sum) / (UNIT_ROUNDOFF * size));
            if (!(units <= worst))
                worst = units;
        }
    return worst;
}

static uint64_t hash_covariance(uint64_t hash, const shape *s, const arrays *a, size_t arrays_count)
{
    hash = hash_bytes(hash, a->mean, 2 * arrays_count * s->channels * sizeof(double));
    hash = hash_bytes(hash, a->peak, arrays_count * s->channels * sizeof(double));
    return hash_bytes(hash, a->covariance, a->matrix * sizeof(double));
}

static int fail(const shape *s, const char *what)
{
    printf("FAIL %s whiten (%zu, %zu, %zu) groups %zu layout %d: %s, %d threads: %s\n", DTYPE, s->batch, s->channels,
           s->spatial, s->groups, (int)s->layout, cnorm_isa(), cnorm_get_num_threads(), what);
    return 1;
}

/* Whether `units`, which also go into the worst, are too many. */
static int judge(const shape *s, double units, double *worst, const char *what)
{
    *worst = units <= *worst ? *worst : units;
    return units <= UNITS_ALLOWED ? 0 : fail(s, what);
}

static check_result check_shape(const shape *s, double *worst)
{
    check_result result = {0, 0};
    arrays a = make_arrays(s);
    const double *other_mean = a.mean + 2 * s->channels;
    bool measured = is_measured(a.n);
    for (int i = 0; choose_variant(i); i++) {
        cnorm_status status = covariance(s, &a, NULL);
        uint64_t hash = hash_covariance(HASH_START, s, &a, 1);
        if (i == 0 && measured)
            result.failures += judge(s, covariance_units(s, &a, a.x, a.mean), worst, "covariance is too far off");
        if (status == CNORM_OK)
            status = covariance(s, &a, a.other);
        hash = hash_covariance(hash, s, &a, 2);
        if (i == 0 && measured)
            result.failures += judge(s, covariance_units(s, &a, a.other, other_mean), worst,
                                     "covariance with another array is too far off");
        if (status == CNORM_OK)
            status = apply(s, &a);
        hash = hash_bytes(hash, a.y, a.n * sizeof(real));
        if (i == 0 && measured)
            result.failures += judge(s, apply_units(s, &a), worst, "product is too far off");
        if (status != CNORM_OK)
            result.failures += fail(s, cnorm_status_string(status));
        if (i == 0)
            result.hash = hash;
        else if (hash != result.hash)
            result.failures += fail(s, "bits differ from the baseline's");
    }
    free_arrays(&a);
    return result;
}

static int expect(cnorm_status got, cnorm_status wanted, const char *what)
{
    if (got == wanted)
        return 0;
    printf("FAIL %s whiten, %s: got \"%s\"\n", DTYPE, what, cnorm_status_string(got));
    return 1;
}

static int check_errors(void)
{
    shape s = {4, 4, 3, 2, CNORM_CHANNELS_FIRST, 0}, odd = s, empty = s;
    odd.groups = 3, empty.batch = 0;
    arrays a = make_arrays(&s);
    int failures = expect(covariance(&odd, &a, NULL), CNORM_ERROR_VALUE, "groups do not divide channels");
    failures += expect(covariance(&empty, &a, NULL), CNORM_ERROR_VALUE, "covariance of nothing");
    failures += expect(apply(&empty, &a), CNORM_OK, "product of nothing");
    real *x = a.x, *y = a.y;
    a.y = a.x + 1;
    failures += expect(apply(&s, &a), CNORM_ERROR_OVERLAP, "y overlaps x");
    a.y = a.other;
    failures += expect(apply(&s, &a), CNORM_ERROR_OVERLAP, "y is the other array");
    a.y = y, a.x = NULL;
    failures += expect(covariance(&s, &a, NULL), CNORM_ERROR_NULL, "no x");
    failures += expect(apply(&s, &a), CNORM_ERROR_NULL, "no x to map");
    a.x = x, a.workspace_size = 8, a.apply_size = 8;
    failures += expect(covariance(&s, &a, NULL), CNORM_ERROR_WORKSPACE, "small workspace");
    failures += expect(apply(&s, &a), CNORM_ERROR_WORKSPACE, "small workspace of the product");
    free_arrays(&a);
    return failures;
}

check_result CN_DTYPE_NAME(check_whiten, CN_REAL)(void)
{
    check_result all = {check_errors(), HASH_START};
    double worst = 0;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        check_result one = check_shape(&shapes[i], &worst);
        all.failures += one.failures;
        all.hash = hash_bytes(all.hash, &one.hash, sizeof one.hash);
    }
    printf("%-3s %-20s worst %5.2f units  hash %016llx\n", DTYPE, "whiten", MEASURABLE ? worst : NAN,
           (unsigned long long)all.hash);
    return all;
}
