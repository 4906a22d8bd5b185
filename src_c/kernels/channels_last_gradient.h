/* The backward pass of norms over channels, channels last: dy, x, dx are `samples` matrices of `rows` x `channels`. Group
 * and instance norm have one sample per batch entry, batch norm (and (N, C)) has one in all.
 *
 *     dx = rstd * (g - average(g) - hat * average(g * hat)),   g = dy * weight, averages over a group of a sample
 *     dweight = sum(dy * hat),   dbias = sum(dy)
 *
 * Each column's sums (columns_gradient.h) are taken once, its pieces in order. Weighted, they add up to those of its group,
 * which give dx; and as they are they join dweight and dbias, sample by sample (parameter_sums.h).
 * Traffic: the sums read dy and x once; the output reads them again, from the cache where a sample (or a task's columns of
 * it) fits, and writes dx: 3S, else 5S. With constant statistics (frozen) a piece is written as soon as it is summed: 3S,
 * or 2S where no sums are wanted.
 * Split: a task takes samples; or, with few samples, pieces of rows (and of columns, where rows are long), first for the
 * sums, then for dx; or, for a short batch of many independent channels, some of the columns. The cutting (column_plan.h)
 * depends on samples, rows and channels alone and merges are in order: the same bits each way.
 * dx may be dy itself: what reads dy for a sum comes before what writes there.
 */
#ifndef CN_CHANNELS_LAST_GRADIENT_H
#define CN_CHANNELS_LAST_GRADIENT_H

#include "channels_last_groups.h"
#include "frozen_gradient.h"

/* Sums that left the range of `real` on the way, taken again: dy may be overwritten next. */
static void check_frozen_sums(column_sums s, const real *dy, const real *x, size_t stride, size_t rows, size_t cols,
                              const gradient_columns *p)
{
    for (size_t c = 0; c < cols; c++) {
        acc g = fabs(s.g[c]), gt = fabs(s.gt[c]);
        if (g <= AVERAGE_MAX && gt <= AVERAGE_MAX && (gt == 0 || (gt >= TERM_MIN && hats_are_normal(g, gt))))
            continue;
        s.g[c] = frozen_sum(dy + c, NULL, rows, 1, stride, 0, 1);
        s.gt[c] = frozen_sum(dy + c, x + c, rows, 1, stride, p->mean[c], p->rstd[c]);
    }
}

/* `rows` rows of `cols` columns from element `at` on, rows `stride` apart: their sums, and dx. */
static void sum_rows(const channels_last_gradient *g, column_sums s, const gradient_columns *p, size_t at,
                     size_t stride, size_t rows, size_t cols)
{
    if (g->elements) {
        g->element_sums(g, s, p, at, stride, rows, cols);
        return;
    }
    sum_columns(s, g->dy + at, g->x + at, stride, rows, cols, p, g->work.stream);
    if (g->frozen)
        check_frozen_sums(s, g->dy + at, g->x + at, stride, rows, cols, p);
}

static void write_gradient_rows(const channels_last_gradient *g, const gradient_columns *p, size_t at, size_t stride,
                                size_t rows, size_t cols)
{
    if (g->elements) {
        g->element_rows(g, p, at, stride, rows, cols);
        return;
    }
    for (size_t c = 0; c < (g->frozen && keeps_any(p, cols) ? cols : 0); c++)
        if (p->kept[c])
            frozen_apply(g->dx + at + c, g->dy + at + c, stride, rows,
                         g->weight ? g->weight[(at + c) % g->channels] : 1, p->rstd[c]);
    write_columns(g->dx + at, g->dy + at, g->x + at, stride, rows, cols, p, g->frozen, g->work.stream);
}

/* Whether there is anything to write for each element. */
static inline bool writes_rows(const channels_last_gradient *g) { return g->dx || wants_elements(g->elements); }

/* The first element of row `row` of a sample. */
static inline size_t wide_row(const channels_last_gradient *g, size_t sample, size_t row)
{
    return sample * g->rows * g->channels + row * g->plan.width;
}

/* The columns [first, first + cols) of one piece: their sums into s, and dx if that needs no sums. */
static void take_piece(const channels_last_gradient *g, size_t sample, size_t piece, column_sums s,
                       const gradient_columns *p, size_t first, size_t cols)
{
    size_t at = wide_row(g, sample, piece * g->plan.piece_rows) + first, rows = piece_height(&g->plan, piece);
    if (wants_sums(g))
        sum_rows(g, s, p, at, g->plan.width, rows, cols);
    if (g->frozen && g->dx)
        write_gradient_rows(g, p, at, g->plan.width, rows, cols);
}

