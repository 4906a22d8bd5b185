/* Vectors side by side: column j of a matrix of `runs` rows belongs to vector j / length. A tile of columns is summed, and
 * written while it is still in the second cache: traffic 2S, with dy 3S. Each column is a lane of its own, and the columns
 * of a vector are added in order, so a result does not depend on the tile it is in.
 *
 * Short rows are turned by 90 degrees in a buffer, and are columns then.
 */
#ifndef CN_VECTOR_COLUMNS_H
#define CN_VECTOR_COLUMNS_H

#include "span.h"
#include "vectors.h"

/* Tiles of columns that stay in the second cache, unless they would be narrow; narrow ones if there would be few. */
#define TILE_BYTES (512 * 1024)
#define TILE_WIDE 64
#define TILE_LEAST 64
#define TILES_ENOUGH 8
#define LINE (64 / sizeof(real))

/* The output numbers of the columns of a tile. */
typedef struct {
    real measure[TILE_MOST], slope[TILE_MOST], scale[TILE_MOST];
    int slow[TILE_MOST]; /* of each vector: it is written already */
} column_scales;

/* A part of the vectors: `count` of them from number `first` on, each `length` columns wide. */
typedef struct {
    size_t first, count, runs, length, stride;
    real *y;
    const real *x, *dy;
} vector_tile;

CN_INLINE void write_columns(const vector_tile *t, const column_scales *k, norm_kind kind, bool backward)
{
    size_t cols = t->count * t->length;
    for (size_t r = 0; r < t->runs; r++) {
        real *y = t->y + r * t->stride;
        const real *x = t->x + r * t->stride, *dy = backward ? t->dy + r * t->stride : NULL;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            y[c] =
                backward ? gradient_of(dy[c], x[c], k->measure[c], k->slope[c], k->scale[c], kind) : x[c] * k->scale[c];
    }
}

/* Where some vectors are written already: the others, one after the other. */
CN_NOINLINE static void write_other_vectors(const vector_tile *t, const column_scales *k, norm_kind kind)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t r = 0; r < t->runs && !k->slow[i]; r++)
            for (size_t c = i * t->length; c < (i + 1) * t->length; c++) {
                size_t at = r * t->stride + c;
                t->y[at] = t->dy ? gradient_of(t->dy[at], t->x[at], k->measure[c], k->slope[c], k->scale[c], kind)
                                 : t->x[at] * k->scale[c];
            }
}

/* Where a vector is one column: all of them side by side; true if one is slow. */
CN_INLINE bool answer_columns(const vectors *v, const vector_tile *t, const column_sums *s, column_scales *k,
                              acc *noted, norm_kind kind, bool backward)
{
    const acc eps = v->eps;
    const real *factor = v->factor ? v->factor + t->first : NULL;
    const bool single = t->runs == 1;
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t c = 0; c < t->count; c++) {
        vector_question q = {s->size[c] + s->size_lost[c],
                             s->dot[c] + s->dot_lost[c],
                             s->ties[c],
                             factor ? factor[c] : 1,
                             eps,
                             kind,
                             backward,
                             single};
        vector_scale one = answer(q, &noted[c]);
        k->measure[c] = one.measure, k->slope[c] = one.slope, k->scale[c] = one.scale;
        k->slow[c] = !one.fast;
        any |= !one.fast;
    }
    return any;
}

static bool finish_columns(const vectors *v, const vector_tile *t, const column_sums *s, column_scales *k)
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
        if (!all && !k->slow[i])
            continue;
        size_t at = i * t->length;
        const real *dy = t->dy ? t->dy + at : NULL;
        vector_sums sums = sums_of_columns(s, at, t->length, v->kind);
        vector_scale one = finish_vector(v, t->first + i, t->x + at, dy, t->y ? t->y + at : NULL, &sums, &shape);
        k->slow[i] = !one.fast;
        slow |= !one.fast;
        for (size_t c = at; c < at + t->length; c++)
            k->measure[c] = one.measure, k->slope[c] = one.slope, k->scale[c] = one.scale;
    }
    return slow;
}

