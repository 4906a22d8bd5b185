/* The yardstick: checks, then the copy of the level in use. */
#include "check.h"

cnorm_status CN_API(copy)(real *y, const real *x, size_t n, int stream)
{
    CN_CHECK(check_count(element_count(n, 1, 1)));
    CN_CHECK(n && (!y || !x) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(overlaps((region){y, n}, (region){x, n}) ? CNORM_ERROR_OVERLAP : CNORM_OK);
    cn_work work = plan_forward(n);
    work.stream = stream != 0;
    CN_KERNELS->copy(y, x, n, work);
    return CNORM_OK;
}
