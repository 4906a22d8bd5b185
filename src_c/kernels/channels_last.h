/* Channels last: `samples` matrices of `rows` x `channels`, statistics over the rows of a sample for each group of
 * channels. Group and instance norm have one sample per batch entry, batch norm (and (N, C)) has one in all.
 *
 * Traffic: statistics read x once; the output reads it again, from the cache where a sample (or a task's columns of
 * it) fits: 2S, else 3S.
 * Split: a task takes a sample; or, with few samples, first the pieces of rows, then their merge, then rows of output;
 * or, for a short batch of many independent channels, a task takes some of the columns. The cutting into pieces (column_plan.h)
 * depends on rows and channels alone and merges are in order: the same bits each way.
 */
#ifndef CN_CHANNELS_LAST_H
#define CN_CHANNELS_LAST_H

#include "../parallel.h"
#include "column_lanes.h"
#include "columns.h"
#include "normaliser.h"
#include "rows.h"
#include "wide.h"

typedef struct channels_last channels_last;
struct channels_last {
    real *y, *mean, *rstd; /* without y: statistics alone */
    const real *x, *weight, *bias;
    acc *mean_acc, *variance; /* (samples * groups,) unrounded statistics, or NULL */
    size_t samples, rows, channels, groups;
    acc eps;
    cn_work work;
    /* Scale and shift of the columns [first, first + n) of a sample, p those from the first on, where they are not weight
     * and bias; and then the output of a group that takes the careful way, from its statistics. */
    void (*affine)(const channels_last *g, size_t sample, size_t first, size_t n, row_parameters *p);
    void (*careful_output)(const channels_last *g, size_t sample, size_t group, const wide_group *shape,
                           const wide_stats *w);
    /* How `rows` rows of `cols` columns from element `at` on are written, `stride` apart, of which some may be kept; NULL:
     * with scale and shift of each column. */
    void (*write)(const channels_last *g, size_t at, size_t stride, size_t rows, size_t cols, const row_parameters *p,
                  bool kept);
    column_plan plan;
    unsigned char *memory; /* workspace, `slot_size` bytes for each sample in progress */
    size_t slot_size, slots;
    bool kept[CN_FEW_GROUPS]; /* of the second way: whether a sample has columns already written */
};

/* The parts of a slot. */
typedef struct {
    column_moments total;
    row_parameters parameters;
    unsigned char *pieces; /* moments of the piece at hand, or of each piece */
} slot;

static inline bool few_samples(const channels_last *g) { return cn_few_groups(g->samples, g->plan.pieces); }

static inline void plan_channels_last(channels_last *g)
{
    g->plan = plan_columns(g->rows, g->channels);
    size_t pieces = few_samples(g) ? g->plan.pieces : 1, moments_size = column_moments_size(g->plan.width);
    g->slot_size = moments_size + row_parameters_size(g->plan.width) + pieces * moments_size;
    g->slots = slots_for(g->samples, g->slot_size);
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
    slot s = {.total = place_moments(memory, g->plan.width)};
    memory += column_moments_size(g->plan.width);
    s.parameters = place_parameters(memory, g->plan.width);
    s.pieces = memory + row_parameters_size(g->plan.width);
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

/* Moments of the columns [first, first + cols) of one piece, into m. */
static void piece_columns(const channels_last *g, const real *x, size_t piece, column_moments *m, size_t first,
                          size_t cols)
{
    const column_plan *p = &g->plan;
    column_piece(m, x + piece * p->piece_rows * p->width + first, p->width, piece_height(p, piece), cols,
                 g->work.stream);
}

/* Moments of the columns [first, first + cols) of a sample, its pieces in order. */
static column_moments sample_columns(const channels_last *g, const real *x, const slot *s, size_t first, size_t cols)
{
    column_moments total = moments_from(s->total, first);
    column_moments more = moments_from(place_moments(s->pieces, g->plan.width), first);
    piece_columns(g, x, 0, &total, first, cols);
    for (size_t piece = 1; piece < g->plan.pieces; piece++) {
        piece_columns(g, x, piece, &more, first, cols);
        merge_columns(&total, &more, cols);
    }
    return total;
}

/* The columns that belong to one channel in order, then the rows left over, into the first `channels` moments. */
static void fold_channels(const channels_last *g, const real *x, slot *s)
{
    const column_plan *p = &g->plan;
    acc rows = s->total.count;
    for (size_t c = g->channels; c < p->width; c += g->channels) {
        column_moments more = moments_from(s->total, c);
        more.count = rows;
        merge_columns(&s->total, &more, g->channels);
    }
    if (p->left) {
        column_moments rest = place_moments(s->pieces, g->channels);
        column_piece(&rest, x + p->wide_rows * p->width, g->channels, p->left / g->channels, g->channels, false);
        merge_columns(&s->total, &rest, g->channels);
    }
}

/* The careful way for one group, and its statistics. */
static void finish_carefully(const channels_last *g, size_t sample, size_t group)
{
    size_t size = g->channels / g->groups, first = group * size, at = sample * g->rows * g->channels + first;
    size_t index = sample * g->groups + group;
    wide_group careful = {g->rows * size, size, g->channels, 1, 1, size};
    wide_stats w = wide_statistics(g->x + at, &careful, g->eps, true);
    store_statistics(g, index, wide_mean(&w), wide_variance(&w), wide_rstd(&w, g->eps));
    if (g->careful_output)
        g->careful_output(g, sample, group, &careful, &w);
    else
        wide_apply(g->y + at, g->x + at, &careful, &w, 0, g->weight ? g->weight + first : NULL,
                   g->bias ? g->bias + first : NULL);
}

/* Each channel a group: what make_normaliser and store_statistics do, for n channels side by side. */
static void finish_single_columns(const channels_last *g, size_t index, row_parameters *p, column_moments m, size_t n)
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

/* Distance of n column means from the mean in two words. */
static inline void mean_distances(acc *distance, column_moments t, size_t n, acc mean, acc mean_lo)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        distance[c] = (t.mean[c] - mean) + (t.mean_lo[c] - mean_lo);
}

