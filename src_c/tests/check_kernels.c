/* The kernels of one dtype (-DCN_REAL=f32 or f64): the baseline against a plain computation, and every other level and
 * thread count against the bits of the baseline.
 *
 * A unit is u max(1, |xhat|) |weight| + u |bias|.
 */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6

static const problem problems[] = {
    {LAYER, 3, 1, 1, 1, 0, 0, 1},          {LAYER, 5, 70, 1, 1, 0, 1e4, 1},        {LAYER, 64, 768, 1, 1, 0, 0, 1},
    {LAYER, 1000, 257, 1, 1, 0, -3, 1e-3}, {LAYER, 2, 200003, 1, 1, 0, 100, 0.01}, {LAYER, 3, 33, 1, 1, 0, 0, 1e30},
    {LAYER, 3, 33, 1, 1, 0, 0, 1e-30},     {RMS, 64, 768, 1, 1, 0, 0, 1},          {RMS, 2, 200003, 1, 1, 0, 1, 1},
    {RMS, 7, 13, 1, 1, 0, 0, 1e25},        {GROUP, 2, 12, 35, 4, 0, 10, 1},        {GROUP, 2, 12, 35, 4, 1, 10, 1},
    {GROUP, 2, 320, 1024, 32, 0, 0, 1},    {GROUP, 2, 320, 1024, 32, 1, 0, 1},     {GROUP, 40, 64, 1, 8, 0, 5, 1},
    {INSTANCE, 3, 5, 4097, 1, 0, 1e3, 1},  {INSTANCE, 3, 5, 4097, 1, 1, 1e3, 1},   {INSTANCE, 20, 3, 50, 1, 1, 0, 1e28},
    {BATCH, 32, 24, 49, 1, 0, 1e4, 1},     {BATCH, 32, 24, 49, 1, 1, 1e4, 1},      {BATCH, 100, 640, 1, 1, 0, 0, 1},
    {BATCH, 4, 3, 60000, 1, 0, 50, 2},     {BATCH, 4, 3, 60000, 1, 1, 50, 2},      {BATCH, 9, 7, 1, 1, 0, 0, 1e30},
    {INFERENCE, 8, 24, 49, 1, 0, 3, 1},    {INFERENCE, 8, 24, 490, 1, 1, 3, 1},    {INFERENCE, 50, 33, 1, 1, 0, 3, 1},
    {INFERENCE, 3, 70, 49, 1, 0, 3, 1},
};

typedef struct {
    size_t n, parameters, statistics, workspace_size;
    real *x, *y, *weight, *bias, *mean, *rstd, *running_mean, *running_var;
    void *workspace;
} arrays;

static size_t workspace_of(const problem *p)
{
    switch (p->op) {
    case LAYER:
        return CN_API(layer_norm_forward_workspace)(p->batch, p->channels);
    case RMS:
        return CN_API(rms_norm_forward_workspace)(p->batch, p->channels);
    case GROUP:
        return CN_API(group_norm_forward_workspace)(p->batch, p->channels, p->spatial, p->groups, p->layout);
    case INSTANCE:
        return CN_API(instance_norm_forward_workspace)(p->batch, p->channels, p->spatial, p->layout);
    case BATCH:
        return CN_API(batch_norm_forward_workspace)(p->batch, p->channels, p->spatial, p->layout);
    default:
        return CN_API(batch_norm_inference_workspace)(p->batch, p->channels, p->spatial, p->layout);
    }
}

static arrays make_arrays(const problem *p)
{
    arrays a = {.n = count_elements(p), .parameters = p->channels};
    a.statistics = p->batch * p->channels;
    a.workspace_size = workspace_of(p);
    a.x = allocate(a.n * sizeof(real)), a.y = allocate(a.n * sizeof(real));
    a.weight = allocate(a.parameters * sizeof(real)), a.bias = allocate(a.parameters * sizeof(real));
    a.mean = allocate(a.statistics * sizeof(real)), a.rstd = allocate(a.statistics * sizeof(real));
    a.running_mean = allocate(a.parameters * sizeof(real)), a.running_var = allocate(a.parameters * sizeof(real));
    a.workspace = allocate(a.workspace_size);
    for (size_t i = 0; i < a.n; i++)
        a.x[i] = (real)(p->offset + p->scale * noise());
    for (size_t c = 0; c < p->channels; c++)
        a.weight[c] = (real)(20 * noise()), a.bias[c] = (real)noise();
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->x), free(a->y), free(a->weight), free(a->bias), free(a->mean), free(a->rstd);
    free(a->running_mean), free(a->running_var), free(a->workspace);
}

