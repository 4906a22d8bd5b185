/* Weight norm, backward.
 *
 *     dv = (dw - vhat * dg) * g / norm,   dg = sum(dw * vhat),   vhat = v / norm
 *
 * Passes: v and dw are read once from memory for the norm and the sum, together, and again from the cache while dv is
 * written: 3S of traffic, where the forward pass has 2S.
 * Split and determinism: as forward.
 */
#include "kernels.h"
#include "vector_ways.h"

void CN(weight_norm_backward)(real *dv, real *dg, const real *dw, const real *v, const real *g, size_t outer,
                              size_t channels, size_t inner, cn_work work, void *workspace)
{
    vectors job = {.y = dv,
                   .noted = dg,
                   .x = v,
                   .dy = dw,
                   .factor = g,
                   .shape = vectors_of_channels(outer, channels, inner),
                   .kind = NORM_TWO,
                   .p = 2,
                   .work = work};
    do_vectors(&job, workspace);
}
