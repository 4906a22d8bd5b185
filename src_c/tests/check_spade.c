/* SPADE on every level and with several threads: against a plain computation, and the same bits everywhere. Gamma and beta
 * have a value for each element, for each position, for each channel, or one in all.
 */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define FORWARD_UNITS 6
#define BACKWARD_UNITS 16
#define EPS 1e-5
#define OFFSET 1.0

typedef struct {
    problem base; /* of the op that has the same groups */
    size_t groups;
    cnorm_strides gamma, beta;
} spade_problem;

typedef struct {
    real *y, *dx, *dgamma, *dbeta, *mean, *rstd, *running_mean, *running_var;
    real *x, *dy, *gamma, *beta;
    void *workspace;
    size_t n, statistics, size;
} spade_arrays;

/* Where the value for element i is. */
static size_t place_of(const problem *p, cnorm_strides s, size_t i)
{
    size_t within = i % (p->channels * p->spatial);
    bool last = p->layout == CNORM_CHANNELS_LAST;
    size_t c = last ? within % p->channels : within / p->spatial,
           position = last ? within / p->channels : within % p->spatial;
    return i / (p->channels * p->spatial) * s.batch + c * s.channel + position * s.spatial;
}

static real *random_array(size_t n, double offset, double scale)
{
    real *array = allocate(n * sizeof(real));
    for (size_t i = 0; i < n; i++)
        array[i] = (real)(offset + scale * noise());
    return array;
}

static spade_arrays make_spade(const spade_problem *s)
{
    const problem *p = &s->base;
    spade_arrays a = {.n = count_elements(p), .statistics = count_groups(p)};
    random_state = 1;
    a.x = random_array(a.n, p->offset, p->scale), a.dy = random_array(a.n, 0, 1);
    a.gamma = random_array(a.n, 0, 2), a.beta = random_array(a.n, 0, 1);
    real **const outputs[] = {&a.y, &a.dx, &a.dgamma, &a.dbeta};
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        *outputs[i] = random_array(a.n, 0, 0);
    a.mean = random_array(a.statistics, 0, 0), a.rstd = random_array(a.statistics, 0, 0);
    a.running_mean = random_array(p->channels, 0, 0), a.running_var = random_array(p->channels, 1, 0);
    size_t forward = CN_API(spade_forward_workspace)(p->batch, p->channels, p->spatial, s->groups, p->layout);
    size_t backward = CN_API(spade_backward_workspace)(p->batch, p->channels, p->spatial, s->groups, p->layout);
    a.size = forward > backward ? forward : backward;
    a.workspace = allocate(a.size);
    return a;
}

static void free_spade(spade_arrays *a)
{
    void *const all[] = {a->y,  a->dx,           a->dgamma,      a->dbeta, a->mean, a->rstd,     a->x,
                         a->dy, a->running_mean, a->running_var, a->gamma, a->beta, a->workspace};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        free(all[i]);
}

static cnorm_status run_spade(const spade_problem *s, spade_arrays *a)
{
    const problem *p = &s->base;
    for (size_t c = 0; c < p->channels; c++)
        a->running_mean[c] = 0, a->running_var[c] = 1;
    bool pooled = s->groups == 0;
    cnorm_status status =
        CN_API(spade_forward)(a->y, a->mean, a->rstd, pooled ? a->running_mean : NULL, pooled ? a->running_var : NULL,
                              a->x, a->gamma, s->gamma, a->beta, s->beta, p->batch, p->channels, p->spatial, s->groups,
                              EPS, OFFSET, 0.1, 1, p->layout, a->workspace, a->size);
    if (status != CNORM_OK)
        return status;
    return CN_API(spade_backward)(a->dx, a->dgamma, a->dbeta, a->dy, a->x, a->mean, a->rstd, a->gamma, s->gamma,
                                  p->batch, p->channels, p->spatial, s->groups, OFFSET, 1, p->layout, a->workspace,
                                  a->size);
}

/* The sums of g and g * xhat of each group, its largest |g| and |dx|. */
typedef struct {
    long double g, g_hat, most, largest;
} gradient_reference;

static long double hat_of(const spade_arrays *a, const reference *r, size_t i, size_t g)
{
    return ((a->x[i] - r[g].mean) - r[g].correction) / sqrtl(r[g].square / r[g].count + EPS);
}

static double forward_units(const spade_problem *s, const spade_arrays *a, const reference *r)
{
    double worst = 0;
    size_t g, c;
    for (size_t i = 0; i < a->n; i++) {
        locate(&s->base, i, &g, &c);
        long double hat = hat_of(a, r, i, g), beta = a->beta[place_of(&s->base, s->beta, i)];
        long double weight = (real)((real)OFFSET + a->gamma[place_of(&s->base, s->gamma, i)]);
        long double bound = UNIT_ROUNDOFF * (fmaxl(fabsl(hat), 1) * fabsl(weight) + fabsl(beta));
        double units = (double)(fabsl(a->y[i] - (hat * weight + beta)) / bound);
        worst = units <= worst ? worst : units;
    }
    return worst;
}

