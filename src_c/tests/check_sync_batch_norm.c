/* Batch norm over ranks, of one process that plays them all, one after the other: every level and number of threads against
 * the baseline, and that against a plain computation in long double on the samples of all. Compiled once per dtype. */
#include "check.h"
#include "check_problem.h"

#include <string.h>

enum { RANKS = 4, MOMENTS_ROWS = 5, SUMS_ROWS = 8 };

/* Samples of the ranks: one is empty. */
typedef struct {
    size_t samples[RANKS], channels, spatial;
    cnorm_layout layout;
    double offset, scale, eps;
} ranks_problem;

static const ranks_problem problems[] = {
    {{3, 0, 5, 1}, 1, 1, CNORM_CHANNELS_FIRST, 0, 1, 1e-5},
    {{1, 1, 1, 1}, 37, 1, CNORM_CHANNELS_FIRST, 3, 1, 1e-5},
    {{3, 0, 5, 1}, 7, 11, CNORM_CHANNELS_FIRST, 1e4, 1, 1e-5},
    {{3, 0, 5, 1}, 7, 11, CNORM_CHANNELS_LAST, 1e4, 1, 1e-5},
    {{40, 9, 0, 2}, 600, 1, CNORM_CHANNELS_LAST, 0, 1, 1e-5},
    {{2, 1, 0, 1}, 3, 70001, CNORM_CHANNELS_FIRST, 10, 1, 1e-5},
    {{2, 1, 0, 1}, 3, 70001, CNORM_CHANNELS_LAST, 10, 1, 1e-5},
    {{2, 0, 1, 1}, 65, 1300, CNORM_CHANNELS_LAST, 0, 1, 0},
    {{3, 0, 5, 1}, 7, 11, CNORM_CHANNELS_FIRST, 0, sizeof(real) == 4 ? 0x1p+100 : 0x1p+900, 1e-5},
    {{3, 0, 5, 1}, 7, 11, CNORM_CHANNELS_LAST, 0, sizeof(real) == 4 ? 0x1p-100 : 0x1p-900, 0},
};

typedef struct {
    problem all; /* the samples of all ranks as one */
    size_t n, rank_elements[RANKS];
    real *x, *dy, *weight;
    real *results; /* y, dx (n each); mean, rstd, running_mean, running_var, dweight, dbias (channels each rank) */
    size_t size;
} ranks_data;

static ranks_data draw_data(const ranks_problem *p)
{
    ranks_data d = {.all = {BATCH, 0, p->channels, p->spatial, 1, p->layout, p->offset, p->scale}};
    for (size_t rank = 0; rank < RANKS; rank++) {
        d.all.batch += p->samples[rank];
        d.rank_elements[rank] = p->samples[rank] * p->channels * p->spatial;
    }
    d.n = count_elements(&d.all);
    d.size = 2 * d.n + 6 * RANKS * p->channels;
    d.x = allocate(d.n * sizeof(real)), d.dy = allocate(d.n * sizeof(real));
    d.weight = allocate(p->channels * sizeof(real)), d.results = allocate(d.size * sizeof(real));
    for (size_t i = 0; i < d.n; i++)
        d.x[i] = (real)((p->offset + noise()) * p->scale), d.dy[i] = (real)noise();
    for (size_t c = 0; c < p->channels; c++)
        d.weight[c] = (real)(2 + noise());
    return d;
}