CN_NOINLINE static void tile_of_vectors(const vectors *v, const vector_tile *t)
{
    column_sums sums;
    column_scales k;
    sum_columns(&sums, t->x, t->dy, t->stride, t->runs, t->count * t->length, v->kind);
    bool slow = finish_columns(v, t, &sums, &k);
    if (!t->y)
        return;
    if (slow)
        write_other_vectors(t, &k, v->kind);
    else if (!t->dy)
        write_columns(t, &k, NORM_TWO, false);
    else if (v->kind == NORM_TWO)
        write_columns(t, &k, NORM_TWO, true);
    else if (v->kind == NORM_ONE)
        write_columns(t, &k, NORM_ONE, true);
    else
        write_columns(t, &k, NORM_MAX, true);
}

/* Vectors of a tile: whole cache lines of columns where a vector is one column. */
static inline size_t tile_width(const vector_shape *s, bool backward)
{
    size_t cols = TILE_BYTES / (s->runs * sizeof(real) * (backward ? 2 : 1));
    size_t share = s->matrices * s->vectors * s->length / TILES_ENOUGH / LINE * LINE;
    cols = cols < TILE_WIDE ? TILE_WIDE : cols > TILE_MOST ? TILE_MOST : cols / LINE * LINE;
    cols = share >= cols ? cols : share < TILE_LEAST ? TILE_LEAST : share;
    size_t count = cols / s->length ? cols / s->length : 1;
    return count < s->vectors ? count : s->vectors;
}

typedef struct {
    const vectors *v;
    size_t width, tiles; /* vectors of a tile, tiles of a matrix */
    size_t per_task;
} columns_job;

static void columns_task(void *data, size_t task)
{
    const columns_job *job = data;
    const vectors *v = job->v;
    const vector_shape *s = &v->shape;
    size_t end = (task + 1) * job->per_task, all = s->matrices * job->tiles;
    for (size_t i = task * job->per_task; i < end && i < all; i++) {
        size_t matrix = i / job->tiles, within = i % job->tiles * job->width, first = matrix * s->vectors + within;
        size_t left = s->vectors - within, at = vector_start(s, first);
        vector_tile t = {first,        left < job->width ? left : job->width,
                         s->runs,      s->length,
                         stride_of(s), v->y ? v->y + at : NULL,
                         v->x + at,    v->dy ? v->dy + at : NULL};
        tile_of_vectors(v, &t);
    }
}

static inline void vectors_by_columns(const vectors *v)
{
    const vector_shape *s = &v->shape;
    columns_job job = {.v = v, .width = tile_width(s, v->dy != NULL)};
    job.tiles = divide_up(s->vectors, job.width);
    size_t tile_bytes = job.width * s->length * s->runs * sizeof(real);
    job.per_task = cn_groups_per_task(s->matrices * job.tiles, tile_bytes, v->work.threads);
    cn_parallel_for(divide_up(s->matrices * job.tiles, job.per_task), v->work, columns_task, &job);
}

/* Rows of at most so many elements, so many at a time. */
#define SHORT_ROW 24
#define SHORT_ROWS 64

static void turn(real *to, const real *from, size_t rows, size_t cols, size_t to_stride, size_t from_stride)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < rows; r++)
            to[c * to_stride + r] = from[r * from_stride + c];
}

static void short_rows_task(void *data, size_t task)
{
    const columns_job *job = data;
    const vectors *v = job->v;
    size_t n = v->shape.length, end = (task + 1) * job->per_task, all = count_of(&v->shape);
    real x[SHORT_ROW * SHORT_ROWS], dy[SHORT_ROW * SHORT_ROWS];
    for (size_t i = task * job->per_task, rows; i < end && i < all; i += rows) {
        rows = all - i < SHORT_ROWS ? all - i : SHORT_ROWS;
        turn(x, v->x + i * n, rows, n, SHORT_ROWS, n);
        if (v->dy)
            turn(dy, v->dy + i * n, rows, n, SHORT_ROWS, n);
        vector_tile t = {i, rows, n, 1, SHORT_ROWS, v->dy ? dy : x, x, v->dy ? dy : NULL};
        tile_of_vectors(v, &t);
        if (v->y)
            turn(v->y + i * n, t.y, n, rows, n, SHORT_ROWS);
    }
}

static inline void vectors_by_short_rows(const vectors *v)
{
    size_t all = count_of(&v->shape);
    columns_job job = {.v = v};
    job.per_task = cn_groups_per_task(all, v->shape.length * sizeof(real), v->work.threads);
    job.per_task = divide_up(job.per_task, SHORT_ROWS) * SHORT_ROWS;
    cn_parallel_for(divide_up(all, job.per_task), v->work, short_rows_task, &job);
}

#endif