/* The sums of another piece join. */
static inline void join_sums(column_sums total, column_sums lost, column_sums more, size_t cols)
{
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        add_to(&total.t[c], &lost.t[c], more.t[c]);
        add_to(&total.g[c], &lost.g[c], more.g[c]);
        add_to(&total.gt[c], &lost.gt[c], more.gt[c]);
    }
}

/* The columns that belong to one channel in order, then the rows left over. */
static void fold_gradients(const channels_last_gradient *g, size_t sample, gradient_slot s)
{
    size_t n = g->channels, at = wide_row(g, sample, g->plan.wide_rows);
    settle_sums(s, g->plan.width);
    for (size_t c = n; c < g->plan.width; c += n)
        join_sums(s.total, s.lost, sums_from(s.total, c), n);
    if (g->plan.left) {
        sum_rows(g, s.pieces, &s.columns, at, n, g->plan.left / n, n);
        join_sums(s.total, s.lost, s.pieces, n);
    }
    settle_sums(s, n);
}

static void write_pieces(const channels_last_gradient *g, size_t sample, gradient_slot s, size_t first, size_t cols)
{
    gradient_slot mine = slot_from(s, first);
    for (size_t piece = g->plan.pieces; piece-- > 0;) /* what was read last is still in the cache */
        write_gradient_rows(g, &mine.columns, wide_row(g, sample, piece * g->plan.piece_rows) + first, g->plan.width,
                            piece_height(&g->plan, piece), cols);
}

static void write_left(const channels_last_gradient *g, size_t sample, gradient_columns p)
{
    if (writes_rows(g) && g->plan.left)
        write_gradient_rows(g, &p, wide_row(g, sample, g->plan.wide_rows), g->channels, g->plan.left / g->channels,
                            g->channels);
}

/* One task's way for the columns [first, first + cols) of a wide row: all of them, or some that are groups of their own. */
static void whole_columns(const channels_last_gradient *g, size_t sample, gradient_slot s, size_t first, size_t cols)
{
    size_t n = cols < g->channels ? cols : g->channels;
    begin_sample(g, sample, s.columns, first, n);
    gradient_slot mine = slot_from(s, first);
    if (sizeof(real) == sizeof(acc))
        clear_columns(mine.lost, cols);
    for (size_t piece = 0; piece < g->plan.pieces; piece++) {
        take_piece(g, sample, piece, piece ? mine.pieces : mine.total, &mine.columns, first, cols);
        if (piece && wants_sums(g))
            join_sums(mine.total, mine.lost, mine.pieces, cols);
    }
    if (wants_sums(g)) {
        if (g->plan.fold > 1)
            fold_gradients(g, sample, s);
        else
            settle_sums(mine, cols);
        finish_gradients(g, sample, s, first, n);
        repeat_columns(g, s.columns);
    }
    if (!g->frozen && writes_rows(g))
        write_pieces(g, sample, s, first, cols);
    write_left(g, sample, s.columns);
}

/* Blocks of samples share slots, so a task is a slot and takes the blocks of that slot in turn. */
static void blocks_of_slot(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    gradient_slot s = place_gradient_slot(g, task);
    begin_columns(g, s.columns, 0, g->channels);
    for (size_t block = task; block < g->parameters.blocks; block += g->slots) {
        size_t sample = block * g->block_samples, end = sample + g->block_samples;
        if (wanted(&g->parameters))
            clear_sums(&g->parameters, block, 0, g->channels);
        for (; sample < end && sample < g->samples; sample++)
            whole_columns(g, sample, s, 0, g->plan.width);
    }
    stream_fence();
}

/* Of the only sample. */
static void some_gradient_columns(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    size_t first = task * g->chunk, cols = g->channels - first < g->chunk ? g->channels - first : g->chunk;
    gradient_slot s = place_gradient_slot(g, 0);
    if (wanted(&g->parameters))
        clear_sums(&g->parameters, 0, first, first + cols);
    begin_columns(g, s.columns, first, cols);
    whole_columns(g, 0, s, first, cols);
    stream_fence();
}

/* Part `chunk` of the columns of a piece of a sample. */
static void piece_of_sample(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    size_t chunk = task % g->chunks, piece = task / g->chunks % g->plan.pieces;
    size_t sample = task / g->chunks / g->plan.pieces, first = chunk * g->chunk;
    gradient_slot s = place_gradient_slot(g, sample), mine = slot_from(s, first);
    take_piece(g, sample, piece, sums_from(piece_sums(g, s, piece), first), &mine.columns, first,
               g->plan.width - first < g->chunk ? g->plan.width - first : g->chunk);
    stream_fence();
}

