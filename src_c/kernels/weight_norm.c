/* Weight norm (Salimans, Kingma 2016), forward.
 *
 *     w = v * g / norm,   norm = sqrt(sum v^2) over the first and the last axis of (outer, channels, inner)
 *
 * Passes: v is read once from memory for its norm and again from the cache while w is written: 2S of traffic, if a channel
 * (outer = 1), or a tile of columns of all of v, fits there; else 3S.
 * Split: channels are rows where outer is 1, else tiles of columns, in a tall matrix pieces of rows, and of several long
 * runs rows again; a few long rows are cut into pieces. Determinism: fixed lanes, blocks and pieces, added in order.
 */
#include "kernels.h"
#include "vector_ways.h"

size_t CN(weight_norm_workspace)(size_t outer, size_t channels, size_t inner)
{
    return vectors_workspace(vectors_of_channels(outer, channels, inner));
}

void CN(weight_norm_forward)(real *w, const real *v, const real *g, size_t outer, size_t channels, size_t inner,
                             cn_work work, void *workspace)
{
    vectors job = {.y = w,
                   .x = v,
                   .factor = g,
                   .shape = vectors_of_channels(outer, channels, inner),
                   .kind = NORM_TWO,
                   .p = 2,
                   .work = work};
    do_vectors(&job, workspace);
}
