/* Spectral norm: checks, then the kernel of the level in use. */
#include "check.h"

size_t CN_API(spectral_norm_forward_workspace)(size_t outer, size_t rows, size_t inner)
{
    size_t n = element_count(outer, rows, inner);
    return n == SIZE_MAX ? 0 : CN_KERNELS->spectral_norm_workspace(outer, rows, inner);
}

cnorm_status CN_API(spectral_norm_forward)(real *w, double *sigma, real *u, real *v, const real *weight, size_t outer,
                                           size_t rows, size_t inner, size_t iterations, double eps, void *workspace,
                                           size_t workspace_size)
{
    size_t n = element_count(outer, rows, inner);
    const region vectors[] = {{u, rows}, {v, outer * inner}};
    size_t n_written = iterations ? 2 : 0; /* else they are only read */
    CN_CHECK(check_count(n));
    CN_CHECK(check_eps(eps));
    CN_CHECK(!sigma || (n && (!u || !v)) ? CNORM_ERROR_NULL : CNORM_OK);
    CN_CHECK(check_arrays((region){w, n}, (region){weight, n}, vectors, n_written, vectors, 2 - n_written));
    CN_CHECK(check_workspace(workspace, workspace_size, CN_API(spectral_norm_forward_workspace)(outer, rows, inner)));
    CN_KERNELS->spectral_norm_forward(w, sigma, u, v, weight, outer, rows, inner, iterations, eps,
                                      cn_plan_work(n * sizeof(real), n * sizeof(real)), workspace);
    return CNORM_OK;
}
