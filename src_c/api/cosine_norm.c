/* Cosine norm after the product: checks, then the kernel of the level in use. */
#include "check.h"

cnorm_status CN_API(cosine_norm_forward)(real *y, const real *x_norm, const real *weight_norm, size_t rows, size_t cols,
                                         double eps)
{
    size_t n = element_count(rows, cols, 1);
    const region norms[] = {{x_norm, rows}, {weight_norm, cols}};
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    if (n && (!x_norm || !weight_norm))
        return CNORM_ERROR_NULL;
    CN_CHECK(check_arrays((region){y, n}, (region){y, n}, NULL, 0, norms, 2));
    CN_KERNELS->cosine_norm_forward(y, x_norm, weight_norm, rows, cols, eps, plan_forward(n));
    return CNORM_OK;
}
