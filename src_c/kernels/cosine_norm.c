/* Cosine norm (Luo et al. 2017), forward: what follows the product of two sets of vectors.
 *
 *     y[r, c] = min(max(y[r, c] / max(x_norm[r] * weight_norm[c], eps), -1), 1),   y = x weight^T before
 *
 * Norms that leave the range of `real`, or products that do, are not for it: the caller scales such vectors first. A NaN
 * stays one. Passes: y once, 2S of traffic. Split: rows, or pieces of them where they are few; every element by itself.
 */
#include "kernels.h"
#include "level.h"

#define PIECE_COLUMNS 4096

typedef struct {
    real *y;
    const real *x_norm, *weight_norm;
    size_t cols, pieces; /* of a row */
    real eps;
} cosine_job;

static void divide_piece(void *data, size_t task)
{
    const cosine_job *job = data;
    size_t row = task / job->pieces, first = task % job->pieces * PIECE_COLUMNS, left = job->cols - first;
    const real x_norm = job->x_norm[row], eps = job->eps, *weight_norm = job->weight_norm + first;
    real *y = job->y + row * job->cols + first;
#pragma omp simd
    for (size_t c = 0; c < (left < PIECE_COLUMNS ? left : PIECE_COLUMNS); c++) {
        real product = x_norm * weight_norm[c], cosine = y[c] / (product < eps ? eps : product);
        cosine = cosine < -1 ? -1 : cosine;
        y[c] = cosine > 1 ? 1 : cosine;
    }
}

void CN(cosine_norm_forward)(real *y, const real *x_norm, const real *weight_norm, size_t rows, size_t cols, double eps,
                             cn_work work)
{
    cosine_job job = {y, x_norm, weight_norm, cols, cols / PIECE_COLUMNS + (cols % PIECE_COLUMNS != 0), (real)eps};
    cn_parallel_for(rows * job.pieces, work, divide_piece, &job);
}
