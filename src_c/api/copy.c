/* The yardstick: checks, then the copy of the level in use. */
#include "check.h"

cnorm_status CN_API(copy)(real *y, const real *x, size_t n, int stream)
{
    cnorm_status status =
        FIRST_ERROR(element_count(n, 1, 1) == SIZE_MAX ? CNORM_ERROR_VALUE : CNORM_OK,
                    n && (!y || !x) ? CNORM_ERROR_NULL : CNORM_OK, apart(y, n, x, n) ? CNORM_OK : CNORM_ERROR_OVERLAP);
    if (status == CNORM_OK) {
        cn_work work = plan_forward(n);
        work.stream = stream != 0;
        CN_KERNELS->copy(y, x, n, work);
    }
    return status;
}
