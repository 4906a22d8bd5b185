/* What layer norm and RMS norm in fixed point share: 32- and 64-bit integers alone, no division and no floating point.
 *
 * With n elements q in a row, n (q - centre) and n^2 (variance) are integers, so the statistics are exact:
 *
 *     layer norm   d = n q - sum(q)     V = n sum(q^2) - sum(q)^2
 *     RMS norm     d = n (q - z)        V = n sum((q - z)^2)
 *     xhat = d / sqrt(V + n^2 eps / input_scale^2)
 *
 * What rounds is the root (some 2^-29 of it) and what an output step is cut into (2^-24 where that fits).
 */
#ifndef CN_NORM_S8_H
#define CN_NORM_S8_H

#include "../cnorm.h"

/* A row: out = (d * weight * gain) / 2^(16 + down + fraction) + bias steps. */
typedef struct {
    int32_t centre; /* n times what is subtracted from q */
    uint32_t gain;
    int down, bias_down, fraction; /* places: to steps in fixed point with `fraction` bits behind the point */
} cn_s8_row;

typedef struct {
    int32_t sum;
    int64_t square_sum;
} cn_s8_sums;

cnorm_status cn_s8_check(const int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, size_t rows,
                         const cnorm_norm_s8 *norm);
cn_s8_sums cn_s8_sum_row(const int8_t *x, size_t n);
cn_s8_row cn_s8_plan_row(const cnorm_norm_s8 *norm, int32_t centre, uint64_t variance);
void cn_s8_write_row(int8_t *y, const int8_t *x, const int16_t *weight, const int32_t *bias, const cnorm_norm_s8 *norm,
                     const cn_s8_row *row);

#endif
