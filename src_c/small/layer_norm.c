/* Layer norm, small: a row is a group. */
#include "group.h"

size_t CN(layer_norm_workspace)(size_t rows, size_t cols)
{
    (void)rows, (void)cols;
    return 0;
}

void CN(layer_norm_forward)(real *y, real *mean, real *rstd, const real *x, const real *weight, const real *bias,
                            size_t rows, size_t cols, double eps, cn_work work, void *workspace)
{
    (void)work, (void)workspace;
    const group_shape row = {1, cols, 0, 1, 1, 0, true, eps, 0};
    for (size_t r = 0; r < (cols ? rows : 0); r++)
        normalise_group(y + r * cols, statistic_at(mean, r), statistic_at(rstd, r), x + r * cols, weight, bias, &row);
}
