/* RMS norm, small: a row is a group, and its mean counts as 0. */
#include "group.h"

size_t CN(rms_norm_workspace)(size_t rows, size_t cols)
{
    (void)rows, (void)cols;
    return 0;
}

void CN(rms_norm_forward)(real *y, real *rstd, const real *x, const real *weight, const real *bias, size_t rows,
                          size_t cols, double eps, double weight_offset, cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    const group_shape row = {1, cols, 0, 1, 1, 0, false, eps, (real)weight_offset};
    for (size_t r = 0; r < (cols ? rows : 0); r++)
        normalise_group(y + r * cols, NULL, statistic_at(rstd, r), x + r * cols, weight, bias, &row);
}
