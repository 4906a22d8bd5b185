/* Vectors divided by their norm, forward.
 *
 *     y = x / max(norm, eps),   norm = (sum |x|^p)^(1/p) along the middle axis of (outer, length, inner)
 *
 * Passes: x is read once from memory for its norm and again from the cache while y is written: 2S of traffic; S more for
 * vectors longer than the caches. p other than 1, 2 and inf reads x three times.
 * Split: tasks of whole vectors, rows (inner = 1) or tiles of columns; a few long rows are cut into pieces of 16 blocks or
 * more, tall matrices into pieces of rows. Determinism: fixed lanes, blocks and pieces, added in order.
 */
#include "kernels.h"
#include "vector_ways.h"

size_t CN(normalize_workspace)(size_t outer, size_t length, size_t inner)
{
    return vectors_workspace(vectors_along(outer, length, inner));
}

void CN(normalize_forward)(real *y, real *norm, const real *x, size_t outer, size_t length, size_t inner, double p,
                           double eps, cn_work work, void *workspace)
{
    vectors v = {.y = y,
                 .noted = norm,
                 .x = x,
                 .shape = vectors_along(outer, length, inner),
                 .kind = kind_of(p),
                 .p = p,
                 .eps = eps,
                 .work = work};
    do_vectors(&v, workspace);
}
