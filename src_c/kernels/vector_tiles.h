/* Vectors side by side, as tiles: one is summed, and written while it is still in the second cache: traffic 2S, with dy
 * 3S. The columns of a vector are in one tile, so a result does not depend on the tile it is in.
 *
 * Short rows are turned by 90 degrees in a buffer, and are columns then.
 */
#ifndef CN_VECTOR_TILES_H
#define CN_VECTOR_TILES_H

#include "span.h"
#include "vector_columns.h"

/* Tiles of columns that stay in the second cache, unless they would be narrow; narrow ones if there would be few. */
#define TILE_BYTES (512 * 1024)
#define TILE_WIDE 64
#define TILE_LEAST 64
#define TILES_ENOUGH 8
#define LINE (64 / sizeof(real))

CN_NOINLINE static void tile_of_vectors(const vectors *v, const vector_tile *t)
{
    acc sums_memory[SUMS_OF_A_COLUMN * TILE_MOST];
    real scales_memory[SCALES_OF_A_COLUMN * TILE_MOST];
    int slow_memory[TILE_MOST];
    size_t cols = t->count * t->length;
    column_sums sums = place_column_sums(sums_memory, cols);
    column_scales k = place_scales(scales_memory, slow_memory, cols);
    sum_columns(sums, t->x, t->dy, t->stride, t->runs, cols, v->kind);
    bool slow = finish_columns(v, t, sums, k);
    if (t->y)
        write_columns(t, k, v->kind, slow);
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
} tiles_job;

static void tiles_task(void *data, size_t task)
{
    const tiles_job *job = data;
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

static inline void vectors_by_tiles(const vectors *v)
{
    const vector_shape *s = &v->shape;
    tiles_job job = {.v = v, .width = tile_width(s, v->dy != NULL)};
    job.tiles = divide_up(s->vectors, job.width);
    size_t tile_bytes = job.width * s->length * s->runs * sizeof(real);
    job.per_task = cn_groups_per_task(s->matrices * job.tiles, tile_bytes, v->work.threads);
    cn_parallel_for(divide_up(s->matrices * job.tiles, job.per_task), v->work, tiles_task, &job);
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
    const tiles_job *job = data;
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
    tiles_job job = {.v = v};
    job.per_task = cn_groups_per_task(all, v->shape.length * sizeof(real), v->work.threads);
    job.per_task = divide_up(job.per_task, SHORT_ROWS) * SHORT_ROWS;
    cn_parallel_for(divide_up(all, job.per_task), v->work, short_rows_task, &job);
}

#endif
