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

#include "../parallel.h"
#include "gradient.h"
#include "parameter_sums.h"
#include "span.h"
#include "stream.h"
#include "wide_gradient.h"

#define ROWS_TOGETHER 4
#define CARRY_ROWS 16
#define TOGETHER_BYTES (1024 * 1024) /* x and dy of the rows taken together, which stay in the second cache */
#define ROW_BLOCK_MIN 32
#define TILE 96

typedef struct rows_gradient rows_gradient;
struct rows_gradient {
    real *dx; /* or NULL */
    parameter_sums parameters;
    const real *dy, *x, *mean, *rstd, *weight;
    size_t rows, cols;
    real offset;
    bool centred;
    cn_work work;
    /* The columns [first, first + n) of a row join the lanes of its sums. */
    void (*add)(const rows_gradient *g, gradient_lanes *sums, size_t row, size_t first, size_t n);
    /* The columns [first, first + n) of one row, or of ROWS_TOGETHER: dx, its rows `stride` apart, and what they add to
     * the sums of these columns, if those are not NULL. */
    void (*apply)(const rows_gradient *g, real *dx, size_t stride, acc *sums, size_t row, size_t rows, size_t first,
                  size_t n, const gradient *k);
    size_t block_rows, together;
    span_plan plan;
    gradient_sums *pieces; /* the second way: (rows, pieces) */
    gradient *gradients;   /* (rows,) */
};

/* A weight of zeros, as some networks begin with, is no reason for the careful way. */
static inline bool weight_is_zero(const rows_gradient *g)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t c = 0; c < (g->weight ? g->cols : 0); c++)
        any |= g->offset + g->weight[c] != 0;
    return g->weight && !any;
}

static inline void plan_rows(rows_gradient *g)
{
    g->block_rows = divide_up(divide_up(g->rows, PARAMETER_BLOCKS_MAX), ROWS_TOGETHER) * ROWS_TOGETHER;
    if (g->block_rows < ROW_BLOCK_MIN)
        g->block_rows = ROW_BLOCK_MIN;
    g->parameters.count = g->cols;
    g->parameters.blocks = divide_up(g->rows, g->block_rows);
    g->together = g->cols <= TOGETHER_BYTES / sizeof(real) / 2 / ROWS_TOGETHER ? ROWS_TOGETHER : 1;
    g->plan = plan_span((span){.runs = 1, .length = g->cols, .stride = g->cols});
}

static inline size_t rows_gradient_workspace(size_t rows, size_t cols)
{
    rows_gradient g = {.rows = rows, .cols = cols};
    if (rows == 0 || cols == 0)
        return 0;
    plan_rows(&g);
    size_t size = parameter_sums_size(g.parameters.blocks, cols);
    if (cn_few_groups(rows, g.plan.pieces))
        size += rows * (g.plan.pieces * sizeof(gradient_sums) + sizeof(gradient));
    return size;
}

static gradient_sums row_piece(const rows_gradient *g, size_t row, size_t piece)
{
    gradient_sums s = {0};
    size_t block = piece * g->plan.blocks_per_piece, end = block + g->plan.blocks_per_piece;
    for (; block < end && block < g->plan.blocks; block++) {
        size_t first = block * BLOCK, n = g->cols - first < BLOCK ? g->cols - first : BLOCK;
        gradient_lanes lanes;
        clear_lanes(&lanes);
        g->add(g, &lanes, row, first, n);
        gradient_sums b = fold_sums(&lanes);
        add_sums(&s, &b);
    }
    return s;
}

static gradient_sums whole_row(const rows_gradient *g, size_t row)
{
    gradient_sums s = row_piece(g, row, 0);
    for (size_t piece = 1; piece < g->plan.pieces; piece++) {
        gradient_sums p = row_piece(g, row, piece);
        add_sums(&s, &p);
    }
    return s;
}

