/* Sums of products of two sets of vectors, a tile of their pairs at a time.
 *
 * Entry (i, j) of a tile is the sum over k of a[k][i] * b[k][j], TILE_ROWS times TILE_COLS of them in registers, and
 * where there are twice as many registers those of the next tile to the right too. DEPTH or SHORT_DEPTH products are
 * added in `real`: float ones one after the other, fused (fused.h), double ones in trees of four. Then two such sums join their
 * total, in acc (moments.h: compensated for double data) or in `real`. Vectors run along j, and every entry is summed in
 * the order of k by itself: TILE_COLS, the width of this level's vectors, has no part in the bits.
 */
#ifndef CN_TILE_H
#define CN_TILE_H

#include "fused.h"
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
#define TILES_MOST (VECTOR_BYTES == 64 ? 2 : 1)
#define DEPTH 32 /* of squares, whose rounding errors need not cancel */
#define SHORT_DEPTH 64
#define TREE 4

/* What vectors run along is packed in panels of this width, a multiple of every level's tile, padded with zeros: in a
 * panel one k follows the other, so that a tile reads neighbouring lines. */
#define PANEL 16

static inline size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Where the vectors of one side lie: a[k * step + i * row]. Those along j are contiguous, and the next tile's are `row`
 * away. */
typedef struct {
    const real *data;
    size_t step, row;
} operand;

/* One row of one tile += four products. */
CN_INLINE void add_four(real *sum, const real *a, size_t step, const real *b, size_t b_step)
{
    real a0 = a[0], a1 = a[step], a2 = a[2 * step], a3 = a[3 * step];
    const real *b1 = b + b_step, *b2 = b1 + b_step, *b3 = b2 + b_step;
    if (sizeof(real) == sizeof(float)) {
#pragma omp simd
        for (int l = 0; l < TILE_COLS; l++)
            sum[l] =
                add_product(add_product(add_product(add_product(sum[l], a0, b[l]), a1, b1[l]), a2, b2[l]), a3, b3[l]);
    } else {
#pragma omp simd
        for (int l = 0; l < TILE_COLS; l++)
            sum[l] += (a0 * b[l] + a1 * b1[l]) + (a2 * b2[l] + a3 * b3[l]);
    }
}

/* The same row of one or two tiles. */
CN_INLINE void add_row(real *sum, const real *a, size_t step, operand b, size_t tiles)
{
    add_four(sum, a, step, b.data, b.step);
    if (tiles == 2)
        add_four(sum + TILE_COLS, a, step, b.data + b.row, b.step);
}

CN_INLINE void copy_row(real *out, const real *sum, size_t tiles)
{
    memcpy(out, sum, (size_t)TILE_COLS * sizeof(real));
    if (tiles == 2)
        memcpy(out + TILE_ROWS * TILE_COLS, sum + TILE_COLS, (size_t)TILE_COLS * sizeof(real));
}

/* One tile or two, as a constant, one after the other. The rows are written out: an array that is indexed by a variable
 * would not stay in registers. */
CN_INLINE void sum_constant_tiles(real *out, operand a, operand b, size_t depth, const size_t tiles)
{
    real s0[2 * TILE_COLS] = {0}, s1[2 * TILE_COLS] = {0}, s2[2 * TILE_COLS] = {0}, s3[2 * TILE_COLS] = {0};
    real s4[2 * TILE_COLS] = {0}, s5[2 * TILE_COLS] = {0}, s6[2 * TILE_COLS] = {0}, s7[2 * TILE_COLS] = {0};
    for (size_t k = 0; k < depth; k += TREE) {
        add_row(s0, a.data, a.step, b, tiles);
        add_row(s1, a.data + a.row, a.step, b, tiles);
        add_row(s2, a.data + 2 * a.row, a.step, b, tiles);
        add_row(s3, a.data + 3 * a.row, a.step, b, tiles);
        add_row(s4, a.data + 4 * a.row, a.step, b, tiles);
        add_row(s5, a.data + 5 * a.row, a.step, b, tiles);
        add_row(s6, a.data + 6 * a.row, a.step, b, tiles);
        add_row(s7, a.data + 7 * a.row, a.step, b, tiles);
        a.data += TREE * a.step, b.data += TREE * b.step;
    }
    copy_row(out, s0, tiles), copy_row(out + TILE_COLS, s1, tiles), copy_row(out + 2 * TILE_COLS, s2, tiles);
    copy_row(out + 3 * TILE_COLS, s3, tiles), copy_row(out + 4 * TILE_COLS, s4, tiles);
    copy_row(out + 5 * TILE_COLS, s5, tiles), copy_row(out + 6 * TILE_COLS, s6, tiles);
    copy_row(out + 7 * TILE_COLS, s7, tiles);
}

CN_INLINE void sum_tiles(real *out, operand a, operand b, size_t depth, size_t tiles)
{
    if (tiles == 2)
        sum_constant_tiles(out, a, b, depth, 2);
    else
        sum_constant_tiles(out, a, b, depth, 1);
}

/* total[i * stride + j] += the sum over k < depth, a multiple of TREE. Two sums of DEPTH products join it together. */
CN_INLINE void add_tiles(acc *total, acc *lost, size_t stride, operand a, operand b, size_t depth, size_t tiles)
{
    real sum[TILES_MOST * TILE_ROWS * TILE_COLS], more[TILES_MOST * TILE_ROWS * TILE_COLS];
    for (size_t k = 0, m; k < depth; k += m) {
        m = depth - k < DEPTH ? depth - k : DEPTH;
        sum_tiles(sum, a, b, m, tiles);
        a.data += m * a.step, b.data += m * b.step;
        size_t next = depth - k - m < DEPTH ? depth - k - m : DEPTH;
        sum_tiles(more, a, b, next, tiles);
        a.data += next * a.step, b.data += next * b.step;
        m += next;
        for (size_t i = 0; i < TILE_ROWS * tiles; i++) {
            size_t at = i % TILE_ROWS * stride + i / TILE_ROWS * TILE_COLS;
            const real *s = sum + i * TILE_COLS, *t = more + i * TILE_COLS;
#pragma omp simd
            for (int l = 0; l < TILE_COLS; l++)
                add_to(&total[at + l], &lost[at + l], (acc)(s[l] + t[l]));
        }
    }
}

/* The same for short sums, with the total in `real`, tile after tile, row after row. */
CN_INLINE void add_short_tiles(real *total, operand a, operand b, size_t depth, size_t tiles)
{
    real sum[TILES_MOST * TILE_ROWS * TILE_COLS];
    for (size_t k = 0, m; k < depth; k += m) {
        m = depth - k < SHORT_DEPTH ? depth - k : SHORT_DEPTH;
        sum_tiles(sum, a, b, m, tiles);
        a.data += m * a.step, b.data += m * b.step;
        int n = (int)tiles * TILE_ROWS * TILE_COLS;
#pragma omp simd
        for (int l = 0; l < n; l++)
            total[l] += sum[l];
    }
}

#endif
