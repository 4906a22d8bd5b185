/* RMS norm of int8 data in integer arithmetic: norm_s8.h has the formula.
 *
 * Passes: a row is read once for its sums and once more while it is written.
 */
#include "norm_s8.h"

cnorm_status cnorm_rms_norm_s8(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, size_t rows,
                               const cnorm_norm_s8 *norm)
{
    cnorm_status status = cn_s8_check(y, x, weight, bias, rows, norm);
    if (status != CNORM_OK)
        return status;
    int32_t zero = norm->input_zero_point, centre = (int32_t)norm->cols * zero;
    for (size_t r = 0; r < rows; r++, x += norm->cols, y += norm->cols) {
        cn_s8_sums s = cn_s8_sum_row(x, norm->cols);
        int64_t square_sum = s.square_sum - 2 * (int64_t)zero * s.sum + (int64_t)zero * centre;
        cn_s8_row row = cn_s8_plan_row(norm, centre, (uint64_t)(square_sum * norm->cols));
        cn_s8_write_row(y, x, weight, bias, norm, &row);
    }
    return CNORM_OK;
}
