/* Vectors that are contiguous runs, one or several: rows. Blocks of at most BLOCK elements are summed in lanes and added in
 * order to pieces, pieces in order to the whole, as in span.h.
 *
 * Many vectors: a task takes some, and writes each while it is still in the cache: traffic 2S, with dy 3S. Few long ones:
 * a first round of tasks sums pieces, a second one writes them: S more where a vector exceeds the caches. Both ways give
 * the same bits.
 */
#ifndef CN_VECTOR_ROWS_H
#define CN_VECTOR_ROWS_H

#include "span.h"
#include "vectors.h"

/* Rows done together, each step for all of them, so that their chains of dependent operations overlap. */
#define ROWS_AT_ONCE 4
#define ROWS_BYTES (16 * 1024)

typedef struct {
    const vectors *v;
    span_plan plan;
    size_t per_task, at_once;
    vector_sums *partial; /* workspace of the second way: (count * pieces,) */
    vector_scale *scales; /* (count,) */
} rows_job;

/* Never gathered: runs of several are long here. */
static inline span_plan plan_rows(const vector_shape *s)
{
    span_plan p = {.blocks_per_run = divide_up(s->length, BLOCK)};
    p.blocks = s->runs * p.blocks_per_run;
    p.blocks_per_piece = divide_up(p.blocks, PIECES_MAX);
    if (p.blocks_per_piece < PIECE_BLOCKS)
        p.blocks_per_piece = PIECE_BLOCKS;
    p.pieces = divide_up(p.blocks, p.blocks_per_piece);
    return p;
}

static inline size_t rows_workspace(const vector_shape *s)
{
    span_plan plan = plan_rows(s);
    size_t count = count_of(s);
    return cn_few_groups(count, plan.pieces) ? count * (plan.pieces * sizeof(vector_sums) + sizeof(vector_scale)) : 0;
}

/* Where a block begins, and how long it is. */
static inline size_t block_at(const rows_job *job, size_t block, size_t *n)
{
    const vector_shape *s = &job->v->shape;
    size_t start = block % job->plan.blocks_per_run * BLOCK;
    *n = s->length - start < BLOCK ? s->length - start : BLOCK;
    return block / job->plan.blocks_per_run * stride_of(s) + start;
}

static vector_sums piece_sums(const rows_job *job, size_t base, size_t piece)
{
    const vectors *v = job->v;
    size_t block = piece * job->plan.blocks_per_piece, end = block + job->plan.blocks_per_piece, n;
    vector_sums sums = {0};
    for (; block < end && block < job->plan.blocks; block++) {
        size_t at = base + block_at(job, block, &n);
        vector_sums one = run_sums(v->x + at, v->dy ? v->dy + at : NULL, n, v->kind);
        join_sums(&sums, &one, v->kind);
    }
    return sums;
}

static vector_sums row_sums(const rows_job *job, size_t base)
{
    const vectors *v = job->v;
    if (job->plan.blocks == 1)
        return run_sums(v->x + base, v->dy ? v->dy + base : NULL, v->shape.length, v->kind);
    vector_sums sums = {0};
    for (size_t piece = 0; piece < job->plan.pieces; piece++) {
        vector_sums one = piece_sums(job, base, piece);
        join_sums(&sums, &one, v->kind);
    }
    return sums;
}

static inline vector_scale finish_row(const vectors *v, size_t i, const vector_sums *sums)
{
    size_t at = vector_start(&v->shape, i);
    strided_vector shape = {v->shape.runs * v->shape.length, v->shape.length, stride_of(&v->shape)};
    return finish_vector(v, i, v->x + at, v->dy ? v->dy + at : NULL, v->y ? v->y + at : NULL, sums, &shape);
}

static inline void scale_part(real *y, const real *x, size_t n, real scale)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale;
}

CN_INLINE void gradient_part(real *dx, const real *dy, const real *x, size_t n, const vector_scale *k, norm_kind kind)
{
    const real measure = k->measure, slope = k->slope, scale = k->scale;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dx[i] = gradient_of(dy[i], x[i], measure, slope, scale, kind);
}

static inline void write_part(const vectors *v, real *y, size_t at, size_t n, const vector_scale *k)
{
    const real *x = v->x + at;
    if (!v->dy)
        scale_part(y, x, n, k->scale);
    else if (v->kind == NORM_TWO)
        gradient_part(y, v->dy + at, x, n, k, NORM_TWO);
    else if (v->kind == NORM_ONE)
        gradient_part(y, v->dy + at, x, n, k, NORM_ONE);
    else
        gradient_part(y, v->dy + at, x, n, k, NORM_MAX);
}