/* Moments of `size` columns with one count: the mean of their means, and for M2 the spread of the means added; a few
 * columns are merged one by one. scratch has `size` elements. */
static moments group_moments(column_moments t, size_t size, acc *scratch)
{
    if (size < SUM_LANES) {
        moments m = {0};
        for (size_t c = 0; c < size; c++) {
            moments b = {t.count, t.mean[c], t.mean_lo[c], t.m2[c], t.m2_lo[c]};
            merge(&m, &b);
        }
        return m;
    }
    acc low = 0, n = (acc)size, sum = lane_sum(t.mean, size, &low);
    bool exact = sizeof(real) == sizeof(acc); /* of float data acc has digits to spare: no second words */
    if (exact)
        low += whole_sum(t.mean_lo, size);
    acc mean = sum / n, back = mean * n;
    acc mean_lo = two_sum(&mean, ((sum - back) - product_error(mean, n, back) + low) / n);
    mean_distances(scratch, t, size, mean, mean_lo);
    if (exact) { /* what is still missing: the second word has its own rounding */
        mean_lo += whole_sum(scratch, size) / n;
        mean_distances(scratch, t, size, mean, mean_lo);
    }
#pragma omp simd
    for (size_t c = 0; c < size; c++)
        scratch[c] = t.m2[c] + scratch[c] * scratch[c] * t.count;
    acc m2_lo = exact ? whole_sum(t.m2_lo, size) : 0, m2 = lane_sum(scratch, size, &m2_lo);
    return (moments){t.count * n, mean, mean_lo, m2, m2_lo};
}

/* Statistics and parameters of the groups of channels [first, last) from the column moments. Returns whether any of
 * them has been written the careful way. */