static cnorm_status run(const problem *p, arrays *a)
{
    const double eps = 1e-5, momentum = 0.25;
    memset(a->y, 0xff, a->n * sizeof(real));
    memset(a->mean, 0, a->statistics * sizeof(real));
    memset(a->rstd, 0, a->statistics * sizeof(real));
    for (size_t c = 0; c < p->channels; c++)
        a->running_mean[c] = (real)p->offset, a->running_var[c] = (real)(p->scale * p->scale + 0.5);
    switch (p->op) {
    case LAYER:
        return CN_API(layer_norm_forward)(a->y, a->mean, a->rstd, a->x, a->weight, a->bias, p->batch, p->channels, eps,
                                          a->workspace, a->workspace_size);
    case RMS:
        return CN_API(rms_norm_forward)(a->y, a->rstd, a->x, a->weight, a->bias, p->batch, p->channels, eps, 0,
                                        a->workspace, a->workspace_size);
    case GROUP:
        return CN_API(group_norm_forward)(a->y, a->mean, a->rstd, a->x, a->weight, a->bias, p->batch, p->channels,
                                          p->spatial, p->groups, eps, p->layout, a->workspace, a->workspace_size);
    case INSTANCE:
        return CN_API(instance_norm_forward)(a->y, a->mean, a->rstd, a->running_mean, a->running_var, a->x, a->weight,
                                             a->bias, p->batch, p->channels, p->spatial, eps, momentum, p->layout,
                                             a->workspace, a->workspace_size);
    case BATCH:
        return CN_API(batch_norm_forward)(a->y, a->mean, a->rstd, a->running_mean, a->running_var, a->x, a->weight,
                                          a->bias, p->batch, p->channels, p->spatial, eps, momentum, 1, p->layout,
                                          a->workspace, a->workspace_size);
    default:
        return CN_API(batch_norm_inference)(a->y, a->x, a->running_mean, a->running_var, a->weight, a->bias, p->batch,
                                            p->channels, p->spatial, eps, p->layout, a->workspace, a->workspace_size);
    }
}

static double worst_units(const problem *p, const arrays *a)
{
    reference *r = reference_statistics(p, a->x);
    double worst = 0;
    size_t g, c;
    for (size_t i = 0; i < a->n; i++) {
        locate(p, i, &g, &c);
        wide mean = r[g].mean, low = r[g].correction, variance = r[g].square / r[g].count;
        if (p->op == INFERENCE)
            mean = a->running_mean[c], low = 0, variance = a->running_var[c];
        wide xhat = ((a->x[i] - mean) - low) / sqrt(variance + 1e-5);
        wide exact = xhat * a->weight[c] + a->bias[c], size = fabs(xhat) > 1 ? fabs(xhat) : 1;
        wide bound = UNIT_ROUNDOFF * (size * fabs((wide)a->weight[c]) + fabs((wide)a->bias[c]));
        double units = (double)(fabs(a->y[i] - exact) / (bound > 0 ? bound : 1));
        if (!(units <= worst))
            worst = units;
    }
    free(r);
    return worst;
}

static uint64_t hash_outputs(const problem *p, const arrays *a)
{
    uint64_t hash = hash_bytes(HASH_START, a->y, a->n * sizeof(real));
    hash = hash_bytes(hash, a->mean, a->statistics * sizeof(real));
    hash = hash_bytes(hash, a->rstd, a->statistics * sizeof(real));
    hash = hash_bytes(hash, a->running_mean, p->channels * sizeof(real));
    return hash_bytes(hash, a->running_var, p->channels * sizeof(real));
}

static int check_problem(const problem *p, uint64_t *hash, double *worst)
{
    int failures = 0;
    arrays a = make_arrays(p);
    uint64_t baseline = 0;
    for (int variant = 0; choose_variant(variant); variant++) {
        cnorm_status status = run(p, &a);
        uint64_t bits = hash_outputs(p, &a);
        if (variant == 0) {
            double units = is_measured(a.n) ? worst_units(p, &a) : 0;
            *worst = units > *worst ? units : *worst;
            failures += !(units <= UNITS_ALLOWED);
            *hash = hash_bytes(*hash, &bits, sizeof bits);
            baseline = bits;
        }
        if (status != CNORM_OK || bits != baseline) {
            failures++;
            report_failure(p, "", status != CNORM_OK ? cnorm_status_string(status) : "other bits than the baseline");
        }
    }
    free_arrays(&a);
    return failures;
}

check_result CN_DTYPE_NAME(check_kernels, CN_REAL)(void)
{
    check_result result = {0, HASH_START};
    for (op o = LAYER; o < OPS; o++) {
        double worst = 0;
        uint64_t hash = HASH_START;
        for (size_t i = 0; i < COUNT_OF(problems); i++)
            if (problems[i].op == o)
                result.failures += check_problem(&problems[i], &hash, &worst);
        printf("%-3s %-20s worst %5.2f units  hash %016llx\n", DTYPE, op_names[o], MEASURABLE ? worst : NAN,
               (unsigned long long)hash);
        result.hash = hash_bytes(result.hash, &hash, sizeof hash);
    }
    return result;
}