static double backward_units(const spade_problem *s, const spade_arrays *a, const reference *r)
{
    gradient_reference *sums = allocate(a->statistics * sizeof *sums);
    memset(sums, 0, a->statistics * sizeof *sums);
    double worst = 0;
    long double most = 0; /* |dgamma| */
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < a->n; i++) {
            size_t g, c;
            locate(&s->base, i, &g, &c);
            long double hat = hat_of(a, r, i, g), n = r[g].count, dgamma = a->dy[i] * hat;
            long double grad = a->dy[i] * (OFFSET + (long double)a->gamma[place_of(&s->base, s->gamma, i)]);
            if (pass == 0) {
                sums[g].g += grad, sums[g].g_hat += grad * hat;
                sums[g].most = fmaxl(sums[g].most, fabsl(grad));
                most = fmaxl(most, fabsl(dgamma));
                continue;
            }
            long double rstd = 1 / sqrtl(r[g].square / n + EPS), terms = rstd * sums[g].most;
            long double dx = (grad - sums[g].g / n - hat * sums[g].g_hat / n) * rstd;
            if (pass == 1) {
                sums[g].largest = fmaxl(sums[g].largest, fabsl(dx));
                continue;
            }
            long double scale = sums[g].largest < terms / 2 ? terms : sums[g].largest; /* where dx cancels */
            long double error = fmaxl(fabsl(a->dx[i] - dx) / scale, fabsl(a->dgamma[i] - dgamma) / most);
            double units = a->dbeta[i] == a->dy[i] ? (double)(error / UNIT_ROUNDOFF) : INFINITY;
            worst = units <= worst ? worst : units;
        }
    free(sums);
    return worst;
}

static uint64_t hash_spade(const spade_problem *s, const spade_arrays *a)
{
    uint64_t hash = HASH_START;
    const real *const outputs[] = {a->y, a->dx, a->dgamma, a->dbeta};
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        hash = hash_bytes(hash, outputs[i], a->n * sizeof(real));
    hash = hash_bytes(hash, a->mean, a->statistics * sizeof(real));
    hash = hash_bytes(hash, a->rstd, a->statistics * sizeof(real));
    hash = hash_bytes(hash, a->running_mean, s->base.channels * sizeof(real));
    return hash_bytes(hash, a->running_var, s->base.channels * sizeof(real));
}

/* Whether the errors are too large. */
static int measure_spade(const spade_problem *s, const spade_arrays *a, double *forward, double *backward)
{
    reference *r = reference_statistics(&s->base, a->x);
    double y = forward_units(s, a, r), dx = backward_units(s, a, r);
    *forward = y > *forward ? y : *forward, *backward = dx > *backward ? dx : *backward;
    free(r);
    return !(y <= FORWARD_UNITS) + !(dx <= BACKWARD_UNITS);
}

static int check_spade_problem(const spade_problem *s, uint64_t *hash, double *forward, double *backward)
{
    int failures = 0;
    spade_arrays a = make_spade(s);
    uint64_t baseline = 0;
    for (int variant = 0; choose_variant(variant); variant++) {
        cnorm_status status = run_spade(s, &a);
        uint64_t bits = hash_spade(s, &a);
        if (variant == 0) {
            failures += is_measured(a.n) ? measure_spade(s, &a, forward, backward) : 0;
            *hash = hash_bytes(*hash, &bits, sizeof bits);
            baseline = bits;
        }
        if (status != CNORM_OK || bits != baseline) {
            failures++;
            report_failure(&s->base, " (SPADE)",
                           status != CNORM_OK ? cnorm_status_string(status) : "other bits than the baseline");
        }
    }
    free_spade(&a);
    return failures;
}

/* For each element, for each position of a sample, for each channel of a sample, one in all. */
static cnorm_strides strides_of(int kind, const problem *p)
{
    bool last = p->layout == CNORM_CHANNELS_LAST;
    size_t c = p->channels, n = p->spatial;
    const cnorm_strides all[] = {{c * n, last ? 1 : n, last ? c : 1}, {n, 0, 1}, {c, 1, 0}, {0, 0, 0}};
    return all[kind];
}

check_result CN_DTYPE_NAME(check_spade, CN_REAL)(void)
{
    static const size_t shapes[][3] = {{2, 6, 35}, {3, 4, 1}, {1, 2, 70001}, {9, 300, 4}, {2, 20, 4097}, {6, 2, 600}};
    check_result result = {0, HASH_START};
    double forward = 0, backward = 0;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (int kind = 0; kind < 4; kind++)
            for (int layout = 0; layout < 2; layout++)
                for (op o = GROUP; o <= BATCH; o++) {
                    problem base = {o, shapes[i][0], shapes[i][1], shapes[i][2], 2, (cnorm_layout)layout, 100, 3};
                    size_t groups = o == GROUP ? 2 : o == INSTANCE ? base.channels : 0;
                    if (o == INSTANCE && base.spatial == 1)
                        continue; /* every gradient is 0 */
                    spade_problem s = {base, groups, strides_of(kind, &base), strides_of((kind + i) % 4, &base)};
                    result.failures += check_spade_problem(&s, &result.hash, &forward, &backward);
                }
    report_op("spade", forward, backward, result.hash);
    return result;
}