/* All passes on all ranks; the number of calls that failed. */
static int run_ranks(const ranks_problem *p, const ranks_data *d)
{
    size_t m = p->channels, sizes[4] = {0}, most = 0;
    double counts[RANKS], *moments = allocate(RANKS * MOMENTS_ROWS * m * sizeof(double));
    double *merged = allocate(MOMENTS_ROWS * m * sizeof(double)),
           *sums = allocate(RANKS * SUMS_ROWS * m * sizeof(double));
    real *y = d->results, *dx = y + d->n, *statistics = dx + d->n;
    int failed = 0;
    for (size_t rank = 0; rank < RANKS; rank++) {
        size_t b = p->samples[rank];
        sizes[0] = CN_API(sync_batch_norm_moments_workspace)(b, m, p->spatial, p->layout);
        sizes[1] = CN_API(sync_batch_norm_apply_workspace)(b, m, p->spatial, p->layout);
        sizes[2] = CN_API(sync_batch_norm_backward_sums_workspace)(b, m, p->spatial, p->layout);
        sizes[3] = CN_API(sync_batch_norm_backward_apply_workspace)(b, m, p->spatial, p->layout);
        for (size_t i = 0; i < 4; i++)
            most = sizes[i] > most ? sizes[i] : most;
        counts[rank] = (double)(b * p->spatial);
    }
    void *workspace = allocate(most);
    for (size_t rank = 0, at = 0; rank < RANKS; at += d->rank_elements[rank++])
        failed += CN_API(sync_batch_norm_moments)(moments + rank * MOMENTS_ROWS * m, d->x + at, p->samples[rank], m,
                                                  p->spatial, p->eps, p->layout, workspace, most) != CNORM_OK;
    for (size_t rank = 0, at = 0; rank < RANKS; at += d->rank_elements[rank++]) {
        real *mean = statistics + rank * 6 * m, *rstd = mean + m, *running_mean = rstd + m;
        for (size_t c = 0; c < m; c++)
            running_mean[c] = 0, running_mean[m + c] = 1;
        failed += CN_API(sync_batch_norm_merge)(merged, mean, rstd, running_mean, running_mean + m, counts, moments,
                                                RANKS, m, p->eps, 0.1, 1) != CNORM_OK;
        failed += CN_API(sync_batch_norm_apply)(y + at, d->x + at, merged, d->weight, NULL, p->samples[rank], m,
                                                p->spatial, p->layout, workspace, most) != CNORM_OK;
        failed += CN_API(sync_batch_norm_backward_sums)(sums + rank * SUMS_ROWS * m, d->dy + at, d->x + at, mean, rstd,
                                                        p->samples[rank], m, p->spatial, p->layout, workspace,
                                                        most) != CNORM_OK;
    }
    for (size_t rank = 0, at = 0; rank < RANKS; at += d->rank_elements[rank++]) {
        real *mean = statistics + rank * 6 * m, *dweight = mean + 4 * m;
        failed += CN_API(sync_batch_norm_backward_apply)(dx + at, dweight, dweight + m, d->dy + at, d->x + at, mean,
                                                         mean + m, d->weight, sums + rank * SUMS_ROWS * m, counts, sums,
                                                         RANKS, p->samples[rank], m, p->spatial, p->layout, workspace,
                                                         most) != CNORM_OK;
    }
    free(moments), free(merged), free(sums), free(workspace);
    return failed;
}

/* The worst errors of y (in units of max(1, |hat|) |weight|) and of dx (of the largest of its channel, or half its terms). */
static void worst_errors(const ranks_problem *p, const ranks_data *d, long double *y_worst, long double *dx_worst)
{
    reference *r = reference_statistics(&d->all, d->x);
    long double *sums = allocate(4 * p->channels * sizeof *sums), *most = sums + 2 * p->channels;
    for (size_t i = 0; i < 4 * p->channels; i++)
        sums[i] = 0;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < d->n; i++) {
            size_t g, c;
            locate(&d->all, i, &g, &c);
            long double rstd = 1 / sqrtl(r[c].square / r[c].count + p->eps);
            long double hat = (((long double)d->x[i] - r[c].mean) - r[c].correction) * rstd;
            long double dx =
                rstd * d->weight[c] * (d->dy[i] - sums[2 * c] / r[c].count - hat * (sums[2 * c + 1] / r[c].count));
            if (pass == 0) {
                long double error = fabsl(d->results[i] - hat * d->weight[c]) / (fmaxl(1, fabsl(hat)) * d->weight[c]);
                *y_worst = error >= 0 ? fmaxl(*y_worst, error) : INFINITY; /* a NaN is infinitely wrong */
                most[2 * c] += d->dy[i], most[2 * c + 1] += d->dy[i] * hat;
            } else if (pass == 1) {
                most[2 * c] = fmaxl(most[2 * c], fmaxl(fabsl(dx), rstd * d->weight[c] * fabsl(d->dy[i]) / 2));
            } else {
                long double error = fabsl(d->results[d->n + i] - dx) / most[2 * c];
                *dx_worst = error >= 0 ? fmaxl(*dx_worst, error) : INFINITY;
            }
            if (pass == 0 && i + 1 == d->n)
                for (size_t k = 0; k < 2 * p->channels; k++)
                    sums[k] = most[k], most[k] = 0;
        }
    free(r), free(sums);
}

