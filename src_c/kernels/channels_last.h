/* Channels last: `samples` matrices of `rows` x `channels`, statistics over the rows of a sample for each group of
 * channels. Group and instance norm have one sample per batch entry, batch norm (and (N, C)) has one in all.
 *
 * Traffic: statistics read x once; the output reads it again, from the cache where a sample (or a task's columns of
 * it) fits: 2S, else 3S. Narrow matrices are folded: `fold` rows side by side make one wide row, so the inner loops are
 * long for three channels too; the rows left over join at the end.
 * Split: a task takes a sample; or, with few samples, first the pieces of rows, then their merge, then rows of output;
 * or, for a short batch of many independent channels, a task takes some of the columns. The cutting into pieces depends
 * on rows and channels alone and merges are in order: the same bits each way.
 */
#ifndef CN_CHANNELS_LAST_H
#define CN_CHANNELS_LAST_H

#include "../parallel.h"
#include "columns.h"
#include "normaliser.h"
#include "rows.h"
#include "wide.h"

#define FOLD_WIDTH 256
/* A page: the prefetching of one core then stays out of the lines that another writes. */
#define CHUNK_COLUMNS (4096 / sizeof(real))
#define CHUNK_BYTES (1024 * 1024)
#define SLOTS_MAX 64
#define SUM_LANES 8

typedef struct {
    real *y, *mean, *rstd;
    const real *x, *weight, *bias;
    acc *mean_acc, *variance; /* (samples * groups,) unrounded statistics, or NULL */
    size_t samples, rows, channels, groups;
    acc eps;
    cn_work work;
    /* the plan: a sample is `wide_rows` rows of `width` columns and `left` elements more */
    size_t fold, width, wide_rows, left, piece_rows, pieces;
    unsigned char *memory; /* workspace, `slot_size` bytes for each sample in progress */
    size_t slot_size, slots, chunks;
    bool kept[CN_FEW_GROUPS]; /* of the second way: whether a sample has columns already written */
} channels_last;

/* The parts of a slot. */
typedef struct {
    column_moments total;
    row_parameters parameters;
    unsigned char *scratch; /* one column_scratch, or one for each piece */
} slot;

static inline bool few_samples(const channels_last *g) { return cn_few_groups(g->samples, g->pieces); }

static inline void plan_channels_last(channels_last *g)
{
    size_t fold = g->channels < FOLD_WIDTH ? divide_up(FOLD_WIDTH, g->channels) : 1;
    size_t tall = g->rows / COLUMN_BLOCK; /* a fold costs merges: worth it for many rows only */
    g->fold = fold <= tall ? fold : (tall ? tall : 1);
    g->width = g->fold * g->channels;
    g->wide_rows = g->rows / g->fold;
    g->left = g->rows % g->fold * g->channels;
    g->piece_rows = COLUMN_BLOCK * divide_up(COLUMN_PIECE, COLUMN_BLOCK * g->width);
    size_t least = COLUMN_BLOCK * divide_up(divide_up(g->wide_rows, PIECES_MAX), COLUMN_BLOCK);
    if (g->piece_rows < least)
        g->piece_rows = least;
    g->pieces = divide_up(g->wide_rows, g->piece_rows);
    size_t scratches = few_samples(g) ? g->pieces : 1;
    g->slots = g->samples < SLOTS_MAX ? g->samples : SLOTS_MAX;
    g->slot_size =
        column_moments_size(g->width) + row_parameters_size(g->width) + scratches * column_scratch_size(g->width);
}

static inline size_t channels_last_workspace(size_t samples, size_t rows, size_t channels)
{
    channels_last g = {.samples = samples, .rows = rows, .channels = channels};
    if (samples == 0 || rows == 0 || channels == 0)
        return 0;
    plan_channels_last(&g);
    return g.slots * g.slot_size;
}

static inline slot place_slot(const channels_last *g, size_t sample)
{
    unsigned char *memory = g->memory + sample % g->slots * g->slot_size;
    slot s = {.total = place_moments(memory, g->width)};
    memory += column_moments_size(g->width);
    s.parameters = place_parameters(memory, g->width);
    s.scratch = memory + row_parameters_size(g->width);
    return s;
}

static inline const real *sample_input(const channels_last *g, size_t sample)
{
    return g->x + sample * g->rows * g->channels;
}

