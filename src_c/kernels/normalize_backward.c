/* Vectors divided by their norm, backward.
 *
 *     dx = (dy - direction * sum(dy * x) / norm) / norm,   or dy / eps where norm < eps
 *
 * direction is the gradient of the norm (vectors.h).
 * Passes: x and dy are read once from memory for the norm and the sum, together, and again from the cache while dx is
 * written: 3S of traffic; 2S more for vectors longer than the caches.
 * Split and determinism: as forward.
 */
#include "kernels.h"
#include "vector_ways.h"

void CN(normalize_backward)(real *dx, const real *dy, const real *x, size_t outer, size_t length, size_t inner,
                            double p, double eps, cn_work work, void *workspace)
{
    vectors v = {.y = dx,
                 .x = x,
                 .dy = dy,
                 .shape = vectors_along(outer, length, inner),
                 .kind = kind_of(p),
                 .p = p,
                 .eps = eps,
                 .work = work};
    do_vectors(&v, workspace);
}
