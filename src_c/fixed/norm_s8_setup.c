/* The plan of a fixed-point norm from the scales of its tensors. Uses floating point: it runs on the host, or once. */
#include "../cnorm.h"

#include <math.h>

/* value = multiplier * 2^shift with `bits` bits; values below 2^least become 0. False if shift would exceed `most`. */
static int split(double value, int bits, int least, int most, int64_t *multiplier, int32_t *shift)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    *multiplier = (int64_t)floor(ldexp(mantissa, bits) + 0.5);
    if (*multiplier == (int64_t)1 << bits) {
        *multiplier /= 2;
        exponent++;
    }
    *shift = exponent;
    if (value == 0 || exponent < least)
        *multiplier = 0, *shift = 0;
    return exponent <= most || value == 0;
}

static int is_scale(double scale) { return scale > 0 && isfinite(scale); }

cnorm_status cnorm_norm_s8_setup(cnorm_norm_s8 *norm, size_t cols, double eps, double input_scale, int input_zero_point,
                                 double weight_scale, double bias_scale, double output_scale, int output_zero_point)
{
    if (!norm)
        return CNORM_ERROR_NULL;
    if (cols > CNORM_S8_COLS_MAX || !(eps >= 0 && isfinite(eps)) || !is_scale(input_scale) || !is_scale(weight_scale) ||
        !is_scale(bias_scale) || !is_scale(output_scale) || input_zero_point < -128 || input_zero_point > 127 ||
        output_zero_point < -128 || output_zero_point > 127)
        return CNORM_ERROR_VALUE;
    int64_t e, w, b;
    cnorm_norm_s8 plan = {.cols = (uint32_t)cols, input_zero_point, output_zero_point};
    double spread = sqrt(eps) / input_scale * (double)cols; /* its square may need an exponent that only int32_t has */
    double weight_ratio = weight_scale / output_scale, bias_ratio = bias_scale / output_scale;
    if (!(spread < 0x1p+60) || !isfinite(weight_ratio) || !isfinite(bias_ratio) ||
        !split(spread * spread, 32, 32 - CNORM_S8_EPS_EXPONENT, 32 + CNORM_S8_EPS_EXPONENT, &e, &plan.eps_exponent) ||
        !split(weight_ratio, 31, CNORM_S8_SHIFT_MIN, CNORM_S8_WEIGHT_SHIFT_MAX, &w, &plan.weight_shift) ||
        !split(bias_ratio, 31, CNORM_S8_SHIFT_MIN, CNORM_S8_BIAS_SHIFT_MAX, &b, &plan.bias_shift))
        return CNORM_ERROR_VALUE;
    plan.eps_multiplier = (uint32_t)e;
    plan.eps_exponent -= e ? 32 : 0;
    plan.weight_multiplier = (int32_t)w;
    plan.bias_multiplier = (int32_t)b;
    *norm = plan;
    return CNORM_OK;
}