static inline void store_statistics(const channels_last *g, size_t index, acc mean, acc variance, acc rstd)
{
    if (g->mean)
        g->mean[index] = (real)mean;
    if (g->rstd)
        g->rstd[index] = (real)rstd;
    if (g->variance)
        g->mean_acc[index] = mean, g->variance[index] = variance;
}

/* Moments of the columns [first, first + cols) of one piece. */
static column_moments piece_columns(const channels_last *g, const real *x, size_t piece, unsigned char *scratch,
                                    size_t first, size_t cols)
{
    column_scratch w = place_scratch(scratch, g->width);
    w.moments = moments_from(w.moments, first);
    w.sum += first, w.square_sum += first, w.sum_lost += first, w.square_lost += first, w.shift += first;
    size_t row = piece * g->piece_rows, rows = g->wide_rows - row;
    rows = rows < g->piece_rows ? rows : g->piece_rows;
    column_piece(&w, x + row * g->width + first, g->width, rows, cols, g->work.far);
    return w.moments;
}

/* The columns that belong to one channel in order, then the rows left over, into the first `channels` moments. */
static void fold_channels(const channels_last *g, const real *x, slot *s)
{
    acc rows = s->total.count;
    for (size_t c = g->channels; c < g->width; c += g->channels) {
        column_moments more = moments_from(s->total, c);
        more.count = rows;
        merge_columns(&s->total, &more, g->channels);
    }
    if (g->left) {
        column_scratch w = place_scratch(s->scratch, g->channels);
        column_piece(&w, x + g->wide_rows * g->width, g->channels, g->left / g->channels, g->channels, false);
        merge_columns(&s->total, &w.moments, g->channels);
    }
}

/* The careful way for one group, and its statistics. */
static void finish_carefully(const channels_last *g, size_t sample, size_t group)
{
    size_t size = g->channels / g->groups, first = group * size, at = sample * g->rows * g->channels + first;
    size_t index = sample * g->groups + group;
    wide_group careful = {g->rows * size, size, g->channels, 1, 1, size};
    wide_stats w = wide_statistics(g->x + at, &careful, g->eps, true);
    wide_apply(g->y + at, g->x + at, &careful, &w, 0, g->weight ? g->weight + first : NULL,
               g->bias ? g->bias + first : NULL);
    store_statistics(g, index, wide_mean(&w), wide_variance(&w), wide_rstd(&w, g->eps));
}

/* Each channel a group: what make_normaliser and store_statistics do, for n channels side by side. */
static void finish_channels(const channels_last *g, size_t index, row_parameters *p, column_moments m, size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        acc r, r_lo, variance = variance_and_rstd(m.m2[c], m.m2_lo[c], m.count, g->eps, &r, &r_lo);
        p->hi[c] = (real)(m.mean[c] + m.mean_lo[c]);
        p->lo[c] = (real)((m.mean[c] - (acc)p->hi[c]) + m.mean_lo[c]);
        p->rstd[c] = r, p->rstd_lo[c] = r_lo;
        p->kept[c] = !is_fast(variance);
    }
    for (size_t c = 0; c < n; c++)
        store_statistics(g, index + c, m.mean[c] + m.mean_lo[c], (m.m2[c] + m.m2_lo[c]) / m.count,
                         p->rstd[c] + p->rstd_lo[c]);
}

/* Compensated sum of n numbers, in lanes folded in order; `low` takes what rounding lost. */
static acc lane_sum(const acc *x, size_t n, acc *low)
{
    acc sum[SUM_LANES] = {0}, lost[SUM_LANES] = {0};
    size_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
#pragma omp simd
        for (int l = 0; l < SUM_LANES; l++)
            lost[l] += two_sum(&sum[l], x[i + l]);
    for (int l = 0; i < n; i++, l++)
        lost[l] += two_sum(&sum[l], x[i]);
    for (int w = SUM_LANES / 2; w; w /= 2)
        for (int l = 0; l < w; l++)
            lost[l] += lost[l + w] + two_sum(&sum[l], sum[l + w]);
    *low += lost[0];
    return sum[0];
}

/* Moments of `size` columns with one count: the mean of their means, and for M2 the spread of the means added; a few
 * columns are merged one by one. square is scratch of `size` elements. */
