/* The steps of a row in fixed point: sums, the reciprocal root of its variance, the output.
 *
 * Widths: n <= 2^23, so |d| <= 255 n < 2^31 and V <= 2^62; with an int16 weight |d * weight| <= 2^46. Shifts of negative
 * numbers to the right are taken to be arithmetic, as every compiler has them.
 */
#include "norm_s8.h"

#define FRACTION_BITS 24

/* The plan may have been written by hand, into flash say: what the widths rest on is looked at in each call. */
static int in_range(int32_t value, int32_t least, int32_t most) { return value >= least && value <= most; }

static int is_multiplier(int32_t multiplier, int32_t shift, int32_t most)
{
    if (multiplier == 0)
        return shift == 0;
    return multiplier >= (int32_t)1 << 30 && in_range(shift, CNORM_S8_SHIFT_MIN, most);
}

static int is_plan(const cnorm_norm_s8 *norm)
{
    return norm->cols <= CNORM_S8_COLS_MAX && in_range(norm->input_zero_point, -128, 127) &&
           in_range(norm->output_zero_point, -128, 127) &&
           (norm->eps_multiplier == 0 ||
            (norm->eps_multiplier >> 31 &&
             in_range(norm->eps_exponent, -CNORM_S8_EPS_EXPONENT, CNORM_S8_EPS_EXPONENT))) &&
           is_multiplier(norm->weight_multiplier, norm->weight_shift, CNORM_S8_WEIGHT_SHIFT_MAX) &&
           is_multiplier(norm->bias_multiplier, norm->bias_shift, CNORM_S8_BIAS_SHIFT_MAX);
}

static int overlaps(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a && b && (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

cnorm_status cn_s8_check(const int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, size_t rows,
                         const cnorm_norm_s8 *norm)
{
    if (!norm)
        return CNORM_ERROR_NULL;
    if (!is_plan(norm) || (norm->cols && rows > SIZE_MAX / norm->cols))
        return CNORM_ERROR_VALUE;
    size_t n = rows * norm->cols, cols = norm->cols;
    if (n && (!y || !x))
        return CNORM_ERROR_NULL;
    if ((y != x && overlaps(y, n, x, n)) || overlaps(y, n, weight, cols * sizeof *weight) ||
        overlaps(y, n, bias, cols * sizeof *bias) || overlaps(y, n, norm, sizeof *norm))
        return CNORM_ERROR_OVERLAP;
    return CNORM_OK;
}

cn_s8_sums cn_s8_sum_row(const int8_t *x, size_t n)
{
    cn_s8_sums s = {0, 0};
    for (size_t c = 0; c < n; c++) {
        int32_t q = x[c];
        s.sum += q;
        s.square_sum += q * q;
    }
    return s;
}

/* Places of v in binary. */
static int count_places(uint64_t v)
{
    int places = 0;
    for (int step = 32; step; step /= 2)
        if (v >> step) {
            places += step;
            v >>= step;
        }
    return places + (v != 0);
}

/* v * 2^places, cut off below 1. */
static uint64_t shifted(uint64_t v, int places)
{
    if (places >= 0)
        return v << places;
    return places > -64 ? v >> -places : 0;
}

/* 2^30 / sqrt(s / 2^32) for 2^30 <= s < 2^32, by Newton's method r -> r (3 - s r^2) / 2 from a straight line that is at
 * most a tenth off: four steps leave the cutting off alone, some 2^-30. No step ends above the exact value. */
static uint32_t reciprocal_root(uint32_t s)
{
    uint64_t r = 2297850921u - (uint32_t)((uint64_t)s * 1309965025u >> 32); /* (2.14 - 1.22 s) 2^30 */
    for (int step = 0; step < 4; step++) {
        uint64_t square = r * r >> 29;             /* 31 bits behind the point */
        uint64_t one = square * s >> 32;           /* s r^2, near 1: likewise */
        r = r * (((uint64_t)3 << 31) - one) >> 32; /* 30 bits */
    }
    return (uint32_t)r;
}

/* With U = V + n^2 eps / input_scale^2 = (sum / 2^64) * 2^(64 - shift), shift even, 2^62 <= sum < 2^64. */
cn_s8_row cn_s8_plan_row(const cnorm_norm_s8 *norm, int32_t centre, uint64_t variance)
{
    cn_s8_row row = {.centre = centre, .fraction = FRACTION_BITS, .bias_down = 31 - FRACTION_BITS - norm->bias_shift};
    if (variance == 0 || norm->weight_multiplier == 0)
        return row; /* a constant row: gain 0, so the bias alone */
    int top = count_places(variance);
    if (norm->eps_multiplier && norm->eps_exponent + 32 > top)
        top = norm->eps_exponent + 32;
    int shift = 62 - top;
    uint64_t sum = shifted(variance, shift);
    if (norm->eps_multiplier)
        sum += shifted(norm->eps_multiplier, norm->eps_exponent + shift);
    int up = 64 - count_places(sum);
    up -= (shift + up) & 1;
    sum <<= up;
    shift += up;
    row.gain = (uint32_t)((uint64_t)reciprocal_root((uint32_t)(sum >> 32)) * (uint32_t)norm->weight_multiplier >> 30);
    int places = 63 - 16 - shift / 2 - norm->weight_shift; /* at least 8, since U >= 1 */
    row.fraction = places < FRACTION_BITS ? places : FRACTION_BITS;
    row.down = places - row.fraction < 62 ? places - row.fraction : 62;
    row.bias_down += FRACTION_BITS - row.fraction;
    return row;
}

void cn_s8_write_row(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, const cnorm_norm_s8 *norm,
                     const cn_s8_row *row)
{
    const int64_t half = (int64_t)1 << (row->fraction - 1);
    for (size_t c = 0; c < norm->cols; c++) {
        int32_t d = (int32_t)norm->cols * x[c] - row->centre;
        int64_t product = (int64_t)d * (weight ? weight[c] : 1);
        int64_t high = (product >> 16) * (int64_t)row->gain;
        int64_t low = (int64_t)(((uint64_t)product & 0xffff) * row->gain >> 16);
        int64_t steps = (high + low) >> row->down;
        if (bias)
            steps += (int64_t)bias[c] * norm->bias_multiplier >> row->bias_down;
        steps = ((steps + half) >> row->fraction) + norm->output_zero_point;
        y[c] = (int8_t)(steps < -128 ? -128 : steps > 127 ? 127 : steps);
    }
}
