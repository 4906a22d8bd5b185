/* Sums of products of two sets of vectors, a tile of their pairs at a time, and the packing that feeds them.
 *
 * Entry (i, j) of a tile is the sum over k of a[k][i] * b[k][j], TILE_ROWS times TILE_COLS of them in registers. Four
 * products are added in a tree in `real` and the trees one after the other, DEPTH products in all; then the sum joins
 * its total in acc (moments.h: compensated for double data). Vectors run along j, and every entry is summed in the
 * order of k by itself: TILE_COLS, the width of this level's vectors, has no part in the bits.
 */
#ifndef CN_TILE_H
#define CN_TILE_H

#include "moments.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#define TILE_ROWS 8
#define TILE_COLS ((int)(VECTOR_BYTES / sizeof(real)))
#define DEPTH 32
#define TREE 4

/* What vectors run along is packed in panels of this width, a multiple of every level's tile, padded with zeros: in a
 * panel one k follows the other, so that a tile reads neighbouring lines. */
#define PANEL 16

static inline size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Where the vectors of one side lie: a[k * step + i * row]. Those along j are contiguous. */
typedef struct {
    const real *data;
    size_t step, row;
} operand;

/* One row of the tile += a tree of four products. */
CN_INLINE void add_tree(real *sum, const real *a, size_t step, const real *b0, const real *b1, const real *b2,
                        const real *b3)
{
    real a0 = a[0], a1 = a[step], a2 = a[2 * step], a3 = a[3 * step];
#pragma omp simd
    for (int l = 0; l < TILE_COLS; l++)
        sum[l] += (a0 * b0[l] + a1 * b1[l]) + (a2 * b2[l] + a3 * b3[l]);
}

/* The rows are written out: an array that is indexed by a variable would not stay in registers. */
CN_INLINE void sum_tile(real *out, operand a, operand b, size_t depth)
{
    real s0[TILE_COLS] = {0}, s1[TILE_COLS] = {0}, s2[TILE_COLS] = {0}, s3[TILE_COLS] = {0};
    real s4[TILE_COLS] = {0}, s5[TILE_COLS] = {0}, s6[TILE_COLS] = {0}, s7[TILE_COLS] = {0};
    for (size_t k = 0; k < depth; k += TREE) {
        const real *p = a.data + k * a.step, *b0 = b.data + k * b.step;
        const real *b1 = b0 + b.step, *b2 = b1 + b.step, *b3 = b2 + b.step;
        add_tree(s0, p, a.step, b0, b1, b2, b3);
        add_tree(s1, p + a.row, a.step, b0, b1, b2, b3);
        add_tree(s2, p + 2 * a.row, a.step, b0, b1, b2, b3);
        add_tree(s3, p + 3 * a.row, a.step, b0, b1, b2, b3);
        add_tree(s4, p + 4 * a.row, a.step, b0, b1, b2, b3);
        add_tree(s5, p + 5 * a.row, a.step, b0, b1, b2, b3);
        add_tree(s6, p + 6 * a.row, a.step, b0, b1, b2, b3);
        add_tree(s7, p + 7 * a.row, a.step, b0, b1, b2, b3);
    }
#pragma omp simd
    for (int l = 0; l < TILE_COLS; l++) {
        out[l] = s0[l], out[l + TILE_COLS] = s1[l], out[l + 2 * TILE_COLS] = s2[l], out[l + 3 * TILE_COLS] = s3[l];
        out[l + 4 * TILE_COLS] = s4[l], out[l + 5 * TILE_COLS] = s5[l], out[l + 6 * TILE_COLS] = s6[l];
        out[l + 7 * TILE_COLS] = s7[l];
    }
}

/* total[i * stride + j] += the sum over k < depth, a multiple of TREE. */
CN_INLINE void add_tile(acc *total, acc *lost, size_t stride, operand a, operand b, size_t depth)
{
    real sum[TILE_ROWS * TILE_COLS];
    for (size_t k = 0, m; k < depth; k += m) {
        m = depth - k < DEPTH ? depth - k : DEPTH;
        sum_tile(sum, (operand){a.data + k * a.step, a.step, a.row}, (operand){b.data + k * b.step, b.step, 1}, m);
        for (size_t i = 0; i < TILE_ROWS; i++) {
            acc *t = total + i * stride, *lo = lost + i * stride;
            const real *s = sum + i * TILE_COLS;
#pragma omp simd
            for (int l = 0; l < TILE_COLS; l++)
                add_to(&t[l], &lo[l], (acc)s[l]);
        }
    }
}

/* The same for short sums, with the total in `real`, row after row. */
CN_INLINE void add_short_tile(real *total, operand a, operand b, size_t depth)
{
    real sum[TILE_ROWS * TILE_COLS];
    for (size_t k = 0, m; k < depth; k += m) {
        m = depth - k < DEPTH ? depth - k : DEPTH;
        sum_tile(sum, (operand){a.data + k * a.step, a.step, a.row}, (operand){b.data + k * b.step, b.step, 1}, m);
#pragma omp simd
        for (int l = 0; l < TILE_ROWS * TILE_COLS; l++)
            total[l] += sum[l];
    }
}

#endif