static moments group_moments(column_moments t, size_t first, size_t size, acc *square)
{
    if (size < SUM_LANES) {
        moments m = {0};
        for (size_t c = first; c < first + size; c++) {
            moments b = {t.count, t.mean[c], t.mean_lo[c], t.m2[c], t.m2_lo[c]};
            merge(&m, &b);
        }
        return m;
    }
    acc low = 0, m2_lo = 0, n = (acc)size;
    acc sum = lane_sum(t.mean + first, size, &low);
    acc mean_lo_sum = lane_sum(t.mean_lo + first, size, &low);
    low += mean_lo_sum;
    acc mean = sum / n, back = mean * n;
    acc mean_lo = two_sum(&mean, ((sum - back) - product_error(mean, n, back) + low) / n);
    acc rest = 0; /* what is still missing: the second word has its own rounding */
    for (size_t c = first; c < first + size; c++)
        rest += (t.mean[c] - mean) + (t.mean_lo[c] - mean_lo);
    mean_lo += rest / n;
#pragma omp simd
    for (size_t i = 0; i < size; i++) {
        acc d = (t.mean[first + i] - mean) + (t.mean_lo[first + i] - mean_lo);
        square[i] = t.m2[first + i] + d * d * t.count;
    }
    acc m2_lo_sum = lane_sum(t.m2_lo + first, size, &m2_lo);
    m2_lo += m2_lo_sum;
    acc m2 = lane_sum(square, size, &m2_lo);
    return (moments){t.count * n, mean, mean_lo, m2, m2_lo};
}

/* Statistics and parameters of the groups of channels [first, last) from the column moments. Returns whether any of
 * them has been written the careful way. */
static bool finish_groups(const channels_last *g, size_t sample, slot *s, size_t first, size_t last)
{
    size_t size = g->channels / g->groups;
    row_parameters *p = &s->parameters;
    for (size_t c = first; size > 1 && c < last; c += size) {
        moments m = group_moments(s->total, c, size, p->rstd + c);
        normaliser k = make_normaliser(&m, g->eps);
        set_columns(p, c, size, &k);
        store_statistics(g, sample * g->groups + c / size, m.mean + m.mean_lo, (m.m2 + m.m2_lo) / m.count, k.rstd);
    }
    row_parameters mine = parameters_from(*p, first);
    if (size == 1)
        finish_channels(g, sample * g->channels + first, &mine, moments_from(s->total, first), last - first);
    set_affine(&mine, g->weight ? g->weight + first : NULL, g->bias ? g->bias + first : NULL, last - first);
    if (!any_kept(&mine, last - first))
        return false;
    for (size_t c = first; c < last; c += size) {
        row_parameters group = parameters_from(*p, c);
        if (any_kept(&group, size)) {
            memset(group.kept, 1, size);
            finish_carefully(g, sample, c / size);
        }
    }
    return true;
}

static void write_sample_rows(const channels_last *g, size_t sample, const slot *s, size_t row, size_t rows, bool kept,
                              size_t ahead)
{
    size_t at = sample * g->rows * g->channels + row * g->width, end = at + rows * g->width;
    size_t left = row + rows == g->wide_rows ? g->left : 0;
    if (kept) {
        write_other_columns(g->y + at, g->x + at, g->width, rows, g->width, &s->parameters);
        write_other_columns(g->y + end, g->x + end, g->width, 1, left, &s->parameters);
    } else {
        write_rows(g->y + at, g->x + at, g->width, rows, g->width, &s->parameters, g->work.stream, ahead);
        write_rows(g->y + end, g->x + end, g->width, 1, left, &s->parameters, false, 0);
    }
}

/* `next`: the sample that the same task takes after this one, if there is one. */
static void whole_sample(const channels_last *g, size_t sample, size_t next)
{
    slot s = place_slot(g, sample);
    const real *x = sample_input(g, sample);
    for (size_t piece = 0; piece < g->pieces; piece++) {
        column_moments m = piece_columns(g, x, piece, s.scratch, 0, g->width);
        merge_columns(&s.total, &m, g->width);
    }
    fold_channels(g, x, &s);
    bool kept = finish_groups(g, sample, &s, 0, g->channels);
    repeat_parameters(&s.parameters, g->channels, g->width);
    size_t size = g->rows * g->channels;
    bool fetch = next < g->samples && worth_fetching(g->work, size * sizeof(real));
    write_sample_rows(g, sample, &s, 0, g->wide_rows, kept, fetch ? (next - sample) * size : 0);
    stream_fence();
}

