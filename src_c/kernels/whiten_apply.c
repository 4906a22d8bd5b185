/* Whitening's linear maps: of each column the channels of a group, centred, times the group's matrix.
 *
 *     y = A (x - mean)                              the forward pass
 *     y = A (x - mean) + B (other - other_mean)     the backward pass
 *
 * Passes: x, and other, are read once and y is written: 2S, 3S. A block of columns is centred into a buffer in the
 * cache, mean in two words, and multiplied in tiles (tile.h). Channels first, vectors run along the columns, which lie
 * side by side; channels last along the channels of y, with the matrix transposed. Few channels, first, need no buffer:
 * a tile would be mostly empty. y may be x: a block is read before it is written.
 * Split: tasks are runs of blocks, cut by the problem's size alone; no sum crosses a column, so an element of y depends
 * on its column and the matrix only.
 */
#include "kernels.h"
#include "whiten_block.h"

#define APPLY_BLOCK 4096 /* elements: with a small matrix they stay in the first cache */
#define TASKS_MOST 32
#define NARROW 8 /* channels, that are side by side in registers */
#define RUN 64   /* columns */

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* One of the two terms, with its matrix in `real`, padded with zeros. */
typedef struct {
    const real *x;
    real *high, *low, *matrix;
} term;

typedef struct {
    real *y;
    term terms[2];
    size_t n_terms, tasks;
    whiten_shape shape;
    real *blocks;
} apply_job;

static size_t task_count(const whiten_shape *s)
{
    size_t n = s->groups * block_count(s);
    return n < TASKS_MOST ? n : TASKS_MOST;
}

static size_t matrix_size(const whiten_shape *s) { return padded_channels(s) * padded_channels(s); }

/* Room for the whole squares of the last columns too. */
static size_t block_size(const whiten_shape *s) { return block_columns(s) * padded_channels(s); }

size_t CN(whiten_apply_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool two, bool last)
{
    whiten_shape s = {batch, channels, spatial, groups, last, APPLY_BLOCK};
    size_t of_groups = groups * (matrix_size(&s) + 2 * padded_channels(&s));
    size_t n = (two ? 2 : 1) * (of_groups + task_count(&s) * block_size(&s));
    return padded(n * sizeof(real), sizeof(acc));
}

/* Channels first the rows are the tiles' rows; channels last the transposed matrix is cut into panels. */
static void pack_matrix(real *to, const double *from, size_t d, size_t width, bool last)
{
    memset(to, 0, width * width * sizeof(real));
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            to[last ? (i / PANEL * width + j) * PANEL + i % PANEL : i * width + j] = (real)from[i * d + j];
}

/* The mean's two words in `real`: the second takes what the first one's rounding left. */
static void split_mean(real *high, real *low, const double *mean, const whiten_shape *s)
{
    size_t d = group_channels(s), width = padded_channels(s);
    for (size_t c = 0; c < s->channels; c++) {
        size_t at = c / d * width + c % d;
        high[at] = (real)mean[c];
        low[at] = (real)((mean[c] - (acc)high[at]) + mean[s->channels + c]);
    }
}

/* Channels last: a row for each column, of its channels; missing channels and rows are 0. */
static void centre_last(real *block, const term *t, const whiten_shape *s, size_t group, size_t first, size_t n)
{
    size_t d = group_channels(s), width = padded_channels(s), at = group * d;
    const real *high = t->high + group * width, *low = t->low + group * width;
    for (size_t k = 0; k < n; k++) {
        const real *x = t->x + (first + k) * s->channels + at;
        real *to = block + k * width;
        size_t c = 0;
        for (; c + PANEL <= d; c += PANEL)
#pragma omp simd
            for (size_t i = c; i < c + PANEL; i++)
                to[i] = (x[i] - high[i]) - low[i];
        for (size_t i = c; i < width; i++)
            to[i] = i < d ? (x[i] - high[i]) - low[i] : 0;
    }
    memset(block + n * width, 0, (padded(n, TILE_ROWS) - n) * width * sizeof(real));
}

/* m columns of one channel, which begin at column k of the block. */
static void centre_run(real *block, size_t depth, size_t k, const real *x, real high, real low, size_t m)
{
    for (size_t i = 0, some; i < m; i += some) {
        size_t at = (k + i) % PANEL;
        real *to = block + (k + i) / PANEL * PANEL * depth + at;
        some = least(m - i, PANEL - at);
        if (some == PANEL)
#pragma omp simd
            for (int l = 0; l < PANEL; l++)
                to[l] = (x[i + (size_t)l] - high) - low;
        else
            for (size_t l = 0; l < some; l++)
                to[l] = (x[i + l] - high) - low;
    }
}

