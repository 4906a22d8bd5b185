/* The backward kernels of one dtype: the baseline against a plain computation, and every other level, number of threads
 * and choice of outputs, in place too, against the bits of the baseline. Nothing beside the outputs and the workspace is
 * written.
 */
#include "check.h"
#include "check_gradient_units.h"

#include <string.h>

#define UNITS_ALLOWED 16
#define EXPONENT_FACTOR (sizeof(real) == 4 ? 1 : 8)
#define UNTOUCHED 0xff
#define MARGIN 128    /* bytes on either side of an array that is written */
#define LARGE 1000000 /* elements, of which not every choice is tried */

/* x = (offset + scale * noise) * 2^x_exponent, dy = noise * 2^dy_exponent: exponents of float, eight times as much in
 * double. Those beyond some 50 leave the fast path, and large arrays are stored past the caches. */
typedef struct {
    problem problem;
    int x_exponent, dy_exponent;
    double weight_offset;
} backward_problem;

static const backward_problem problems[] = {
    {{LAYER, 0, 7, 1, 1, 0, 0, 1}, 0, 0, 0},          {{LAYER, 5, 1, 1, 1, 0, 3, 1}, 0, 0, 0},
    {{LAYER, 7, 5, 1, 1, 0, 1e4, 1}, 0, 0, 0},        {{LAYER, 70, 70, 1, 1, 0, 1e4, 1}, 0, 0, 0},
    {{LAYER, 4, 33, 1, 1, 0, 0.1, 0}, 0, 0, 0},       {{LAYER, 2500, 39, 1, 1, 0, -3, 1}, 0, 0, 0},
    {{LAYER, 6, 4099, 1, 1, 0, 0, 1}, 0, 0, 0},       {{LAYER, 3, 100003, 1, 1, 0, 100, 0.25}, 0, 0, 0},
    {{LAYER, 5, 33, 1, 1, 0, 0, 1}, 100, 0, 0},       {{LAYER, 5, 33, 1, 1, 0, 0, 1}, 0, 104, 0},
    {{LAYER, 999, 33, 1, 1, 0, 0, 1}, -110, 0, 0},    {{LAYER, 2051, 2051, 1, 1, 0, 1, 1}, 0, 0, 0},
    {{RMS, 70, 70, 1, 1, 0, 0, 1}, 0, 0, 1},          {{RMS, 2500, 39, 1, 1, 0, -3, 1}, 0, 0, 0},
    {{RMS, 3, 100003, 1, 1, 0, 1, 1}, 0, 0, 1},       {{RMS, 7, 13, 1, 1, 0, 0, 1}, -110, 0, 0},
    {{RMS, 7, 13, 1, 1, 0, 0, 1}, 0, -100, 1},        {{GROUP, 0, 4, 3, 2, 0, 0, 1}, 0, 0, 0},
    {{GROUP, 3, 12, 35, 4, 0, 1e4, 1}, 0, 0, 0},      {{GROUP, 3, 12, 35, 4, 1, 1e4, 1}, 0, 0, 0},
    {{GROUP, 40, 66, 1, 6, 0, 5, 1}, 0, 0, 0},        {{GROUP, 2, 70, 4099, 7, 0, 1, 1}, 0, 0, 0},
    {{GROUP, 2, 70, 4099, 7, 1, 1, 1}, 0, 0, 0},      {{GROUP, 2, 6, 50, 2, 0, 0, 1}, 100, 0, 0},
    {{GROUP, 2, 6, 50, 2, 1, 0, 1}, 0, 104, 0},       {{GROUP, 4, 130, 8200, 13, 0, 0, 1}, 0, 0, 0},
    {{INSTANCE, 3, 5, 1, 1, 0, 7, 1}, 0, 0, 0},       {{INSTANCE, 3, 5, 4097, 1, 0, 1e3, 1}, 0, 0, 0},
    {{INSTANCE, 3, 5, 4097, 1, 1, 1e3, 1}, 0, 0, 0},  {{INSTANCE, 90, 3, 51, 1, 1, 0, 1}, 0, -100, 0},
    {{BATCH, 7, 13, 1, 1, 0, 1e4, 1}, 0, 0, 0},       {{BATCH, 33, 24, 49, 1, 0, 1e4, 1}, 0, 0, 0},
    {{BATCH, 33, 24, 49, 1, 1, 1e4, 1}, 0, 0, 0},     {{BATCH, 100, 641, 1, 1, 0, 0, 1}, 0, 0, 0},
    {{GROUP, 2, 4, 9001, 2, 0, 0, 1}, -110, 0, 0},    {{GROUP, 2, 4, 9001, 2, 1, 0, 1}, -110, 0, 0},
    {{BATCH, 20, 3, 901, 1, 0, 0, 1}, 100, 0, 0},     {{BATCH, 20, 3, 901, 1, 1, 0, 1}, 100, 0, 0},
    {{BATCH, 4, 3, 60001, 1, 0, 50, 2}, 0, 0, 0},     {{BATCH, 4, 3, 60001, 1, 1, 50, 2}, 0, 0, 0},
    {{BATCH, 9, 7, 3, 1, 0, 0, 1}, -110, 0, 0},       {{BATCH, 9, 7, 3, 1, 1, 0, 1}, -110, 0, 0},
    {{BATCH, 16, 33, 8200, 1, 1, 0, 1}, 0, 0, 0},     {{BATCH, 5, 256, 196, 1, 0, 3, 1}, 0, 0, 0},
    {{LAYER, 201, 96, 1, 1, 0, -3, 1}, 0, 0, 0},      {{RMS, 78, 128, 1, 1, 0, 2, 1}, 0, 0, 1},
    {{BATCH, 8, 41, 72, 1, 0, 1e4, 1}, 0, 0, 0},      {{INFERENCE, 8, 24, 49, 1, 0, 3, 1}, 0, 0, 0},
    {{INFERENCE, 8, 24, 490, 1, 1, 3, 1}, 0, 0, 0},   {{INFERENCE, 50, 33, 1, 1, 0, 3, 1}, 0, 0, 0},
    {{INFERENCE, 3, 5, 60001, 1, 0, 50, 2}, 0, 0, 0}, {{INFERENCE, 9, 7, 3, 1, 0, 0, 1}, 0, 104, 0},
    {{INFERENCE, 9, 7, 3, 1, 1, 0, 1}, -110, 0, 0},   {{INFERENCE, 2, 3, 66001, 1, 0, 50, 2}, 0, 0, 0},
    {{BATCH, 5, 21, 1056, 1, 0, 50, 2}, 0, 0, 0},     {{BATCH, 75, 1024, 1, 1, 1, 50, 2}, 0, 0, 0},
    {{INFERENCE, 39, 2048, 5, 1, 1, 3, 1}, 0, 0, 0},  {{GROUP, 2, 66, 64, 6, 0, 1e4, 1}, 0, 0, 0},
};