static int check_results(const ranks_problem *p, const ranks_data *d, double *forward, double *backward)
{
    size_t block = 6 * p->channels, shared = 4 * p->channels * sizeof(real);
    const real *statistics = d->results + 2 * d->n;
    long double y = 0, dx = 0;
    int failures = 0;
    for (size_t rank = 1; rank < RANKS; rank++)
        if (memcmp(statistics + rank * block, statistics, shared)) {
            report_failure(&d->all, " over ranks", "statistics differ between ranks");
            failures++;
        }
    if (is_measured(d->n))
        worst_errors(p, d, &y, &dx);
    if (!(y <= 6 * UNIT_ROUNDOFF) || !(dx <= 16 * UNIT_ROUNDOFF)) {
        report_failure(&d->all, " over ranks", "too far from the exact result");
        printf("  y %.2Lf units, dx %.2Lf\n", y / UNIT_ROUNDOFF, dx / UNIT_ROUNDOFF);
        failures++;
    }
    *forward = fmax(*forward, (double)(y / UNIT_ROUNDOFF));
    *backward = fmax(*backward, (double)(dx / UNIT_ROUNDOFF));
    return failures;
}

/* Wrong arguments are refused. */
static int check_refusals(void)
{
    real x[4] = {1, 2, 3, 4}, statistics[2] = {1, 1};
    double numbers[2 * SUMS_ROWS] = {0}, counts[1] = {2}, workspace[512];
    size_t size = sizeof workspace;
    cnorm_layout first = CNORM_CHANNELS_FIRST;
    const cnorm_status got[] = {
        CN_API(sync_batch_norm_moments)(NULL, x, 2, 2, 1, 0, first, workspace, size),
        CN_API(sync_batch_norm_moments)(numbers, x, 2, 2, 1, -1, first, workspace, size),
        CN_API(sync_batch_norm_moments)(numbers, x, 2, 2, 1, 0, first, NULL, 0),
        CN_API(sync_batch_norm_merge)(numbers, NULL, NULL, statistics, NULL, counts, numbers, 1, 2, 0, 0, 1),
        CN_API(sync_batch_norm_apply)(x, x, NULL, NULL, NULL, 2, 2, 1, first, workspace, size),
        CN_API(sync_batch_norm_apply)(x + 1, x, numbers, NULL, NULL, 1, 2, 1, first, workspace, size),
        CN_API(sync_batch_norm_backward_sums)(numbers, x, x, NULL, statistics, 2, 2, 1, first, workspace, size),
        CN_API(sync_batch_norm_backward_apply)(NULL, NULL, NULL, x, x, statistics, statistics, NULL, NULL, counts,
                                               numbers, 1, 2, 2, 1, first, workspace, size)};
    const cnorm_status wanted[] = {CNORM_ERROR_NULL, CNORM_ERROR_VALUE,   CNORM_ERROR_WORKSPACE, CNORM_ERROR_NULL,
                                   CNORM_ERROR_NULL, CNORM_ERROR_OVERLAP, CNORM_ERROR_NULL,      CNORM_ERROR_NULL};
    int failures = 0;
    for (size_t i = 0; i < COUNT_OF(got); i++)
        if (got[i] != wanted[i]) {
            printf("FAIL %s batch_norm over ranks, refusal %zu: got \"%s\"\n", DTYPE, i, cnorm_status_string(got[i]));
            failures++;
        }
    return failures;
}

check_result CN_DTYPE_NAME(check_sync_batch_norm, CN_REAL)(void)
{
    check_result result = {check_refusals(), HASH_START};
    double forward = 0, backward = 0;
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        ranks_data d = draw_data(&problems[i]);
        uint64_t first = 0;
        for (int variant = 0; choose_variant(variant); variant++) {
            if (run_ranks(&problems[i], &d)) {
                report_failure(&d.all, " over ranks", "refused");
                result.failures++;
            }
            uint64_t hash = hash_bytes(HASH_START, d.results, d.size * sizeof(real));
            if (variant == 0) {
                first = hash;
                result.failures += check_results(&problems[i], &d, &forward, &backward);
                result.hash = hash_bytes(result.hash, d.results, d.size * sizeof(real));
            } else if (hash != first) {
                report_failure(&d.all, " over ranks", "other bits than the baseline");
                result.failures++;
            }
        }
        free(d.x), free(d.dy), free(d.weight), free(d.results);
    }
    report_op("batch_norm, ranks", forward, backward, result.hash);
    return result;
}