/* Channels first: panels of columns, `depth` channels each; missing channels and columns are 0. */
static void centre_first(real *block, size_t depth, const term *t, const whiten_shape *s, size_t group, size_t first,
                         size_t n)
{
    size_t d = group_channels(s), at = group * padded_channels(s), used = n / PANEL * PANEL;
    memset(block + used * depth, 0, (padded(n, PANEL) - used) * depth * sizeof(real));
    for (size_t k = 0; k < used; k += PANEL)
        memset(block + k * depth + d * PANEL, 0, (depth - d) * PANEL * sizeof(real));
    for (size_t k = 0, m; k < n; k += m) {
        stretch run = next_stretch(s, group, first + k, n - k);
        m = run.columns;
        for (size_t c = 0; c < d; c++) {
            centre_run(block + c * PANEL, depth, k, t->x + run.at + c * run.channel, t->high[at + c], t->low[at + c],
                       m);
        }
    }
}

/* Writes the first rows and cols of a tile. */
static void store_tile(real *y, size_t row, const real *tile, size_t rows, size_t cols)
{
    if (cols == (size_t)TILE_COLS) {
        for (size_t i = 0; i < rows; i++)
#pragma omp simd
            for (int l = 0; l < TILE_COLS; l++)
                y[i * row + (size_t)l] = tile[i * TILE_COLS + (size_t)l];
        return;
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t l = 0; l < cols; l++)
            y[i * row + l] = tile[i * TILE_COLS + l];
}

/* One tile of y or two: i and j are the first's row and column. They are channels and columns or, channels last, columns
 * and channels. Returns how many, no more than `limit` has a use for. */
CN_INLINE size_t make_tiles(real *tiles, const apply_job *job, const real *blocks, size_t group, size_t i, size_t j,
                            size_t limit)
{
    const whiten_shape *s = &job->shape;
    size_t width = padded_channels(s), depth = padded(group_channels(s), TREE), height = s->last ? width : depth;
    size_t n = j + TILE_COLS < limit ? TILES_MOST : 1;
    memset(tiles, 0, n * TILE_ROWS * TILE_COLS * sizeof(real));
    for (size_t t = 0; t < job->n_terms; t++) {
        const real *block = blocks + t * block_size(s), *matrix = job->terms[t].matrix + group * matrix_size(s);
        operand a = {(s->last ? block : matrix) + i * width, 1, width};
        operand b = panel_operand(s->last ? matrix : block, height, j);
        add_short_tiles(tiles, a, b, depth, n);
    }
    return n;
}

static void apply_last(const apply_job *job, const real *blocks, size_t group, size_t first, size_t n)
{
    const whiten_shape *s = &job->shape;
    size_t d = group_channels(s), made;
    real *y = job->y + first * s->channels + group * d;
    real tiles[TILES_MOST * TILE_ROWS * TILE_COLS];
    for (size_t j = 0; j < d; j += made * TILE_COLS)
        for (size_t i = 0; i < n; i += TILE_ROWS) {
            made = make_tiles(tiles, job, blocks, group, i, j, d);
            for (size_t t = 0, at = j; t < made; t++, at += TILE_COLS)
                store_tile(y + i * s->channels + at, s->channels, tiles + t * TILE_ROWS * TILE_COLS,
                           least(n - i, TILE_ROWS), least(d - at, TILE_COLS));
        }
}

/* A tile's columns may be those of several samples. */
static void store_first(const apply_job *job, const real *tile, size_t group, size_t i, size_t first, size_t n)
{
    const whiten_shape *s = &job->shape;
    size_t rows = least(group_channels(s) - i, TILE_ROWS);
    for (size_t k = 0, m; k < n; k += m) {
        stretch run = next_stretch(s, group, first + k, n - k);
        m = run.columns;
        store_tile(job->y + run.at + i * run.channel, run.channel, tile + k, rows, m);
    }
}

static void apply_first(const apply_job *job, const real *blocks, size_t group, size_t first, size_t n)
{
    real tiles[TILES_MOST * TILE_ROWS * TILE_COLS];
    for (size_t i = 0; i < group_channels(&job->shape); i += TILE_ROWS)
        for (size_t j = 0, made; j < n; j += made * TILE_COLS) {
            made = make_tiles(tiles, job, blocks, group, i, j, n);
            for (size_t t = 0, at = j; t < made; t++, at += TILE_COLS)
                store_first(job, tiles + t * TILE_ROWS * TILE_COLS, group, i, first + at, least(n - at, TILE_COLS));
        }
}