static gradient row_gradient(const rows_gradient *g, size_t row, const gradient_sums *s)
{
    gradient k = make_gradient(s, (acc)g->cols, g->centred ? g->mean[row] : 0, g->rstd[row], g->centred);
    k.fast &= !k.no_sums || weight_is_zero(g) || all_zero(g->dy + row * g->cols, g->cols);
    return k;
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

/* The sums of the rows that come next, taken while the present ones are written: so the memory has reads to do beside the
 * writes. Up to column `at` of row r they are taken. */
typedef struct {
    size_t row, rows; /* none if 0 */
    size_t r, at;
    gradient_lanes lanes;
    gradient_sums sums[ROWS_TOGETHER];
} next_rows;

/* Row after row as many elements as there are in their first `columns` columns, so that their memory is read in long runs;
 * cut where eight vectors end or a block of row_piece does, with no less than a vector behind: so they fall into the same
 * lanes as those of the whole block at once (add_run in gradient.h). */
static inline void add_next(const rows_gradient *g, next_rows *next, size_t columns)
{
    const size_t due = columns * next->rows;
    for (size_t n; next->r < next->rows; next->at += n) {
        size_t row = next->row + next->r, c = next->at, done = next->r * g->cols + c;
        size_t left = BLOCK - c % BLOCK < g->cols - c ? BLOCK - c % BLOCK : g->cols - c;
        n = done + left <= due ? left : done < due ? (due - done) / (8 * LANES) * (8 * LANES) : 0;
        if (n == 0)
            return;
        if (left - n < LANES)
            n = left;
        if (row * g->cols + c + FAR_STEP + n <= g->rows * g->cols) {
            fetch_far(g->x + row * g->cols + c, n, FAR_STEP);
            fetch_far(g->dy + row * g->cols + c, n, FAR_STEP);
        }
        g->add(g, &next->lanes, row, c, n);
        if (n < left)
            continue;
        gradient_sums b = fold_sums(&next->lanes);
        add_sums(&next->sums[next->r], &b);
        clear_lanes(&next->lanes);
        if (c + n == g->cols)
            next->r++, next->at = 0, n = 0;
    }
}

/* Columns of the tile at c: tiles end where blocks do, and none is shorter than a vector unless its block is. */
#define WIDEST_TILE (TILE + LANES)

static inline size_t tile_width(size_t c, size_t last)
{
    size_t left = BLOCK - c % BLOCK < last - c ? BLOCK - c % BLOCK : last - c;
    return left < WIDEST_TILE ? left : TILE;
}

/* `rows` rows that are all fast; `sums` are those of column `first` on. */
static inline void apply_rows(const rows_gradient *g, size_t row, size_t rows, const gradient *k, size_t first,
                              size_t last, acc *sums, next_rows *next)
{
    bool buffered = g->work.stream || !g->dx;
    real buffer[ROWS_TOGETHER * WIDEST_TILE];
    for (size_t c = first, n; c < last; c += n) {
        size_t at = row * g->cols + c;
        n = buffered || next ? tile_width(c, last) : last - c;
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
    bool overlap = g->work.stream && g->plan.pieces == 1;
    next_rows next = {.row = row, .rows = 0};
    gradient k[ROWS_TOGETHER];
    if (sums)
        clear_sums(&g->parameters, task, 0, g->cols);
    for (size_t n; row < end; row += n) {
        n = end - row < g->together ? end - row : g->together;
        for (size_t r = 0; r < n; r++) {
            gradient_sums s = next.rows ? next.sums[r] : whole_row(g, row + r);
            k[r] = row_gradient(g, row + r, &s);
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
        g->gradients[row] = row_gradient(g, row, &s);
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

CN_INLINE real hat_of(real x, const gradient *k, const bool centred)
{
    return centred ? (x - k->mean) * k->rstd - k->hat_lo : x * k->rstd;
}

CN_INLINE real dx_of(real g, real hat, const gradient *k, const bool centred)
{
    return ((centred ? g - k->average : g) - hat * k->slope) * k->rstd;
}

/* The arrays of one call of apply, from the first column on. */
typedef struct {
    real *dx;
    const real *dy, *x, *weight;
    acc *weight_sums, *bias_sums, *weight_lost, *bias_lost;
    size_t dx_stride, stride, n;
    real offset;
} gradient_rows;

/* `weighted`, `parameters` and `centred` are constants. */
CN_INLINE void apply_one(gradient_rows a, gradient k, const bool weighted, const bool parameters, const bool centred)
{
#pragma omp simd
    for (size_t i = 0; i < a.n; i++) {
        real d = a.dy[i], hat = hat_of(a.x[i], &k, centred);
        real w = !weighted ? 1 : centred ? a.weight[i] : a.offset + a.weight[i];
        if (parameters) {
            add_to(&a.weight_sums[i], &a.weight_lost[i], (acc)(d * hat));
            add_to(&a.bias_sums[i], &a.bias_lost[i], (acc)d);
        }
        a.dx[i] = dx_of(weighted ? d * w : d, hat, &k, centred);
    }
}

CN_INLINE void apply_four(gradient_rows a, gradient k0, gradient k1, gradient k2, gradient k3, const bool weighted,
                          const bool parameters, const bool centred)
{
    const real *x1 = a.x + a.stride, *x2 = x1 + a.stride, *x3 = x2 + a.stride;
    const real *dy1 = a.dy + a.stride, *dy2 = dy1 + a.stride, *dy3 = dy2 + a.stride;
    real *dx1 = a.dx + a.dx_stride, *dx2 = dx1 + a.dx_stride, *dx3 = dx2 + a.dx_stride;
#pragma omp simd
    for (size_t i = 0; i < a.n; i++) {
        real d0 = a.dy[i], d1 = dy1[i], d2 = dy2[i], d3 = dy3[i];
        real h0 = hat_of(a.x[i], &k0, centred), h1 = hat_of(x1[i], &k1, centred);
        real h2 = hat_of(x2[i], &k2, centred), h3 = hat_of(x3[i], &k3, centred);
        real w = !weighted ? 1 : centred ? a.weight[i] : a.offset + a.weight[i];
        if (parameters) {
            add_lightly(&a.weight_sums[i], &a.weight_lost[i], (acc)((d0 * h0 + d1 * h1) + (d2 * h2 + d3 * h3)));
            add_lightly(&a.bias_sums[i], &a.bias_lost[i], (acc)((d0 + d1) + (d2 + d3)));
        }
        a.dx[i] = dx_of(weighted ? d0 * w : d0, h0, &k0, centred);
        dx1[i] = dx_of(weighted ? d1 * w : d1, h1, &k1, centred);
        dx2[i] = dx_of(weighted ? d2 * w : d2, h2, &k2, centred);
        dx3[i] = dx_of(weighted ? d3 * w : d3, h3, &k3, centred);
    }
}

/* The body of a kernel's `apply`; `centred` is constant. */
CN_INLINE void apply_gradients(const rows_gradient *g, real *dx, size_t stride, acc *sums, size_t row, size_t rows,
                               size_t first, size_t n, const gradient *k, const bool centred)
{
    size_t at = row * g->cols + first;
    acc *weight_sums = sums, *bias_sums = sums ? weight_sums + g->cols : NULL;
    acc *weight_lost = sums ? bias_sums + g->cols : NULL, *bias_lost = sums ? weight_lost + g->cols : NULL;
    gradient_rows a = {dx,          g->dy + at, g->x + at,   g->weight ? g->weight + first : NULL,
                       weight_sums, bias_sums,  weight_lost, bias_lost,
                       stride,      g->cols,    n,           g->offset};
    bool four = rows == ROWS_TOGETHER;
    if (g->weight && sums && four)
        apply_four(a, k[0], k[1], k[2], k[3], true, true, centred);
    else if (g->weight && four)
        apply_four(a, k[0], k[1], k[2], k[3], true, false, centred);
    else if (sums && four)
        apply_four(a, k[0], k[1], k[2], k[3], false, true, centred);
    else if (four)
        apply_four(a, k[0], k[1], k[2], k[3], false, false, centred);
    else if (g->weight && sums)
        apply_one(a, k[0], true, true, centred);
    else if (g->weight)
        apply_one(a, k[0], true, false, centred);
    else if (sums)
        apply_one(a, k[0], false, true, centred);
    else
        apply_one(a, k[0], false, false, centred);
}

#endif