/* An array that is written, in the middle of bytes that are not. */
typedef struct {
    unsigned char *memory;
    size_t size;
} margined;

static margined make_margined(size_t size) { return (margined){allocate(size + 2 * MARGIN), size + 2 * MARGIN}; }

static void *inner(const margined *m) { return m->memory + MARGIN; }

static bool margins_are_untouched(const margined *m)
{
    bool same = true;
    for (size_t i = 0; i < MARGIN; i++)
        same &= m->memory[i] == UNTOUCHED && m->memory[m->size - 1 - i] == UNTOUCHED;
    return same;
}

enum { DX, DWEIGHT, DBIAS, WORKSPACE, WRITTEN, EVERYTHING = (1 << WORKSPACE) - 1 };

/* The arrays of `call`, which may be written where that says const. */
typedef struct {
    backward_call call;
    real *dy, *x, *mean, *rstd, *weight;
    size_t n, parameters, statistics;
    margined written[WRITTEN], baseline[WORKSPACE];
} arrays;

static void fill_inputs(const backward_problem *b, arrays *a)
{
    const problem *p = &b->problem;
    for (size_t i = 0; i < a->n; i++) {
        a->x[i] = (real)ldexp((real)(p->offset + p->scale * noise()), b->x_exponent * EXPONENT_FACTOR);
        a->dy[i] = (real)ldexp(noise(), b->dy_exponent * EXPONENT_FACTOR);
    }
    for (size_t c = 0; a->weight && c < p->channels; c++)
        a->weight[c] = (real)(20 * noise());
}

