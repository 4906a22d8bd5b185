/* The backward pass of norms over rows, whose parameters run along the row: layer norm and RMS norm.
 *
 * Rows are cut into at most 64 blocks by their number alone. A task takes a block, eight rows at a time: first the sums of
 * each row (gradient.h), then, a tile of columns at a time, dx of four rows and, in the same loop, the sums over them of
 * dy * hat and of dy, which join the block's sums in acc (parameter_sums.h). So x and dy come from memory once, and dx goes
 * there once: 3S of traffic where four rows fit in the cache, else 5S.
 * Few long rows: tasks first take the pieces of rows for the sums, then ranges of columns of all rows, whose parameters'
 * sums are complete a tile at a time.
 * The same additions in the same order both ways: the bits do not depend on the number of threads.
 *
 * A kernel supplies its sums and its formula.
 */
#ifndef CN_ROWS_GRADIENT_H
#define CN_ROWS_GRADIENT_H

#include "rows_apply.h"
#include "rows_sums.h"
#include "wide_gradient.h"

#define CARRY_ROWS 16
/* Of four rows x, dy, their sums and the buffer fill the first cache; or little stack, where nothing goes past the caches. */
#ifdef STREAM_BYTES
#define TILE (2048 / sizeof(real))
#else
#define TILE (512 / sizeof(real))
#endif

/* A weight of zeros, as some networks begin with, is no reason for the careful way. */
static inline bool weight_is_zero(const rows_gradient *g)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t c = 0; c < (g->weight ? g->cols : 0); c++)
        any |= g->offset + g->weight[c] != 0;
    return g->weight && !any;
}

static inline void row_gradient(gradient *k, const rows_gradient *g, size_t row, const gradient_sums *s)
{
    make_gradient(k, s, (acc)g->cols, g->centred ? g->mean[row] : 0, g->rstd[row], g->centred);
    if (k->no_sums)
        k->fast &= weight_is_zero(g) || all_zero(g->dy + row * g->cols, g->cols);
}

static void careful_row(const rows_gradient *g, size_t row, acc *sums)
{
    size_t at = row * g->cols;
    bool compensated = sums && sizeof(real) == sizeof(acc);
    wide_gradient w = {.shape = {g->cols, g->cols, 0, 1, 1, g->cols},
                       .dy = g->dy + at,
                       .x = g->x + at,
                       .weight = g->weight,
                       .offset = g->offset,
                       .mean = g->centred ? g->mean[row] : 0,
                       .rstd = g->rstd[row],
                       .centred = g->centred,
                       .dx = g->dx ? g->dx + at : NULL,
                       .weight_sums = sums,
                       .bias_sums = sums ? sums + g->cols : NULL,
                       .weight_lost = compensated ? sums + 2 * g->cols : NULL,
                       .bias_lost = compensated ? sums + 3 * g->cols : NULL};
    wide_backward(&w);
}

/* Columns of the tile at c: none is shorter than a vector but of short rows. */
#define WIDEST_TILE (TILE + LANES)
static inline size_t tile_width(size_t c, size_t last) { return last - c < WIDEST_TILE ? last - c : TILE; }

/* By way of a buffer: past the caches, or where nobody asks for dx. Not inlined, for few calls need so deep a stack. */
CN_NOINLINE static void apply_buffered(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t c,
                                       size_t n, acc *sums)
{
    real buffer[ROWS_TOGETHER * WIDEST_TILE];
    g->apply(g, buffer, WIDEST_TILE, sums, row, rows, c, n, k);
    for (size_t r = 0; r < (g->dx ? rows : 0); r++)
        stream_out(g->dx + (row + r) * g->cols + c, buffer + r * WIDEST_TILE, n);
}

/* n columns, from c on, of `rows` rows that are all fast: as many as are taken together, or one. */
static inline void apply_tile(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t c, size_t n,
                              acc *sums)
{
    if (g->dx && !g->work.stream)
        g->apply(g, g->dx + row * g->cols + c, g->cols, sums, row, rows, c, n, k);
    else
        apply_buffered(g, row, rows, k, c, n, sums);
}

/* The same of at most as many rows as are taken together. Those that are not fast are done already. */
static inline void apply_fast(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t c, size_t n,
                              acc *sums)
{
    bool all_fast = rows == ROWS_TOGETHER;
    for (size_t r = 0; r < rows; r++)
        all_fast &= k[r].fast;
    if (all_fast)
        apply_tile(g, row, rows, k, c, n, sums);
    if (sums && sizeof(real) == sizeof(acc) && row % CARRY_ROWS == CARRY_ROWS - ROWS_TOGETHER)
        carry_over(sums, g->cols, n);
    for (size_t r = 0; r < (all_fast ? 0 : rows); r++)
        if (k[r].fast)
            apply_tile(g, row + r, 1, &k[r], c, n, sums);
}

