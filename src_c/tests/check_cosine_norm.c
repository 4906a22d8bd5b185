/* cosine_norm with the norms that normalize gives it: every level and number of threads against the bits of the baseline,
 * that against a plain computation in a wider type, and wrong arguments. Compiled once per dtype. */
#include "check.h"
#include "check_problem.h"

#include <string.h>

#define UNITS_ALLOWED 6

enum { ROWS = 37, COLS = 4099, LENGTH = 33 };

static real x[ROWS * LENGTH], weight[COLS * LENGTH], x_norm[ROWS], weight_norm[COLS], unit[COLS * LENGTH];
static real products[ROWS * COLS], y[ROWS * COLS];

static int fail(const char *what)
{
    printf("FAIL %s cosine_norm: %s\n", DTYPE, what);
    return 1;
}

/* Vectors, the last two of x parallel to the first of weight, and their products. */
static void fill(void)
{
    for (size_t i = 0; i < ROWS * LENGTH; i++)
        x[i] = (real)noise();
    for (size_t i = 0; i < COLS * LENGTH; i++)
        weight[i] = (real)noise();
    for (size_t i = 0; i < LENGTH; i++)
        x[(ROWS - 2) * LENGTH + i] = weight[i], x[(ROWS - 1) * LENGTH + i] = -weight[i];
    memset(x, 0, LENGTH * sizeof(real));
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++) {
            wide sum = 0;
            for (size_t i = 0; i < LENGTH; i++)
                sum += (wide)x[r * LENGTH + i] * weight[c * LENGTH + i];
            products[r * COLS + c] = (real)sum;
        }
}

/* The norms, which have the same bits without the vectors' quotients, and then the cosines. */
static cnorm_status run(double eps)
{
    real beside[COLS];
    cnorm_status status = CN_API(normalize_forward)(unit, beside, weight, COLS, LENGTH, 1, 2, 0, NULL, 0);
    if (status == CNORM_OK)
        status = CN_API(normalize_forward)(NULL, weight_norm, weight, COLS, LENGTH, 1, 2, 0, NULL, 0);
    if (status == CNORM_OK)
        status = CN_API(normalize_forward)(NULL, x_norm, x, ROWS, LENGTH, 1, 2, 0, NULL, 0);
    if (status == CNORM_OK && memcmp(beside, weight_norm, sizeof beside))
        return CNORM_ERROR_VALUE;
    memcpy(y, products, sizeof y);
    return status == CNORM_OK ? CN_API(cosine_norm_forward)(y, x_norm, weight_norm, ROWS, COLS, eps) : status;
}

static double worst_error(double eps)
{
    double worst = 0;
    for (size_t i = 0; i < ROWS * COLS; i++) {
        wide divisor = (wide)x_norm[i / COLS] * weight_norm[i % COLS];
        wide exact = products[i] / (divisor < (wide)eps ? (wide)eps : divisor);
        exact = exact > 1 ? 1 : exact < -1 ? -1 : exact;
        double units = (double)(fabs(y[i] - exact) / UNIT_ROUNDOFF);
        worst = units <= worst ? worst : units;
        worst = y[i] >= -1 && y[i] <= 1 ? worst : INFINITY;
    }
    return worst;
}

static int check_errors(void)
{
    int failures = 0;
    memcpy(y, products, sizeof y);
#define COSINE CN_API(cosine_norm_forward)
    if (COSINE(NULL, x_norm, weight_norm, ROWS, COLS, 0) != CNORM_ERROR_NULL)
        failures += fail("no y");
    if (COSINE(y, NULL, weight_norm, ROWS, COLS, 0) != CNORM_ERROR_NULL)
        failures += fail("no norms of x");
    if (COSINE(y, x_norm, NULL, ROWS, COLS, 0) != CNORM_ERROR_NULL)
        failures += fail("no norms of the weight");
    if (COSINE(y, y, weight_norm, ROWS, COLS, 0) != CNORM_ERROR_OVERLAP)
        failures += fail("norms within y");
    if (COSINE(y, x_norm, weight_norm, ROWS, COLS, -1) != CNORM_ERROR_VALUE)
        failures += fail("negative eps");
    if (COSINE(y, x_norm, weight_norm, SIZE_MAX / 2, COLS, 0) != CNORM_ERROR_VALUE)
        failures += fail("too many elements");
    if (COSINE(NULL, NULL, NULL, 0, COLS, 0) != CNORM_OK)
        failures += fail("no vectors");
#undef COSINE
    if (CN_API(normalize_forward)(NULL, NULL, x, ROWS, LENGTH, 1, 2, 0, NULL, 0) != CNORM_ERROR_NULL)
        failures += fail("neither y nor norms");
    return failures + (memcmp(y, products, sizeof y) ? fail("y was written in spite of an error") : 0);
}

int CN_DTYPE_NAME(check_cosine_norm, CN_REAL)(void)
{
    static const double epsilons[] = {1e-8, 10};
    int failures = 0;
    fill();
    for (size_t e = 0; e < COUNT_OF(epsilons); e++) {
        uint64_t baseline = 0;
        for (int variant = 0; choose_variant(variant); variant++) {
            cnorm_status status = run(epsilons[e]);
            uint64_t bits = hash_bytes(HASH_START, y, sizeof y);
            if (variant == 0 && MEASURABLE && !(worst_error(epsilons[e]) <= UNITS_ALLOWED))
                failures += fail("inexact");
            baseline = variant == 0 ? bits : baseline;
            if (status != CNORM_OK || bits != baseline)
                failures += fail(status != CNORM_OK ? cnorm_status_string(status) : "other bits than the baseline");
        }
    }
    return failures + check_errors();
}