/* Samples share slots, so a task is a slot and takes the samples of that slot in turn. */
static void slot_of_samples(void *job, size_t task)
{
    const channels_last *g = job;
    for (size_t sample = task; sample < g->samples; sample += g->slots)
        whole_sample(g, sample, sample + g->slots);
}

static void piece_statistics_last(void *job, size_t task)
{
    const channels_last *g = job;
    size_t sample = task / g->pieces, piece = task % g->pieces;
    slot s = place_slot(g, sample);
    piece_columns(g, sample_input(g, sample), piece, s.scratch + piece * column_scratch_size(g->width), 0, g->width);
}

static void merge_sample(channels_last *g, size_t sample)
{
    slot s = place_slot(g, sample);
    for (size_t piece = 0; piece < g->pieces; piece++) {
        column_scratch w = place_scratch(s.scratch + piece * column_scratch_size(g->width), g->width);
        size_t row = piece * g->piece_rows, rows = g->wide_rows - row;
        w.moments.count = (acc)(rows < g->piece_rows ? rows : g->piece_rows);
        merge_columns(&s.total, &w.moments, g->width);
    }
    fold_channels(g, sample_input(g, sample), &s);
    g->kept[sample] = finish_groups(g, sample, &s, 0, g->channels);
    repeat_parameters(&s.parameters, g->channels, g->width);
}

static void piece_output_last(void *job, size_t task)
{
    const channels_last *g = job;
    size_t sample = task / g->pieces, row = task % g->pieces * g->piece_rows, rows = g->wide_rows - row;
    slot s = place_slot(g, sample);
    write_sample_rows(g, sample, &s, row, rows < g->piece_rows ? rows : g->piece_rows, g->kept[sample], 0);
    stream_fence();
}

/* Some columns of a sample whose channels are groups of their own. */
static void some_columns(void *job, size_t task)
{
    const channels_last *g = job;
    size_t sample = task / g->chunks, first = task % g->chunks * CHUNK_COLUMNS;
    size_t cols = g->channels - first < CHUNK_COLUMNS ? g->channels - first : CHUNK_COLUMNS;
    const real *x = sample_input(g, sample);
    slot s = place_slot(g, sample);
    column_moments total = moments_from(s.total, first);
    total.count = 0;
    for (size_t piece = 0; piece < g->pieces; piece++) {
        column_moments m = piece_columns(g, x, piece, s.scratch, first, cols);
        merge_columns(&total, &m, cols);
    }
    s.total.count = total.count;
    bool kept = finish_groups(g, sample, &s, first, first + cols);
    row_parameters p = parameters_from(s.parameters, first);
    real *y = g->y + (x - g->x) + first;
    if (kept)
        write_other_columns(y, x + first, g->channels, g->rows, cols, &p);
    else
        write_rows(y, x + first, g->channels, g->rows, cols, &p, g->work.stream, 0);
    stream_fence();
}

static inline void normalise_channels_last(channels_last *g, void *workspace)
{
    if (g->samples == 0 || g->rows == 0 || g->channels == 0)
        return;
    plan_channels_last(g);
    g->memory = workspace;
    int threads = g->work.threads;
    g->chunks = divide_up(g->channels, CHUNK_COLUMNS);
    if (threads > 1 && g->samples == 1 && g->groups == g->channels && g->fold == 1 &&
        (g->pieces == 1 || g->rows * CHUNK_COLUMNS * sizeof(real) <= CHUNK_BYTES)) {
        cn_parallel_for(g->chunks, g->work, some_columns, g);
    } else if (threads > 1 && few_samples(g)) {
        cn_parallel_for(g->samples * g->pieces, g->work, piece_statistics_last, g);
        for (size_t sample = 0; sample < g->samples; sample++)
            merge_sample(g, sample);
        cn_parallel_for(g->samples * g->pieces, g->work, piece_output_last, g);
    } else {
        cn_parallel_for(g->slots, g->work, slot_of_samples, g);
    }
}

#endif