static double eps_of(const backward_problem *b) { return b->x_exponent < 0 ? 0 : 1e-5; }

/* The statistics that the forward pass saves, or for a batch norm in inference some that fit. */
static void fill_statistics(const backward_problem *b, arrays *a)
{
    memset(a->mean, 0, a->statistics * sizeof(real)); /* which a root mean square norm does not write */
    cnorm_status status = run_forward(b->problem.op, &a->call, inner(&a->written[DX]), a->mean, a->rstd, eps_of(b));
    if (status != CNORM_OK)
        report_failure(&b->problem, " forward, for backward", cnorm_status_string(status)), exit(1);
    for (size_t g = 0; b->problem.op == INFERENCE && g < a->statistics; g++)
        a->mean[g] *= (real)0.75, a->rstd[g] *= (real)1.25;
}

static arrays make_arrays(const backward_problem *b, bool weighted)
{
    const problem *p = &b->problem;
    arrays a = {.n = count_elements(p), .parameters = p->channels, .statistics = count_groups(p)};
    a.dy = allocate(a.n * sizeof(real)), a.x = allocate(a.n * sizeof(real));
    a.mean = allocate(a.statistics * sizeof(real)), a.rstd = allocate(a.statistics * sizeof(real));
    a.weight = weighted ? allocate(a.parameters * sizeof(real)) : NULL;
    a.call = (backward_call){.dy = a.dy,
                             .x = a.x,
                             .mean = a.mean,
                             .rstd = a.rstd,
                             .weight = a.weight,
                             .batch = p->batch,
                             .channels = p->channels,
                             .spatial = p->spatial,
                             .groups = p->groups,
                             .weight_offset = b->weight_offset,
                             .layout = p->layout};
    a.call.workspace_size = backward_workspace(p->op, &a.call);
    const size_t sizes[] = {a.n * sizeof(real), a.parameters * sizeof(real), a.parameters * sizeof(real),
                            a.call.workspace_size};
    for (int k = 0; k < WRITTEN; k++)
        a.written[k] = make_margined(sizes[k]);
    for (int k = 0; k < WORKSPACE; k++)
        a.baseline[k] = make_margined(sizes[k]);
    a.call.dx = inner(&a.written[DX]), a.call.workspace = inner(&a.written[WORKSPACE]);
    a.call.dweight = inner(&a.written[DWEIGHT]), a.call.dbias = inner(&a.written[DBIAS]);
    return a;
}

static void free_arrays(arrays *a)
{
    free(a->dy), free(a->x), free(a->mean), free(a->rstd), free(a->weight);
    for (int k = 0; k < WRITTEN; k++)
        free(a->written[k].memory);
    for (int k = 0; k < WORKSPACE; k++)
        free(a->baseline[k].memory);
}

static uint64_t hash_inputs(const arrays *a)
{
    uint64_t hash = hash_bytes(HASH_START, a->dy, a->n * sizeof(real));
    hash = hash_bytes(hash, a->x, a->n * sizeof(real));
    hash = hash_bytes(hash, a->mean, a->statistics * sizeof(real));
    hash = hash_bytes(hash, a->rstd, a->statistics * sizeof(real));
    return hash_bytes(hash, a->weight, a->weight ? a->parameters * sizeof(real) : 0);
}