CN_NOINLINE static void write_past_caches(const vectors *v, size_t at, size_t n, const vector_scale *k, size_t ahead)
{
    real buffer[STREAM_RUN];
    for (size_t end = at + n, m; at < end; at += m) {
        m = stream_run(v->y + at, end - at);
        fetch_far(v->x + at, m, ahead);
        if (v->dy)
            fetch_far(v->dy + at, m, ahead);
        write_part(v, buffer, at, m, k);
        stream_out(v->y + at, buffer, m);
    }
}

/* n elements; those `ahead` of them are fetched meanwhile, unless ahead is 0. */
static inline void write_run(const vectors *v, size_t at, size_t n, const vector_scale *k, size_t ahead)
{
    if (v->work.stream && n >= STREAM_RUN) {
        write_past_caches(v, at, n, k, ahead);
        return;
    }
    fetch_near(v->x + at, n, ahead);
    if (v->dy)
        fetch_near(v->dy + at, n, ahead);
    write_part(v, v->y + at, at, n, k);
}

static void write_blocks(const rows_job *job, size_t base, const vector_scale *k, size_t first, size_t last,
                         size_t ahead)
{
    for (size_t block = first, n; block < last; block++) {
        size_t at = base + block_at(job, block, &n);
        write_run(job->v, at, n, k, ahead);
    }
}

static void whole_rows(void *data, size_t task)
{
    const rows_job *job = data;
    const vectors *v = job->v;
    size_t i = task * job->per_task, end = i + job->per_task, all = count_of(&v->shape);
    size_t length = v->shape.length;
    bool fetch = v->shape.runs == 1 && worth_fetching(v->work, length * sizeof(real) * (v->dy ? 2 : 1));
    end = end < all ? end : all;
    for (size_t n; i < end; i += n) {
        vector_sums sums[ROWS_AT_ONCE];
        vector_scale k[ROWS_AT_ONCE];
        n = end - i < job->at_once ? end - i : job->at_once;
        for (size_t r = 0; r < n; r++)
            sums[r] = row_sums(job, vector_start(&v->shape, i + r));
        for (size_t r = 0; r < n; r++)
            k[r] = finish_row(v, i + r, &sums[r]);
        size_t ahead = fetch && i + 2 * n <= all ? n * length : 0;
        for (size_t r = 0; r < n; r++)
            if (k[r].fast && v->y)
                write_blocks(job, vector_start(&v->shape, i + r), &k[r], 0, job->plan.blocks, ahead);
    }
    stream_fence();
}

static void sum_piece(void *data, size_t task)
{
    const rows_job *job = data;
    size_t i = task / job->plan.pieces;
    job->partial[task] = piece_sums(job, vector_start(&job->v->shape, i), task % job->plan.pieces);
}

static void write_piece(void *data, size_t task)
{
    const rows_job *job = data;
    size_t i = task / job->plan.pieces, first = task % job->plan.pieces * job->plan.blocks_per_piece;
    size_t last = first + job->plan.blocks_per_piece;
    if (job->scales[i].fast && job->v->y)
        write_blocks(job, vector_start(&job->v->shape, i), &job->scales[i], first,
                     last < job->plan.blocks ? last : job->plan.blocks, 0);
    stream_fence();
}

static void merge_pieces(const rows_job *job)
{
    for (size_t i = 0; i < count_of(&job->v->shape); i++) {
        vector_sums sums = {0};
        for (size_t piece = 0; piece < job->plan.pieces; piece++)
            join_sums(&sums, &job->partial[i * job->plan.pieces + piece], job->v->kind);
        job->scales[i] = finish_row(job->v, i, &sums);
    }
}

static inline void vectors_by_rows(const vectors *v, void *workspace)
{
    size_t all = count_of(&v->shape), bytes = v->shape.runs * v->shape.length * sizeof(real) * (v->dy ? 2 : 1);
    rows_job job = {.v = v, .plan = plan_rows(&v->shape)};
    if (v->work.threads > 1 && cn_few_groups(all, job.plan.pieces)) {
        job.partial = workspace;
        job.scales = (vector_scale *)(job.partial + all * job.plan.pieces);
        cn_parallel_for(all * job.plan.pieces, v->work, sum_piece, &job);
        merge_pieces(&job);
        cn_parallel_for(all * job.plan.pieces, v->work, write_piece, &job);
        return;
    }
    job.at_once = ROWS_BYTES / bytes;
    job.at_once = job.at_once < 1 ? 1 : job.at_once > ROWS_AT_ONCE ? ROWS_AT_ONCE : job.at_once;
    job.per_task = cn_groups_per_task(all, bytes, v->work.threads);
    cn_parallel_for(divide_up(all, job.per_task), v->work, whole_rows, &job);
}

#endif
