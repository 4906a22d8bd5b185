/* The backward pass of norms over rows, whose parameters run along the row: layer norm and RMS norm.
 *
 * Rows are cut into at most 64 blocks by their number alone. A task takes a block, four rows at a time: first the sums of
 * each row (gradient.h), then dx of the four and, in the same loop, the sums over them of dy * hat and of dy, which join the
 * block's sums in acc (parameter_sums.h). So x and dy come from memory once, and dx goes there once: 3S of traffic where
 * four rows fit in the cache, else 5S.
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
#define TILE 96

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

/* Columns of the tile at c, whose dx in the first row begins at dx, or NULL: tiles end where lines of it do, for a part of a
 * line goes through the caches. None is shorter than a vector but of short rows. */
#define WIDEST_TILE (TILE + LANES)

static inline size_t tile_width(const real *dx, size_t c, size_t last)
{
    const size_t n = TILE - (dx ? (uintptr_t)dx / sizeof(real) % (64 / sizeof(real)) : 0);
    return last - c < n + LANES ? last - c : n;
}

/* `rows` rows that are all fast; `sums` are those of column `first` on. */
static inline void apply_rows(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t first,
                              size_t last, acc *sums, next_rows *next)
{
    bool buffered = g->work.stream || !g->dx;
    real buffer[ROWS_TOGETHER * WIDEST_TILE];
    for (size_t c = first, n; c < last; c += n) {
        size_t at = row * g->cols + c;
        n = buffered || next ? tile_width(g->dx ? g->dx + at : NULL, c, last) : last - c;
        g->apply(g, buffered ? buffer : g->dx + at, buffered ? WIDEST_TILE : g->cols, sums ? sums + (c - first) : NULL,
                 row, rows, c, n, k);
        for (size_t r = 0; r < (g->dx && buffered ? rows : 0); r++)
            stream_out(g->dx + at + r * g->cols, buffer + r * WIDEST_TILE, n);
        if (next)
            add_next(g, next, c + n);
    }
}

/* The columns [first, last) of some rows from `row` on. Rows that are not fast are done already. */
static inline void rows_together(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t first,
                                 size_t last, acc *sums, next_rows *next)
{
    bool all_fast = rows == ROWS_TOGETHER;
    for (size_t r = 0; r < rows; r++)
        all_fast &= k[r].fast;
    if (all_fast)
        apply_rows(g, row, rows, k, first, last, sums, next);
    if (sums && sizeof(real) == sizeof(acc) && row % CARRY_ROWS == CARRY_ROWS - ROWS_TOGETHER)
        carry_over(sums, g->cols, last - first);
    for (size_t r = 0; r < (all_fast ? 0 : rows); r++)
        if (k[r].fast)
            apply_rows(g, row + r, 1, &k[r], first, last, sums, NULL);
    if (next && !all_fast)
        add_next(g, next, last);
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
    bool overlap = g->work.stream && g->plan.pieces == 1 && g->cols > TILE;
    next_rows next = {.row = row, .rows = 0};
    gradient k[ROWS_TOGETHER];
    if (sums)
        clear_sums(&g->parameters, task, 0, g->cols);
    for (size_t n; row < end; row += n) {
        n = end - row < g->together ? end - row : g->together;
        if (!next.rows)
            g->sum_rows(g, next.sums, row, n);
        for (size_t r = 0; r < n; r++) {
            row_gradient(&k[r], g, row + r, &next.sums[r]);
            if (!k[r].fast)
                careful_row(g, row + r, sums);
        }
        if (overlap) {
            size_t left = end - row - n;
            next = (next_rows){.row = row + n, .rows = left < g->together ? left : g->together};
        }
        rows_together(g, row, n, k, 0, g->cols, sums, overlap ? &next : NULL);
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
        for (size_t row = 0; row < g->rows; row += g->together) {
            size_t n = g->rows - row < g->together ? g->rows - row : g->together;
            rows_together(g, row, n, g->gradients + row, first, last, sums, NULL);
        }
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
