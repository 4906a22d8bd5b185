/* Products of a weight, seen as a matrix, with vectors.
 *
 *     over_rows    t[o, c] = sum_r w[o, r, c] x[r]           the transposed matrix times x
 *     over_cols    s[r] = sum_{o, c} w[o, r, c] x[o, c]      the matrix times x
 *
 * The matrix lies in memory as slabs (one, unless its rows are an inner axis of the weight) of rows of cols elements.
 *
 * Split: by the matrix's size alone into blocks of rows and chunks of columns, or where there are several slabs into
 * blocks of whole slabs. Every block has sums of its own, merged in order (sum_parts): one long row and many short ones
 * use every core, and the bits do not depend on who computed what. over_cols goes through the matrix in the opposite
 * order, so that a pass begins with what the one before it has left in the caches.
 */
#ifndef CN_MATRIX_H
#define CN_MATRIX_H

#include "column_plan.h"
#include "products.h"

#define CHUNK 2048          /* columns: their sums and a few rows stay in the first cache */
#define TILE_ELEMENTS 32768 /* of a block at least */
#define ROWS_LEAST 64       /* of a block, so that the sums of all blocks are small beside the matrix */
#define BLOCKS_MOST 64

typedef struct {
    const real *w;
    size_t slabs, rows, cols;
    size_t slabs_per_block, rows_per_block;
    size_t slab_blocks, row_blocks, chunks; /* tasks are their product */
    cn_work work;
    bool exact; /* products and sums without roundings that could show in a result that cancels */
    const real *x;
    acc *parts; /* of a product: sums, and for double data what rounding took from them, by part */
    acc *row_products;
} matrix;

static inline size_t at_least(size_t a, size_t b) { return a > b ? a : b; }

static inline matrix plan_matrix(const real *w, size_t slabs, size_t rows, size_t cols)
{
    matrix m = {.w = w, .slabs = slabs, .rows = rows, .cols = cols, .rows_per_block = rows, .slabs_per_block = 1};
    m.slab_blocks = m.row_blocks = m.chunks = 1;
    if (slabs == 1) {
        m.chunks = divide_up(cols, CHUNK);
        size_t least = divide_up(TILE_ELEMENTS, lesser(cols, CHUNK));
        least = at_least(at_least(least, ROWS_LEAST), divide_up(rows, BLOCKS_MOST));
        m.rows_per_block = TREE * divide_up(least, TREE);
        m.row_blocks = divide_up(rows, m.rows_per_block);
    } else {
        size_t least = at_least(divide_up(TILE_ELEMENTS, rows * cols), divide_up(slabs, BLOCKS_MOST));
        m.slabs_per_block = TREE * divide_up(least, TREE);
        m.slab_blocks = divide_up(slabs, m.slabs_per_block);
    }
    return m;
}

static inline size_t part_words(size_t n) { return (sizeof(real) == sizeof(acc) ? 2 : 1) * n; }

/* Numbers of acc that the parts of either product take. */
static inline size_t parts_words(const matrix *m)
{
    return at_least(m->row_blocks * part_words(m->slabs * m->cols), m->slab_blocks * m->chunks * part_words(m->rows));
}

static inline size_t matrix_tasks(const matrix *m) { return m->slab_blocks * m->row_blocks * m->chunks; }

/* The part of the matrix that a task takes, and which blocks those are. */
typedef struct {
    size_t slab_block, row_block, chunk;
    size_t first_slab, last_slab, first_row, last_row, first_col, last_col;
} tile;

static inline tile find_tile(const matrix *m, size_t task)
{
    tile t = {.chunk = task % m->chunks, .row_block = task / m->chunks % m->row_blocks};
    t.slab_block = task / m->chunks / m->row_blocks;
    t.first_slab = t.slab_block * m->slabs_per_block;
    t.last_slab = lesser(t.first_slab + m->slabs_per_block, m->slabs);
    t.first_row = t.row_block * m->rows_per_block;
    t.last_row = lesser(t.first_row + m->rows_per_block, m->rows);
    t.first_col = t.chunk * CHUNK;
    t.last_col = m->chunks == 1 ? m->cols : lesser(t.first_col + CHUNK, m->cols);
    return t;
}

/* What was lost of the n sums of a part (or for float data the sums again, which nobody touches as such). */
static inline acc *lost_of(acc *sums, size_t n) { return sizeof(real) == sizeof(acc) ? sums + n : sums; }

static inline void clear_part(acc *sums, acc *lost, size_t n)
{
    memset(sums, 0, n * sizeof(acc));
    memset(lost, 0, n * sizeof(acc));
}

static void rows_task(void *job, size_t task)
{
    const matrix *m = job;
    const tile t = find_tile(m, task);
    size_t length = m->slabs * m->cols;
    acc *sums = m->parts + t.row_block * part_words(length), *lost = lost_of(sums, length);
    for (size_t slab = t.first_slab; slab < t.last_slab; slab++) {
        for (size_t col = t.first_col, n; col < t.last_col; col += n) {
            n = lesser(CHUNK, t.last_col - col);
            size_t at = slab * m->cols + col;
            clear_part(sums + at, lost + at, n);
            add_rows(sums + at, lost + at, m->w + (slab * m->rows + t.first_row) * m->cols + col, m->cols,
                     m->x + t.first_row, t.last_row - t.first_row, n, m->exact);
        }
    }
}