/* At most RUN columns of all the group's channels, from `at` on, `channel` apart. */
CN_INLINE void apply_run(const apply_job *job, size_t group, size_t at, size_t channel, size_t n)
{
    const whiten_shape *s = &job->shape;
    size_t d = group_channels(s), width = padded_channels(s);
    real centred[2][NARROW][RUN];
    for (size_t t = 0; t < job->n_terms; t++)
        for (size_t c = 0; c < d; c++) {
            const real *x = job->terms[t].x + at + c * channel;
            real high = job->terms[t].high[group * width + c], low = job->terms[t].low[group * width + c];
            for (size_t l = 0; l < n; l++)
                centred[t][c][l] = (x[l] - high) - low;
            memset(centred[t][c] + n, 0, (RUN - n) * sizeof(real));
        }
    for (size_t i = 0; i < d; i++) {
        real sum[RUN] = {0};
        for (size_t t = 0; t < job->n_terms; t++) {
            const real *row = job->terms[t].matrix + group * matrix_size(s) + i * width;
            for (size_t c = 0; c < d; c++)
#pragma omp simd
                for (int l = 0; l < RUN; l++)
                    sum[l] = add_product(sum[l], row[c], centred[t][c][l]);
        }
        memcpy(job->y + at + i * channel, sum, n * sizeof(real));
    }
}

static void apply_narrow(const apply_job *job, size_t group, size_t first, size_t n)
{
    for (size_t k = 0, m; k < n; k += m) {
        stretch run = next_stretch(&job->shape, group, first + k, least(n - k, RUN));
        m = run.columns;
        if (m == RUN)
            apply_run(job, group, run.at, run.channel, RUN);
        else
            apply_run(job, group, run.at, run.channel, m);
    }
}

static void apply_block(const apply_job *job, real *blocks, size_t number)
{
    const whiten_shape *s = &job->shape;
    size_t group = number / block_count(s), first = number % block_count(s) * block_columns(s);
    size_t n = least(column_count(s) - first, block_columns(s)), depth = padded(group_channels(s), TREE);
    if (!s->last && group_channels(s) <= NARROW) {
        apply_narrow(job, group, first, n);
        return;
    }
    for (size_t t = 0; t < job->n_terms; t++)
        if (s->last)
            centre_last(blocks + t * block_size(s), &job->terms[t], s, group, first, n);
        else
            centre_first(blocks + t * block_size(s), depth, &job->terms[t], s, group, first, n);
    if (s->last)
        apply_last(job, blocks, group, first, n);
    else
        apply_first(job, blocks, group, first, n);
}

static void apply_task(void *argument, size_t task)
{
    const apply_job *job = argument;
    size_t all = job->shape.groups * block_count(&job->shape);
    real *blocks = job->blocks + task * job->n_terms * block_size(&job->shape);
    for (size_t i = all * task / job->tasks; i < all * (task + 1) / job->tasks; i++)
        apply_block(job, blocks, i);
}

void CN(whiten_apply)(real *y, const real *x, const double *mean, const double *matrix, const real *other,
                      const double *other_mean, const double *other_matrix, size_t batch, size_t channels,
                      size_t spatial, size_t groups, bool last, cn_work work, void *workspace)
{
    apply_job job = {.y = y, .n_terms = other ? 2 : 1, .shape = {batch, channels, spatial, groups, last, APPLY_BLOCK}};
    const whiten_shape *s = &job.shape;
    size_t d = group_channels(s), width = padded_channels(s);
    real *memory = workspace;
    for (size_t t = 0; t < job.n_terms; t++) {
        job.terms[t] = (term){t ? other : x, memory, memory + groups * width, memory + 2 * groups * width};
        split_mean(job.terms[t].high, job.terms[t].low, t ? other_mean : mean, s);
        memory = job.terms[t].matrix;
        for (size_t g = 0; g < groups; g++, memory += matrix_size(s))
            pack_matrix(memory, (t ? other_matrix : matrix) + g * d * d, d, width, last);
    }
    job.blocks = memory;
    job.tasks = task_count(s);
    cn_parallel_for(job.tasks, work, apply_task, &job);
}
