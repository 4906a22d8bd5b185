/* The backward pass of norms over rows: its plan, and the sums that each row's gradient needs (gradient.h), of whole rows,
 * of several short ones, and of the rows that come next while the present ones are written.
 */
#ifndef CN_ROWS_SUMS_H
#define CN_ROWS_SUMS_H

#include "../parallel.h"
#include "fold_together.h"
#include "gradient.h"
#include "parameter_sums.h"
#include "span.h"
#include "stream.h"

#define ROWS_TOGETHER 4
#define TOGETHER_BYTES (1024 * 1024) /* x and dy of the rows taken together, which stay in the second cache */
#define ROW_BLOCK_MIN 32

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
    /* The sums of up to ROWS_TOGETHER rows; there is room for so many. */
    void (*sum_rows)(const rows_gradient *g, gradient_sums *sums, size_t row, size_t rows);
    /* The columns [first, first + n) of one row, or of ROWS_TOGETHER: dx, its rows `stride` apart, and what they add to
     * the sums of these columns, if those are not NULL. */
    void (*apply)(const rows_gradient *g, real *dx, size_t stride, acc *sums, size_t row, size_t rows, size_t first,
                  size_t n, const gradient *k);
    size_t block_rows, together;
    span_plan plan;
    gradient_sums *pieces; /* the second way: (rows, pieces) */
    gradient *gradients;   /* (rows,) */
};

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

static void whole_row(gradient_sums *s, const rows_gradient *g, size_t row)
{
    *s = (gradient_sums){0};
    for (size_t piece = 0; piece < g->plan.pieces; piece++) {
        gradient_sums p = row_piece(g, row, piece);
        add_sums(s, &p);
    }
}

CN_INLINE run_constants constants_of(const rows_gradient *g, size_t row, const bool weighted, const bool centred)
{
    run_constants c = {.mean = centred ? g->mean[row] : 0, .rstd = g->rstd[row], .centred = centred};
    c.weighted = weighted, c.shifted = weighted && !centred, c.offset = g->offset;
    return c;
}

/* The body of a kernel's `add`; `centred` is constant. */
CN_INLINE void add_columns(const rows_gradient *g, gradient_lanes *sums, size_t row, size_t first, size_t n,
                           const bool centred)
{
    const real *dy = g->dy + row * g->cols + first, *x = g->x + row * g->cols + first;
    if (g->weight)
        add_run(sums, dy, x, g->weight + first, n, constants_of(g, row, true, centred));
    else
        add_run(sums, dy, x, NULL, n, constants_of(g, row, false, centred));
}

/* For a short row, the one as many rows on as are taken together, or further on past the caches; and the place of its dx.
 * Processors see no order in the few lines of a row, loaded in any order, and stores wait for theirs. */
CN_INLINE void fetch_short_row(const rows_gradient *g, size_t row)
{
    const size_t at = row * g->cols, n = g->cols;
    const size_t next = ROWS_TOGETHER * n, ahead = g->work.stream && next < FAR_STEP ? FAR_STEP : next;
    if (!g->work.far || at + ahead + n > g->rows * n)
        return;
    fetch_near(g->dy + at, n, ahead);
    fetch_near(g->x + at, n, ahead);
    if (g->dx && !g->work.stream)
        fetch_near(g->dx + at, n, ahead);
}

/* Rows of at most SHORT_RUN elements; those beyond `rows` are zero. */
CN_INLINE void sum_short_rows(const rows_gradient *g, gradient_sums *sums, size_t row, size_t rows, const bool weighted,
                              const bool centred)
{
    folded_groups folded;
    for (size_t r = 0; r < ROWS_TOGETHER; r++) {
        const size_t at = (row + r) * g->cols;
        gradient_lanes lanes;
        if (r < rows) {
            fetch_short_row(g, row + r);
            set_short_run(&lanes, g->dy + at, g->x + at, weighted ? g->weight : NULL, g->cols,
                          constants_of(g, row + r, weighted, centred));
        } else {
            clear_lanes(&lanes);
        }
        fold_group(&folded, r, &lanes, centred);
    }
    sums_together all = {0};
    fold_groups(&all, &folded, ROWS_TOGETHER, centred);
    for (size_t r = 0; r < ROWS_TOGETHER; r++)
        sums[r] = (gradient_sums){.t = 0 + all.t[r], .g = 0 + all.g[r], .gt = 0 + all.gt[r]}; /* no -0 */
}

/* The body of a kernel's `sum_rows`; `centred` is constant. */
CN_INLINE void add_rows(const rows_gradient *g, gradient_sums *sums, size_t row, size_t rows, const bool centred)
{
    if (g->cols > SHORT_RUN)
        for (size_t r = 0; r < rows; r++)
            whole_row(&sums[r], g, row + r);
    else if (g->weight)
        sum_short_rows(g, sums, row, rows, true, centred);
    else
        sum_short_rows(g, sums, row, rows, false, centred);
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

#endif
