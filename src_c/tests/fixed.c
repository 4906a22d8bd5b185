/* The fixed-point norms against double arithmetic: rows of two elements exhaustively, others at random with every kind of
 * data and scale that the widths of the integers are near to. Needs no dtype.
 *
 * Reported: how far a result is from the correctly rounded one (at most 1 is allowed), and from the exact one.
 */
#include "check.h"
#include "cnorm.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLS_MOST 5000
#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

typedef struct {
    bool centred;
    int cols;
    double eps, input_scale, weight_scale, bias_scale, output_scale;
    int input_zero, output_zero;
    bool with_weight, with_bias;
} problem;

static int8_t x[COLS_MOST], y[COLS_MOST];
static int16_t weight[COLS_MOST];
static int32_t bias[COLS_MOST];

static uint64_t random_state = 1;
static double worst_distance;
static int worst_steps;
static long results, differing;

static uint32_t noise(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static int between(int least, int most) { return least + (int)(noise() % ((uint32_t)most - (uint32_t)least + 1)); }

/* 2^e, e uniform. */
static double power_between(double least, double most) { return exp2(least + (most - least) * noise() / 0x1p31); }

static double clamped(double v) { return v < -128 ? -128 : v > 127 ? 127 : v; }

/* The exact result in steps: n (q - centre) and n^2 times the variance are whole numbers below 2^53 here. */
static void exact_terms(const problem *p, double *centre, double *root)
{
    double sum = 0, squares = 0, n = p->cols;
    for (int c = 0; c < p->cols; c++)
        sum += x[c];
    *centre = p->centred ? sum : n * p->input_zero;
    for (int c = 0; c < p->cols; c++)
        squares += (n * x[c] - *centre) * (n * x[c] - *centre) / n;
    *root = sqrt(squares + p->eps * (n / p->input_scale) * (n / p->input_scale));
}

static double exact_steps(const problem *p, int c, double centre, double root)
{
    double d = p->cols * (double)x[c] - centre;
    double value = d == 0 ? 0 : d / root * (p->with_weight ? weight[c] : 1) * (p->weight_scale / p->output_scale);
    return value + (p->with_bias ? bias[c] * (p->bias_scale / p->output_scale) : 0) + p->output_zero;
}

static cnorm_status setup(cnorm_norm_s8 *norm, const problem *p)
{
    return cnorm_norm_s8_setup(norm, (size_t)p->cols, p->eps, p->input_scale, p->input_zero, p->weight_scale,
                               p->bias_scale, p->output_scale, p->output_zero);
}

static int check_row(const problem *p)
{
    cnorm_norm_s8 norm;
    cnorm_status status = setup(&norm, p);
    if (status == CNORM_OK)
        status = (p->centred ? cnorm_layer_norm_s8 : cnorm_rms_norm_s8)(y, x, p->with_weight ? weight : NULL,
                                                                        p->with_bias ? bias : NULL, 1, &norm);
    int failures = status != CNORM_OK;
    double centre, root;
    exact_terms(p, &centre, &root);
    for (int c = 0; c < p->cols; c++) {
        double exact = clamped(exact_steps(p, c, centre, root)), distance = fabs(y[c] - exact);
        int steps = abs(y[c] - (int)floor(exact + 0.5));
        worst_distance = distance > worst_distance ? distance : worst_distance;
        worst_steps = steps > worst_steps ? steps : worst_steps;
        differing += steps != 0;
        results++;
        failures += steps > 1;
    }
    if (failures)
        printf("FAIL %s_norm_s8, %d columns: %s, %d results\n", p->centred ? "layer" : "rms", p->cols,
               cnorm_status_string(status), failures);
    return failures != 0;
}

/* Rows of every kind: any values, a constant one, one element apart, two values, the ends of the range. */
static void fill_row(const problem *p)
{
    int kind = between(0, 5), base = between(-128, 127), other = between(-128, 127), at = between(0, p->cols - 1);
    for (int c = 0; c < p->cols; c++) {
        int values[] = {between(-128, 127),       base,
                        c == at ? other : base,   noise() & 1 ? base : other,
                        noise() & 1 ? -128 : 127, p->input_zero + (c == at)};
        x[c] = (int8_t)(values[kind] > 127 ? 126 : values[kind]);
    }
}

/* Biases of every size; for some elements one that leaves a few steps of a large product. */
static void fill_parameters(const problem *p)
{
    int weight_most = between(0, 1) ? 32767 : 127, bias_most = 1 << between(0, 30);
    double centre, root, ratio = p->bias_scale / p->output_scale;
    exact_terms(p, &centre, &root);
    for (int c = 0; c < p->cols; c++) {
        weight[c] = (int16_t)between(-weight_most - 1, weight_most);
        bias[c] = between(-bias_most, bias_most);
        problem product = *p;
        product.with_bias = false;
        double cancelling = (noise() / 0x1p24 - exact_steps(&product, c, centre, root)) / ratio;
        if (noise() % 2 && fabs(cancelling) < 0x1p31)
            bias[c] = (int32_t)cancelling;
    }
}

static problem random_problem(void)
{
    static const double eps[] = {0, 1e-30, 1e-12, 1e-5, 1e-3, 1, 1e6};
    static const int zeros[] = {-128, -1, 0, 5, 127};
    problem p = {.centred = noise() & 1, .cols = noise() % 16 ? between(1, 300) : between(1, COLS_MOST)};
    p.eps = eps[noise() % COUNT_OF(eps)];
    p.input_scale = power_between(-30, 20);
    p.output_scale = power_between(-20, 10);
    p.weight_scale = p.output_scale * power_between(noise() & 1 ? -45 : -12, 7.999);
    p.bias_scale = p.output_scale * power_between(noise() & 1 ? -45 : -20, -5.001);
    p.input_zero = zeros[noise() % COUNT_OF(zeros)];
    p.output_zero = zeros[noise() % COUNT_OF(zeros)];
    p.with_weight = noise() % 4 != 0;
    p.with_bias = noise() % 4 != 0;
    return p;
}

static int check_pairs(bool centred, double weight_scale)
{
    int failures = 0;
    problem p = {.centred = centred,
                 .cols = 2,
                 .eps = 1e-3,
                 .input_scale = 0.05,
                 .weight_scale = weight_scale,
                 .bias_scale = 1e-6,
                 .output_scale = 0.02,
                 .input_zero = 3,
                 .output_zero = -7};
    for (int a = -128; a < 128; a++)
        for (int b = -128; b < 128; b++) {
            x[0] = (int8_t)a, x[1] = (int8_t)b;
            failures += check_row(&p);
        }
    return failures;
}

/* Each wrong argument is refused, and nothing is written. */
static int check_errors(void)
{
    int failures = 0;
    cnorm_norm_s8 good, bad;
    problem p = {
        .cols = 4, .eps = 1e-3, .input_scale = 0.1, .weight_scale = 1, .bias_scale = 1e-6, .output_scale = 0.1};
    failures += setup(&good, &p) != CNORM_OK;
    memset(y, 77, sizeof y);
    failures += cnorm_layer_norm_s8(y, x, NULL, NULL, 1, NULL) != CNORM_ERROR_NULL;
    failures += cnorm_layer_norm_s8(y, NULL, NULL, NULL, 1, &good) != CNORM_ERROR_NULL;
    failures += cnorm_rms_norm_s8(NULL, x, NULL, NULL, 1, &good) != CNORM_ERROR_NULL;
    failures += cnorm_layer_norm_s8(x + 1, x, NULL, NULL, 1, &good) != CNORM_ERROR_OVERLAP;
    failures += cnorm_rms_norm_s8(y, x, (int16_t *)(void *)y, NULL, 1, &good) != CNORM_ERROR_OVERLAP;
    failures += cnorm_rms_norm_s8(y, x, NULL, NULL, SIZE_MAX / 2, &good) != CNORM_ERROR_VALUE;
    bad = good, bad.output_zero_point = 128;
    failures += cnorm_layer_norm_s8(y, x, NULL, NULL, 1, &bad) != CNORM_ERROR_VALUE;
    bad = good, bad.weight_shift = CNORM_S8_WEIGHT_SHIFT_MAX + 1;
    failures += cnorm_layer_norm_s8(y, x, NULL, NULL, 1, &bad) != CNORM_ERROR_VALUE;
    bad = good, bad.bias_multiplier = 1;
    failures += cnorm_layer_norm_s8(y, x, NULL, NULL, 1, &bad) != CNORM_ERROR_VALUE;
    bad = good, bad.cols = CNORM_S8_COLS_MAX + 1;
    failures += cnorm_layer_norm_s8(y, x, NULL, NULL, 1, &bad) != CNORM_ERROR_VALUE;
    failures += cnorm_norm_s8_setup(NULL, 4, 0, 1, 0, 1, 1e-3, 1, 0) != CNORM_ERROR_NULL;
    failures += cnorm_norm_s8_setup(&bad, 4, -1, 1, 0, 1, 1e-3, 1, 0) != CNORM_ERROR_VALUE;
    failures += cnorm_norm_s8_setup(&bad, 4, 0, NAN, 0, 1, 1e-3, 1, 0) != CNORM_ERROR_VALUE;
    failures += cnorm_norm_s8_setup(&bad, 4, 0, 1, -129, 1, 1e-3, 1, 0) != CNORM_ERROR_VALUE;
    failures += cnorm_norm_s8_setup(&bad, 4, 0, 1, 0, 256, 1e-3, 1, 0) != CNORM_ERROR_VALUE;
    failures += cnorm_norm_s8_setup(&bad, 4, 0, 1, 0, 1, 0.04, 1, 0) != CNORM_ERROR_VALUE;
    failures += cnorm_layer_norm_s8(NULL, NULL, NULL, NULL, 0, &good) != CNORM_OK;
    for (int c = 0; c < COLS_MOST; c++)
        failures += y[c] != 77;
    if (failures)
        printf("FAIL fixed point: %d wrong arguments not refused as they should be\n", failures);
    return failures;
}

int check_fixed(void)
{
    int failures = check_errors();
    failures += check_pairs(true, 0.5) + check_pairs(false, 0.5) + check_pairs(true, 1e-4);
    for (int round = 0; round < 4000; round++) {
        problem p = random_problem();
        fill_row(&p);
        fill_parameters(&p);
        failures += check_row(&p);
    }
    printf("s8  layer_norm, rms_norm worst %d step from the rounded result (%ld of %ld), %.6f from the exact one\n",
           worst_steps, differing, results, worst_distance);
    return failures;
}