/* The slabs [first, last), whose rows are short: eight of them at a time. */
static void short_rows(const matrix *m, acc *sums, acc *lost, size_t first, size_t last)
{
    size_t slab_size = m->rows * m->cols;
    for (size_t slab = first, n; slab < last; slab += n) {
        n = slab + TREE <= last ? TREE : 1;
        const real *w = m->w + slab * slab_size, *x = m->x + slab * m->cols;
        for (size_t row = 0; row < m->rows; row++, w += m->cols)
            add_to(&sums[row], &lost[row], n == TREE ? dot_eight_runs(w, slab_size, x, m->cols) : dot(w, x, m->cols));
    }
}

static void cols_task(void *job, size_t task)
{
    const matrix *m = job;
    const tile t = find_tile(m, last_first(task, matrix_tasks(m), m->work));
    acc *sums = m->parts + (t.slab_block * m->chunks + t.chunk) * part_words(m->rows), *lost = lost_of(sums, m->rows);
    clear_part(sums + t.first_row, lost + t.first_row, t.last_row - t.first_row);
    if (m->slabs > 1 && m->cols <= SHORT_RUN && !m->exact) {
        short_rows(m, sums, lost, t.first_slab, t.last_slab);
        return;
    }
    for (size_t slab = t.first_slab; slab < t.last_slab; slab++) {
        for (size_t col = t.first_col, n; col < t.last_col; col += n) {
            n = lesser(CHUNK, t.last_col - col);
            const real *w = m->w + slab * m->rows * m->cols + col, *x = m->x + slab * m->cols + col;
            for (size_t row = t.first_row; row < t.last_row; row++) {
                const real *run = w + row * m->cols;
                add_to(&sums[row], &lost[row], m->exact ? exact_dot(run, x, n) : dot(run, x, n));
            }
        }
    }
}

/* Both products in one pass over the matrix, of one slab: row_products = w x, and the parts of w^T (w x). Eight rows at a
 * time, which are still in the cache when they are added up; their products are rounded to real for that. */
static void both_task(void *job, size_t block)
{
    const matrix *m = job;
    acc *sums = m->parts + block * part_words(m->cols), *lost = lost_of(sums, m->cols);
    size_t first = block * m->rows_per_block, last = lesser(first + m->rows_per_block, m->rows);
    clear_part(sums, lost, m->cols);
    for (size_t row = first, n; row < last; row += n) {
        n = lesser(TREE, last - row);
        const real *w = m->w + row * m->cols;
        real factors[TREE];
        for (size_t r = 0; r < n; r++) {
            m->row_products[row + r] = dot(w + r * m->cols, m->x, m->cols);
            factors[r] = (real)m->row_products[row + r];
        }
        add_rows(sums, lost, w, m->cols, factors, n, m->cols, false);
    }
}

#define BOTH_BYTES (256 * 1024) /* eight rows of at most this fit in a core's own cache */
#define BOTH_BLOCKS 8           /* fewer would leave cores idle */

static inline bool takes_both(const matrix *m)
{
    return m->slabs == 1 && m->row_blocks >= BOTH_BLOCKS && TREE * m->cols * sizeof(real) <= BOTH_BYTES;
}

#define MERGE_RANGE 2048
#define MERGE_WORDS 32768 /* more numbers than this are worth sharing */

typedef struct {
    acc *parts;
    size_t count, n;
} merge_job;

static void merge_range(void *job, size_t task)
{
    const merge_job *g = job;
    size_t first = task * MERGE_RANGE, last = lesser(first + MERGE_RANGE, g->n);
    acc *sums = g->parts, *lost = lost_of(sums, g->n);
    for (size_t part = 1; part < g->count; part++) {
        const acc *from = g->parts + part * part_words(g->n), *from_lost = from + (lost - sums);
#pragma omp simd
        for (size_t i = first; i < last; i++) {
            add_to(&sums[i], &lost[i], from[i]);
            if (sizeof(real) == sizeof(acc))
                lost[i] += from_lost[i];
        }
    }
    for (size_t i = first; sizeof(real) == sizeof(acc) && i < last; i++)
        lost[i] = two_sum(&sums[i], lost[i]);
}

/* Adds `count` parts of n sums in order: the product, which replaces the first part; of double data its second words
 * follow. */
static inline const acc *sum_parts(matrix *m, size_t count, size_t n)
{
    cn_work work = m->work;
    merge_job job = {m->parts, count, n};
    if (count * n < MERGE_WORDS)
        work.threads = 1;
    cn_parallel_for(divide_up(n, MERGE_RANGE), work, merge_range, &job);
    return m->parts;
}

static inline const acc *over_rows(matrix *m, const real *x)
{
    m->x = x;
    cn_parallel_for(matrix_tasks(m), m->work, rows_task, m);
    return sum_parts(m, m->row_blocks, m->slabs * m->cols);
}

static inline const acc *over_cols(matrix *m, const real *x)
{
    m->x = x;
    cn_parallel_for(matrix_tasks(m), m->work, cols_task, m);
    return sum_parts(m, m->slab_blocks * m->chunks, m->rows);
}

/* w^T (w x); w x goes to `row_products`. */
static inline const acc *over_both(matrix *m, const real *x, acc *row_products)
{
    m->x = x;
    m->row_products = row_products;
    cn_parallel_for(m->row_blocks, m->work, both_task, m);
    return sum_parts(m, m->row_blocks, m->cols);
}

#endif
