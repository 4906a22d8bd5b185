/* Vectors side by side: column j of a matrix of `runs` rows belongs to vector j / length. Some of them are a tile: their
 * columns are summed, their numbers found, and their columns written.
 */
#ifndef CN_VECTOR_COLUMNS_H
#define CN_VECTOR_COLUMNS_H

#include "vector_column_sums.h"
#include "vectors.h"

/* Columns of a tile, at most. */
#define TILE_MOST 512

/* The output numbers of columns, and of each vector whether it is slow: it is written already. */
typedef struct {
    real *measure, *slope, *scale;
    int *slow;
} column_scales;

#define SCALES_OF_A_COLUMN 3

static inline column_scales place_scales(real *memory, int *slow, size_t cols)
{
    return (column_scales){memory, memory + cols, memory + 2 * cols, slow};
}

/* From vector number `first` on. */
static inline column_scales scales_from(column_scales k, size_t first, size_t length)
{
    size_t at = first * length;
    return (column_scales){k.measure + at, k.slope + at, k.scale + at, k.slow + first};
}

/* A part of the vectors: `count` of them from number `first` on, each `length` columns wide. */
typedef struct {
    size_t first, count, runs, length, stride;
    real *y;
    const real *x, *dy;
} vector_tile;

CN_INLINE void write_columns_of(const vector_tile *t, column_scales k, norm_kind kind, bool backward)
{
    size_t cols = t->count * t->length;
    for (size_t r = 0; r < t->runs; r++) {
        real *y = t->y + r * t->stride;
        const real *x = t->x + r * t->stride, *dy = backward ? t->dy + r * t->stride : NULL;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            y[c] = backward ? gradient_of(dy[c], x[c], k.measure[c], k.slope[c], k.scale[c], kind) : x[c] * k.scale[c];
    }
}

/* Where some vectors are written already: the others, one after the other. */
CN_NOINLINE static void write_other_vectors(const vector_tile *t, column_scales k, norm_kind kind)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t r = 0; r < t->runs && !k.slow[i]; r++)
            for (size_t c = i * t->length; c < (i + 1) * t->length; c++) {
                size_t at = r * t->stride + c;
                t->y[at] = t->dy ? gradient_of(t->dy[at], t->x[at], k.measure[c], k.slope[c], k.scale[c], kind)
                                 : t->x[at] * k.scale[c];
            }
}

/* Where a vector is one column: all of them side by side; true if one is slow. */
CN_INLINE bool answer_columns(const vectors *v, const vector_tile *t, column_sums s, column_scales k, acc *noted,
                              norm_kind kind, bool backward)
{
    const acc eps = v->eps;
    const real *factor = v->factor ? v->factor + t->first : NULL;
    const bool single = t->runs == 1;
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t c = 0; c < t->count; c++) {
        vector_question q = {s.size[c] + s.size_lost[c],
                             s.dot[c] + s.dot_lost[c],
                             s.ties[c],
                             factor ? factor[c] : 1,
                             eps,
                             kind,
                             backward,
                             single};
        vector_scale one = answer(q, &noted[c]);
        k.measure[c] = one.measure, k.slope[c] = one.slope, k.scale[c] = one.scale;
        k.slow[c] = !one.fast;
        any |= !one.fast;
    }
    return any;
}

static bool finish_columns(const vectors *v, const vector_tile *t, column_sums s, column_scales k)
{
    strided_vector shape = {t->runs * t->length, t->length, t->stride};
    bool slow = true, all = t->length > 1 || v->kind == NORM_ANY;
    acc noted[TILE_MOST];
    if (!all && v->kind == NORM_TWO)
        slow = t->dy ? answer_columns(v, t, s, k, noted, NORM_TWO, true)
                     : answer_columns(v, t, s, k, noted, NORM_TWO, false);
    else if (!all)
        slow = t->dy ? answer_columns(v, t, s, k, noted, v->kind, true)
                     : answer_columns(v, t, s, k, noted, v->kind, false);
    for (size_t i = 0; !all && v->noted && i < t->count; i++)
        v->noted[t->first + i] = (real)noted[i];
    if (!slow)
        return false;
    slow = false;
    for (size_t i = 0; i < t->count; i++) {
        if (!all && !k.slow[i])
            continue;
        size_t at = i * t->length;
        const real *dy = t->dy ? t->dy + at : NULL;
        vector_sums sums = sums_of_columns(s, at, t->length, v->kind);
        vector_scale one = finish_vector(v, t->first + i, t->x + at, dy, t->y ? t->y + at : NULL, &sums, &shape);
        k.slow[i] = !one.fast;
        slow |= !one.fast;
        for (size_t c = at; c < at + t->length; c++)
            k.measure[c] = one.measure, k.slope[c] = one.slope, k.scale[c] = one.scale;
    }
    return slow;
}

/* With the numbers of all their rows; `slow`: some are written already. */
static inline void write_columns(const vector_tile *t, column_scales k, norm_kind kind, bool slow)
{
    if (slow)
        write_other_vectors(t, k, kind);
    else if (!t->dy)
        write_columns_of(t, k, NORM_TWO, false);
    else if (kind == NORM_TWO)
        write_columns_of(t, k, NORM_TWO, true);
    else if (kind == NORM_ONE)
        write_columns_of(t, k, NORM_ONE, true);
    else
        write_columns_of(t, k, NORM_MAX, true);
}

#endif