/* One call, with the outputs whose bits are in `wanted`; in place, dx is dy. What is wrong with it, or NULL. */
static const char *run(const backward_problem *b, arrays *a, unsigned wanted, bool in_place)
{
    backward_call call = a->call;
    for (int k = 0; k < WRITTEN; k++)
        memset(a->written[k].memory, UNTOUCHED, a->written[k].size);
    if (in_place)
        memcpy(call.dx, a->dy, a->n * sizeof(real)), call.dy = call.dx;
    if (!(wanted & 1u << DX))
        call.dx = NULL;
    if (!(wanted & 1u << DWEIGHT))
        call.dweight = NULL;
    if (!(wanted & 1u << DBIAS))
        call.dbias = NULL;
    cnorm_status status = run_backward(b->problem.op, &call);
    bool touched = false;
    for (int k = 0; k < WRITTEN; k++)
        touched |= !margins_are_untouched(&a->written[k]);
    return status != CNORM_OK ? cnorm_status_string(status) : touched ? "bytes beside an array were written" : NULL;
}

static int compare(const backward_problem *b, arrays *a, unsigned wanted, bool in_place)
{
    const char *remark = run(b, a, wanted, in_place);
    for (int k = 0; k < WORKSPACE && !remark; k++)
        if (wanted & 1u << k && memcmp(a->written[k].memory, a->baseline[k].memory, a->written[k].size))
            remark = "other bits than the baseline";
    if (remark)
        report_failure(&b->problem, in_place ? " backward in place" : " backward", remark);
    return remark != NULL;
}

/* The baseline is kept, with its hash and its error. */
static int keep_baseline(const backward_problem *b, arrays *a, const reference *r, uint64_t *hash, double *worst)
{
    choose_variant(0);
    const char *remark = run(b, a, EVERYTHING, false);
    for (int k = 0; k < WORKSPACE; k++) {
        memcpy(a->baseline[k].memory, a->written[k].memory, a->written[k].size);
        *hash = hash_bytes(*hash, a->baseline[k].memory, a->baseline[k].size);
    }
    double error = is_measured(a->n) ? worst_gradient_units(&b->problem, &a->call, r, eps_of(b)) : 0;
    *worst = fmax(*worst, error);
    if (!remark && !(error <= UNITS_ALLOWED))
        remark = "more units than are promised";
    if (remark)
        report_failure(&b->problem, " backward", remark);
    return remark != NULL;
}

static int check_problem(const backward_problem *b, bool weighted, uint64_t *hash, double *worst)
{
    arrays a = make_arrays(b, weighted);
    fill_inputs(b, &a);
    reference *r = is_measured(a.n) ? reference_statistics(&b->problem, a.x) : NULL;
    fill_statistics(b, &a);
    const bool watched = a.n < LARGE || !check_is_quick;
    const uint64_t inputs = watched ? hash_inputs(&a) : 0;
    int failures = keep_baseline(b, &a, r, hash, worst);
    for (int variant = 0; choose_variant(variant); variant++) {
        for (unsigned wanted = a.n < LARGE && !check_is_quick ? 0 : EVERYTHING; wanted <= EVERYTHING; wanted++)
            failures += compare(b, &a, wanted, false);
        failures += compare(b, &a, EVERYTHING, true);
    }
    if (watched && hash_inputs(&a) != inputs)
        failures++, report_failure(&b->problem, " backward", "inputs were written");
    free(r);
    free_arrays(&a);
    return failures;
}

check_result CN_DTYPE_NAME(check_backward, CN_REAL)(void)
{
    check_result result = {0, HASH_START};
    for (op o = LAYER; o < OPS; o++) {
        double worst = 0;
        uint64_t hash = HASH_START;
        for (const backward_problem *b = problems; b < problems + COUNT_OF(problems); b++) {
            if (b->problem.op != o)
                continue;
            result.failures += check_problem(b, true, &hash, &worst);
            if (count_elements(&b->problem) < LARGE)
                result.failures += check_problem(b, false, &hash, &worst);
        }
        printf("%-3s %-20s worst %5.2f units  hash %016llx, backward\n", DTYPE, op_names[o], MEASURABLE ? worst : NAN,
               (unsigned long long)hash);
        result.hash = hash_bytes(result.hash, &hash, sizeof hash);
    }
    return result;
}