/* The columns [first, last) of the rows [row, end), a tile at a time, whose sums then stay in the first cache; `sums` are
 * those of column `first` on. */
static inline void apply_rows(const rows_gradient *g, size_t row, size_t end, const gradient *k, size_t first,
                              size_t last, acc *sums)
{
    for (size_t c = first, n; c < last; c += n) {
        n = tile_width(c, last);
        for (size_t r = row, m; r < end; r += m) {
            m = end - r < g->together ? end - r : g->together;
            apply_fast(g, r, m, k + (r - row), c, n, sums ? sums + (c - first) : NULL);
        }
    }
}

/* The sums of a block, or NULL where they are not wanted. */
static inline acc *sums_of(const rows_gradient *g, size_t block)
{
    return wanted(&g->parameters) ? block_sums(&g->parameters, block) : NULL;
}

static void row_block(void *job, size_t task)
{
    const rows_gradient *g = job;
    size_t row = task * g->block_rows, end = row + g->block_rows < g->rows ? row + g->block_rows : g->rows;
    acc *sums = sums_of(g, task);
    if (sums)
        clear_sums(&g->parameters, task, 0, g->cols);
    for (size_t last; row < end; row = last) {
        gradient k[AT_ONCE];
        last = end - row < g->at_once ? end : row + g->at_once;
        for (size_t r = row, n; r < last; r += n) {
            gradient_sums s[ROWS_TOGETHER];
            n = last - r < g->together ? last - r : g->together;
            g->sum_rows(g, s, r, n);
            for (size_t i = 0; i < n; i++) {
                row_gradient(&k[r - row + i], g, r + i, &s[i]);
                if (!k[r - row + i].fast)
                    careful_row(g, r + i, sums);
            }
        }
        apply_rows(g, row, last, k, 0, g->cols, sums);
    }
    stream_fence();
}

static void row_piece_sums(void *job, size_t task)
{
    const rows_gradient *g = job;
    g->pieces[task] = row_piece(g, task / g->plan.pieces, task % g->plan.pieces);
}

/* False if a row has to take the careful way. */
static bool merge_row_pieces(rows_gradient *g)
{
    bool fast = true;
    for (size_t row = 0; row < g->rows; row++) {
        gradient_sums s = {0};
        for (size_t piece = 0; piece < g->plan.pieces; piece++)
            add_sums(&s, &g->pieces[row * g->plan.pieces + piece]);
        row_gradient(&g->gradients[row], g, row, &s);
        fast &= g->gradients[row].fast;
    }
    return fast;
}

/* The columns of one piece, of all rows, which are one block. Every tile's sums take the same small piece of memory. */
static void column_range(void *job, size_t task)
{
    const rows_gradient *g = job;
    size_t start = task * g->plan.blocks_per_piece * BLOCK, end = start + g->plan.blocks_per_piece * BLOCK;
    end = end < g->cols ? end : g->cols;
    acc *sums = sums_of(g, 0) ? sums_of(g, 0) + start : NULL;
    for (size_t first = start, last; first < end; first = last) {
        last = end - first < MERGE_COUNT ? end : first + MERGE_COUNT;
        if (sums)
            clear_sums(&g->parameters, 0, start, start + (last - first));
        apply_rows(g, 0, g->rows, g->gradients, first, last, sums);
        if (sums)
            write_parameters(&g->parameters, sums, first, last);
    }
    stream_fence();
}

static inline void rows_backward(rows_gradient *g, void *workspace)
{
    plan_rows(g);
    unsigned char *memory = workspace;
    g->parameters.memory = workspace;
    if (g->rows && g->cols) {
        g->pieces = (gradient_sums *)(memory + parameter_sums_size(g->parameters.blocks, g->cols));
        g->gradients = (gradient *)(g->pieces + g->rows * g->plan.pieces);
        bool shared = false;
        if (cn_few_groups(g->rows, g->plan.pieces)) {
            cn_parallel_for(g->rows * g->plan.pieces, g->work, row_piece_sums, g);
            shared = merge_row_pieces(g);
        }
        if (shared) {
            cn_parallel_for(g->plan.pieces, g->work, column_range, g);
            return;
        }
        cn_parallel_for(g->parameters.blocks, g->work, row_block, g);
    }
    finish_parameters(&g->parameters, g->work);
}

#endif