static bool finish_groups(const channels_last *g, size_t sample, slot *s, size_t first, size_t last)
{
    size_t size = g->channels / g->groups;
    row_parameters *p = &s->parameters;
    for (size_t c = first; size > 1 && c < last; c += size) {
        moments m = group_moments(moments_from(s->total, c), size, p->rstd + c);
        normaliser k = make_normaliser(&m, g->eps);
        set_columns(p, c, size, &k);
        store_statistics(g, sample * g->groups + c / size, m.mean + m.mean_lo, (m.m2 + m.m2_lo) / m.count, k.rstd);
    }
    row_parameters mine = parameters_from(*p, first);
    if (size == 1)
        finish_single_columns(g, sample * g->channels + first, &mine, moments_from(s->total, first), last - first);
    if (g->affine)
        g->affine(g, sample, first, last - first, &mine);
    else
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

CN_INLINE void write_output(const channels_last *g, size_t at, size_t stride, size_t rows, size_t cols,
                            const row_parameters *p, bool kept, bool stream, size_t ahead)
{
    if (g->write)
        g->write(g, at, stride, rows, cols, p, kept);
    else if (kept)
        write_other_columns(g->y + at, g->x + at, stride, rows, cols, p);
    else
        write_rows(g->y + at, g->x + at, stride, rows, cols, p, stream, ahead);
}

static void write_piece(const channels_last *g, size_t sample, const slot *s, size_t piece, bool kept, size_t ahead)
{
    size_t width = g->plan.width, row = piece * g->plan.piece_rows, rows = piece_height(&g->plan, piece);
    size_t at = sample * g->rows * g->channels + row * width, end = at + rows * width;
    size_t left = piece + 1 == g->plan.pieces ? g->plan.left : 0;
    write_output(g, at, width, rows, width, &s->parameters, kept, g->work.stream, ahead);
    write_output(g, end, width, 1, left, &s->parameters, kept, false, 0);
}

/* `next`: the sample that the same task takes after this one, if there is one. */
static void whole_sample(const channels_last *g, size_t sample, size_t next)
{
    slot s = place_slot(g, sample);
    const real *x = sample_input(g, sample);
    s.total = sample_columns(g, x, &s, 0, g->plan.width);
    fold_channels(g, x, &s);
    bool kept = finish_groups(g, sample, &s, 0, g->channels);
    repeat_parameters(&s.parameters, g->channels, g->plan.width);
    size_t size = g->rows * g->channels;
    bool fetch = next < g->samples && worth_fetching(g->work, size * sizeof(real));
    for (size_t piece = g->y ? g->plan.pieces : 0; piece-- > 0;) /* what was read last is still in the cache */
        write_piece(g, sample, &s, piece, kept, fetch ? (next - sample) * size : 0);
}

/* Samples share slots, so a task is a slot and takes the samples of that slot in turn. */
static void slot_of_samples(void *job, size_t task)
{
    const channels_last *g = job;
    for (size_t sample = task; sample < g->samples; sample += g->slots)
        whole_sample(g, sample, sample + g->slots);
    stream_fence();
}

static column_moments place_piece(const channels_last *g, const slot *s, size_t piece)
{
    return place_moments(s->pieces + piece * column_moments_size(g->plan.width), g->plan.width);
}

static void piece_statistics_last(void *job, size_t task)
{
    const channels_last *g = job;
    size_t sample = task / g->plan.pieces, piece = task % g->plan.pieces;
    slot s = place_slot(g, sample);
    column_moments m = place_piece(g, &s, piece);
    piece_columns(g, sample_input(g, sample), piece, &m, 0, g->plan.width);
}

static void merge_sample(channels_last *g, size_t sample)
{
    slot s = place_slot(g, sample);
    for (size_t piece = 0; piece < g->plan.pieces; piece++) {
        column_moments m = place_piece(g, &s, piece);
        m.count = (acc)piece_height(&g->plan, piece);
        merge_columns(&s.total, &m, g->plan.width);
    }
    fold_channels(g, sample_input(g, sample), &s);
    g->kept[sample] = finish_groups(g, sample, &s, 0, g->channels);
    repeat_parameters(&s.parameters, g->channels, g->plan.width);
}

static void piece_output_last(void *job, size_t task)
{
    const channels_last *g = job;
    task = last_first(task, g->samples * g->plan.pieces, g->work);
    size_t sample = task / g->plan.pieces, piece = task % g->plan.pieces;
    slot s = place_slot(g, sample);
    write_piece(g, sample, &s, piece, g->kept[sample], 0);
    stream_fence();
}

/* Some columns of a sample whose channels are groups of their own. */
static void some_columns(void *job, size_t task)
{
    const channels_last *g = job;
    size_t first = task * CHUNK_COLUMNS;
    size_t cols = g->channels - first < CHUNK_COLUMNS ? g->channels - first : CHUNK_COLUMNS;
    slot s = place_slot(g, 0);
    s.total.count = sample_columns(g, g->x, &s, first, cols).count;
    bool kept = finish_groups(g, 0, &s, first, first + cols);
    row_parameters p = parameters_from(s.parameters, first);
    if (g->y)
        write_output(g, first, g->channels, g->rows, cols, &p, kept, g->work.stream, 0);
    stream_fence();
}

static inline void normalise_channels_last(channels_last *g, void *workspace)
{
    if (g->samples == 0 || g->rows == 0 || g->channels == 0)
        return;
    plan_channels_last(g);
    g->memory = workspace;
    if (g->samples == 1 && g->groups == g->channels && share_columns(&g->plan, sizeof(real))) {
        cn_parallel_for(divide_up(g->channels, CHUNK_COLUMNS), g->work, some_columns, g);
    } else if (few_samples(g) && leaves_idle(g->samples, g->work.threads)) {
        cn_parallel_for(g->samples * g->plan.pieces, g->work, piece_statistics_last, g);
        for (size_t sample = 0; sample < g->samples; sample++)
            merge_sample(g, sample);
        if (g->y)
            cn_parallel_for(g->samples * g->plan.pieces, g->work, piece_output_last, g);
    } else {
        cn_parallel_for(g->slots, g->work, slot_of_samples, g);
    }
}

#endif
