/* Vectors side by side in a matrix of so many rows that a tile of them would be a narrow strip of each row, when memory is
 * fastest in whole rows: a first round of tasks sums pieces of rows, a second one adds those of some columns in order and
 * finds their numbers, a third one writes pieces. Traffic 3S, with dy 5S, where the matrix exceeds the caches.
 *
 * The cutting depends on the shape alone, so every number of threads adds the same parts in the same order.
 */
#ifndef CN_VECTOR_PIECES_H
#define CN_VECTOR_PIECES_H

#include "column_plan.h"
#include "vector_columns.h"

/* More rows than this, of x and dy together, and this much of a matrix. */
#define PIECES_ROWS (1600 / sizeof(real))
#define PIECES_BYTES (1024 * 1024)

/* Rows of a piece have at least so many bytes, since its sums are written and read. */
#define MATRIX_PIECES 16
#define MATRIX_PIECE_BYTES (256 * 1024)

typedef struct {
    size_t rows, pieces;  /* rows of a piece; pieces of a matrix */
    size_t width, parts;  /* vectors of a part, a page wide; parts of a matrix */
    size_t group, groups; /* vectors that are finished together, in a tile; so many of these */
} pieces_plan;

typedef struct {
    const vectors *v;
    pieces_plan plan;
    size_t first; /* vector of the matrix at hand */
    acc *sums;    /* of each piece */
    column_scales scales;
    bool *slow; /* of each group */
} pieces_job;

static inline bool are_pieces(const vector_shape *s, bool backward)
{
    return s->runs * (backward ? 2 : 1) > PIECES_ROWS && s->runs * stride_of(s) * sizeof(real) > PIECES_BYTES;
}

static inline pieces_plan plan_pieces(const vector_shape *s)
{
    pieces_plan p = {.rows = divide_up(MATRIX_PIECE_BYTES, stride_of(s) * sizeof(real))};
    size_t least = divide_up(s->runs, MATRIX_PIECES);
    p.rows = divide_up(p.rows < least ? least : p.rows, 4) * 4;
    p.pieces = divide_up(s->runs, p.rows);
    p.width = CHUNK_COLUMNS > s->length ? CHUNK_COLUMNS / s->length : 1;
    p.parts = divide_up(s->vectors, p.width);
    p.group = TILE_MOST / s->length;
    p.groups = divide_up(s->vectors, p.group);
    return p;
}

static inline size_t pieces_workspace(const vector_shape *s)
{
    pieces_plan p = plan_pieces(s);
    size_t of_columns = p.pieces * SUMS_OF_A_COLUMN * sizeof(acc) + SCALES_OF_A_COLUMN * sizeof(real);
    return stride_of(s) * of_columns + s->vectors * sizeof(int) + p.groups * sizeof(bool);
}

static inline column_sums sums_of_piece(const pieces_job *job, size_t piece, size_t vector)
{
    size_t cols = stride_of(&job->v->shape);
    column_sums s = place_column_sums(job->sums + piece * SUMS_OF_A_COLUMN * cols, cols);
    return column_sums_from(s, vector * job->v->shape.length);
}

/* At most `count` vectors of the matrix from number `within` on, and at most `runs` of their rows from `row` on. */
static vector_tile part_of_matrix(const pieces_job *job, size_t within, size_t count, size_t row, size_t runs)
{
    const vectors *v = job->v;
    const vector_shape *s = &v->shape;
    size_t left = s->vectors - within, rows_left = s->runs - row;
    size_t at = vector_start(s, job->first + within) + row * stride_of(s);
    return (vector_tile){job->first + within,
                         count < left ? count : left,
                         runs < rows_left ? runs : rows_left,
                         s->length,
                         stride_of(s),
                         v->y ? v->y + at : NULL,
                         v->x + at,
                         v->dy ? v->dy + at : NULL};
}

static void sum_part(void *data, size_t task)
{
    const pieces_job *job = data;
    const pieces_plan *p = &job->plan;
    size_t piece = task / p->parts, within = task % p->parts * p->width;
    vector_tile t = part_of_matrix(job, within, p->width, piece * p->rows, p->rows);
    sum_columns(sums_of_piece(job, piece, within), t.x, t.dy, t.stride, t.runs, t.count * t.length, job->v->kind);
}

static void finish_group(void *data, size_t task)
{
    const pieces_job *job = data;
    const pieces_plan *p = &job->plan;
    size_t within = task * p->group;
    vector_tile t = part_of_matrix(job, within, p->group, 0, job->v->shape.runs);
    column_sums total = sums_of_piece(job, 0, within);
    for (size_t piece = 1; piece < p->pieces; piece++)
        join_columns(total, sums_of_piece(job, piece, within), t.count * t.length, job->v->kind);
    job->slow[task] = finish_columns(job->v, &t, total, scales_from(job->scales, within, t.length));
}

static void write_piece_of_part(void *data, size_t task)
{
    const pieces_job *job = data;
    const pieces_plan *p = &job->plan;
    task = last_first(task, p->pieces * p->parts, job->v->work);
    size_t piece = task / p->parts, within = task % p->parts * p->width;
    vector_tile t = part_of_matrix(job, within, p->width, piece * p->rows, p->rows);
    bool slow = false;
    for (size_t group = within / p->group; group * p->group < within + t.count; group++)
        slow |= job->slow[group];
    write_columns(&t, scales_from(job->scales, within, t.length), job->v->kind, slow);
}

static inline void vectors_by_pieces(const vectors *v, void *workspace)
{
    const vector_shape *s = &v->shape;
    pieces_job job = {.v = v, .plan = plan_pieces(s), .sums = workspace};
    size_t cols = stride_of(s), tasks = job.plan.pieces * job.plan.parts;
    real *scales = (real *)(job.sums + job.plan.pieces * SUMS_OF_A_COLUMN * cols);
    int *slow = (int *)(scales + SCALES_OF_A_COLUMN * cols);
    job.scales = place_scales(scales, slow, cols);
    job.slow = (bool *)(slow + s->vectors);
    for (; job.first < count_of(s); job.first += s->vectors) {
        cn_parallel_for(tasks, v->work, sum_part, &job);
        cn_parallel_for(job.plan.groups, v->work, finish_group, &job);
        if (v->y)
            cn_parallel_for(tasks, v->work, write_piece_of_part, &job);
    }
}

#endif