/* The sums of the pieces in order, for all columns of a sample or, where none needs another, for one chunk of them. */
static inline size_t merge_ranges(const channels_last_gradient *g)
{
    return g->plan.fold == 1 && g->groups == g->channels ? g->chunks : 1;
}

static void merge_gradient_pieces(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    size_t ranges = merge_ranges(g), sample = task / ranges, width = g->plan.width;
    size_t first = task % ranges * g->chunk, cols = ranges > 1 && width - first > g->chunk ? g->chunk : width - first;
    gradient_slot s = place_gradient_slot(g, sample), mine = slot_from(s, first);
    clear_columns(mine.total, cols);
    if (sizeof(real) == sizeof(acc))
        clear_columns(mine.lost, cols);
    for (size_t piece = 0; piece < g->plan.pieces; piece++)
        join_sums(mine.total, mine.lost, sums_from(piece_sums(g, s, piece), first), cols);
    if (g->plan.fold > 1)
        fold_gradients(g, sample, s);
    else
        settle_sums(mine, cols);
    size_t n = cols < g->channels ? cols : g->channels;
    if (wanted(&g->parameters))
        clear_sums(&g->parameters, sample, first, first + n);
    finish_gradients(g, sample, s, first, n);
    repeat_columns(g, s.columns);
}

/* Where rows are long a piece is too much for one task. */
static inline size_t output_rows(const channels_last_gradient *g) { return divide_up(g->plan.piece_rows, g->chunks); }

static void rows_of_output(void *job, size_t task)
{
    const channels_last_gradient *g = job;
    size_t height = output_rows(g), tasks = divide_up(g->plan.wide_rows, height);
    task = last_first(task, g->samples * tasks, g->work);
    size_t sample = task / tasks, row = task % tasks * height;
    gradient_slot s = place_gradient_slot(g, sample);
    write_gradient_rows(g, &s.columns, wide_row(g, sample, row), g->plan.width,
                        g->plan.wide_rows - row < height ? g->plan.wide_rows - row : height, g->plan.width);
    stream_fence();
}

static void share_few_samples(channels_last_gradient *g)
{
    for (size_t sample = 0; sample < g->samples; sample++) {
        gradient_columns p = place_gradient_slot(g, sample).columns;
        begin_columns(g, p, 0, g->channels);
        begin_sample(g, sample, p, 0, g->channels);
    }
    cn_parallel_for(g->samples * g->plan.pieces * g->chunks, g->work, piece_of_sample, g);
    if (wants_sums(g))
        cn_parallel_for(g->samples * merge_ranges(g), g->work, merge_gradient_pieces, g);
    if (!g->frozen && writes_rows(g))
        cn_parallel_for(g->samples * divide_up(g->plan.wide_rows, output_rows(g)), g->work, rows_of_output, g);
    for (size_t sample = 0; sample < g->samples; sample++)
        write_left(g, sample, place_gradient_slot(g, sample).columns);
    stream_fence();
}

static inline size_t channels_last_gradient_workspace(size_t samples, size_t rows, size_t channels, size_t groups)
{
    channels_last_gradient g = {.samples = samples, .rows = rows, .channels = channels, .groups = groups};
    if (is_empty(&g))
        return 0;
    plan_last_gradient(&g);
    return parameter_sums_size(g.parameters.blocks, channels) + g.slots * g.slot_size;
}

static inline void channels_last_backward(channels_last_gradient *g, void *workspace)
{
    if (is_empty(g)) {
        g->parameters = (parameter_sums){g->dweight, g->dbias, 0, g->channels, NULL};
    } else {
        plan_last_gradient(g);
        g->parameters.memory = workspace;
        g->memory = (unsigned char *)workspace + parameter_sums_size(g->parameters.blocks, g->channels);
        if (g->samples == 1 && g->groups == g->channels && share_columns(&g->plan, 2 * sizeof(real)))
            cn_parallel_for(g->chunks, g->work, some_gradient_columns, g);
        else if (few_gradient_samples(g) && leaves_idle(g->samples, g->work.threads))
            share_few_samples(g);
        else
            cn_parallel_for(g->slots, g->work, blocks_of_slot, g);
    }
    finish_parameters(&g->parameters, g->work);
}

#endif
