/* Layer norm of int8 data in integer arithmetic: norm_s8.h has the formula.
 *
 * Passes: a row is read once for its sums and once more while it is written.
 */
#include "norm_s8.h"

cnorm_status cnorm_layer_norm_s8(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, size_t rows,
                                 const cnorm_norm_s8 *norm)
{
    cnorm_status status = cn_s8_check(y, x, weight, bias, rows, norm);
    if (status != CNORM_OK)
        return status;
    for (size_t r = 0; r < rows; r++, x += norm->cols, y += norm->cols) {
        cn_s8_sums s = cn_s8_sum_row(x, norm->cols);
        uint64_t variance = (uint64_t)(s.square_sum * norm->cols - (int64_t)s.sum * s.sum);
        cn_s8_row row = cn_s8_plan_row(norm, s.sum, variance);
        cn_s8_write_row(y, x, weight, bias, norm, &row);
    }
    return CNORM_OK;
}
