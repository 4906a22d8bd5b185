/* The backward pass, channels last: its job and workspace, and what each group of channels needs before its sums are taken
 * and after (channels_last_gradient.h has the passes).
 *
 * From the sums of t, dy and dy * t of each channel of a sample (gradient.h), weighted and added up over the channels of a
 * group in lanes, come the numbers of its output; and as they are they join dweight and dbias.
 */
#ifndef CN_CHANNELS_LAST_GROUPS_H
#define CN_CHANNELS_LAST_GROUPS_H

#include "../parallel.h"
#include "column_lanes.h"
#include "columns_gradient.h"
#include "normaliser.h"
#include "parameter_sums.h"
#include "wide_gradient.h"

typedef struct channels_last_gradient channels_last_gradient;
struct channels_last_gradient {
    real *dx, *dweight, *dbias; /* each may be NULL */
    const real *dy, *x, *mean, *rstd, *weight;
    size_t samples, rows, channels, groups;
    bool frozen; /* mean and rstd are constants: dx = dy * weight * rstd */
    cn_work work;
    /* Instead of a weight for each channel, one for each element, or NULL: with how rows are summed, and written (as in
     * sum_rows and write_gradient_rows of channels_last_gradient.h). */
    const element_weights *elements;
    void (*element_sums)(const channels_last_gradient *g, column_sums s, const gradient_columns *p, size_t at,
                         size_t stride, size_t rows, size_t cols);
    void (*element_rows)(const channels_last_gradient *g, const gradient_columns *p, size_t at, size_t stride,
                         size_t rows, size_t cols);
    column_plan plan;
    parameter_sums parameters;
    size_t block_samples, chunks, chunk; /* a row is cut into `chunks` parts of `chunk` columns */
    unsigned char *memory;               /* workspace, `slot_size` bytes for each sample in progress */
    size_t slot_size, slots;
};

/* The workspace of one sample: sums of all columns, what rounding took from them, and of one piece or each. */
typedef struct {
    column_sums total, lost, pieces;
    gradient_columns columns;
} gradient_slot;

static inline bool few_gradient_samples(const channels_last_gradient *g)
{
    return cn_few_groups(g->samples, g->plan.pieces * g->chunks);
}

static inline bool wants_sums(const channels_last_gradient *g) { return !g->frozen || wanted(&g->parameters); }

static inline void plan_last_gradient(channels_last_gradient *g)
{
    g->plan = plan_columns(g->rows, g->channels);
    g->chunks = divide_up(g->plan.width, CHUNK_COLUMNS);
    g->chunk = divide_up(divide_up(g->plan.width, g->chunks), LINE_COLUMNS) * LINE_COLUMNS;
    g->block_samples = divide_up(g->samples, PARAMETER_BLOCKS_MAX);
    g->parameters = (parameter_sums){g->dweight, g->dbias, divide_up(g->samples, g->block_samples), g->channels, NULL};
    size_t sums = few_gradient_samples(g) ? 2 + g->plan.pieces : 3;
    g->slot_size = sums * column_sums_size(g->plan.width) + gradient_columns_size(g->plan.width);
    g->slots = few_gradient_samples(g) ? g->samples : slots_for(g->parameters.blocks, g->slot_size);
}

static inline bool is_empty(const channels_last_gradient *g)
{
    return g->samples == 0 || g->rows == 0 || g->channels == 0;
}

static inline gradient_slot place_gradient_slot(const channels_last_gradient *g, size_t index)
{
    size_t width = g->plan.width, size = column_sums_size(width);
    unsigned char *memory = g->memory + index * g->slot_size;
    return (gradient_slot){place_sums(memory, width), place_sums(memory + size, width),
                           place_sums(memory + 2 * size + gradient_columns_size(width), width),
                           place_columns(memory + 2 * size, width)};
}

/* The parts of a slot from column `first` on. */
static inline gradient_slot slot_from(gradient_slot s, size_t first)
{
    return (gradient_slot){sums_from(s.total, first), sums_from(s.lost, first), sums_from(s.pieces, first),
                           columns_from(s.columns, first)};
}

/* The sums of one piece. Pieces follow one another, each with three sums of `width` columns. */
static inline column_sums piece_sums(const channels_last_gradient *g, gradient_slot s, size_t piece)
{
    return sums_from(s.pieces, piece * 3 * g->plan.width);
}

/* A folded row repeats the numbers of its channels. */
static inline void repeat_columns(const channels_last_gradient *g, gradient_columns p)
{
    size_t n = g->channels;
    for (size_t c = n; c < g->plan.width; c += n) {
        memcpy(p.mean + c, p.mean, n * sizeof(real));
        memcpy(p.rstd + c, p.rstd, n * sizeof(real));
        memcpy(p.weight + c, p.weight, n * sizeof(real));
        memcpy(p.x_slope + c, p.x_slope, n * sizeof(real));
        memcpy(p.offset + c, p.offset, n * sizeof(real));
        memcpy(p.hat_lo + c, p.hat_lo, n * sizeof(real));
        memcpy(p.kept + c, p.kept, n);
    }
}

/* What is known of the channels [first, first + n) of all samples, and of one sample before its sums. */
static void begin_columns(const channels_last_gradient *g, gradient_columns p, size_t first, size_t n)
{
    if (g->weight)
        memcpy(p.weight + first, g->weight + first, n * sizeof(real));
    for (size_t c = first; c < (g->weight ? 0 : first + n); c++)
        p.weight[c] = 1;
    memset(p.kept + first, 0, n);
}

static void begin_sample(const channels_last_gradient *g, size_t sample, gradient_columns p, size_t first, size_t n)
{
    size_t size = g->channels / g->groups;
    const real *mean = g->mean + sample * g->groups, *rstd = g->rstd + sample * g->groups;
    for (size_t c = first, end; c < (size > 1 ? first + n : 0); c = end) {
        end = c + size;
        real group_mean = mean[c / size], group_rstd = rstd[c / size];
        for (size_t i = c; i < end; i++)
            p.mean[i] = group_mean, p.rstd[i] = group_rstd;
    }
    if (size == 1) {
        memcpy(p.mean + first, mean + first, n * sizeof(real));
        memcpy(p.rstd + first, rstd + first, n * sizeof(real));
    }
    for (size_t c = first; c < (g->frozen ? first + n : 0); c++)
        p.kept[c] = !scale_of(p.rstd[c], 0, g->weight ? g->weight[c] : 1, &p.weight[c]);
    repeat_columns(g, p);
}

/* Whether a channel adds to the averages of its group, unless the product has vanished. */
static inline int has_sums(acc weight, acc g, acc gt) { return (weight != 0) & ((g != 0) | (gt != 0)); }

/* Each channel a group: what make_gradient does, for n channels side by side. The sums of t give way to hat_lo. */
static void finish_single_channels(gradient_slot s, acc count, size_t n)
{
    gradient_columns p = s.columns;
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        acc weight = p.weight[c], hat_lo = s.total.t[c] / count, average = weight * s.total.g[c] / count;
        acc slope = weight * s.total.gt[c] / count - hat_lo * average;
        p.x_slope[c] = (real)(slope * p.rstd[c]);
        p.offset[c] = (real)(average - hat_lo * slope);
        int lost = (average == 0) & (slope == 0) & has_sums(weight, s.total.g[c], s.total.gt[c]);
        p.kept[c] = !(gradient_is_fast(p.rstd[c], hat_lo, average, slope) &
                      hats_are_normal(s.total.g[c], s.total.gt[c]) & !lost);
        s.total.t[c] = hat_lo;
    }
}

/* The sums of a group of `size` channels from those of its channels: g = dy * weight. */
static inline gradient_sums weighted_sums(column_sums s, const real *weight, size_t size)
{
    column_lanes t = {0}, g = {0}, gt = {0};
    size_t c = 0;
    for (; c + SUM_LANES <= size; c += SUM_LANES) {
        add_lanes(&t, s.t + c, NULL);
        add_lanes(&g, s.g + c, weight + c);
        add_lanes(&gt, s.gt + c, weight + c);
    }
    if (c < size) {
        add_rest(&t, s.t + c, NULL, size - c);
        add_rest(&g, s.g + c, weight + c, size - c);
        add_rest(&gt, s.gt + c, weight + c, size - c);
    }
    gradient_sums sums = {0};
    sums.t = fold_column_lanes(&t, &sums.t_lo);
    sums.g = fold_column_lanes(&g, &sums.g_lo);
    sums.gt = fold_column_lanes(&gt, &sums.gt_lo);
    return sums;
}

static bool any_sums(column_sums s, const real *weight, size_t n)
{
    int any = 0;
    for (size_t c = 0; c < n; c++)
        any |= has_sums(weight[c], s.g[c], s.gt[c]);
    return any;
}

static bool all_normal(column_sums s, size_t n)
{
    int odd = 0;
#pragma omp simd reduction(| : odd)
    for (size_t c = 0; c < n; c++)
        odd |= !hats_are_normal(s.g[c], s.gt[c]);
    return !odd;
}

/* Groups of `size` channels, n channels in all. */
static void finish_channel_groups(gradient_slot s, acc count, size_t n, size_t size)
{
    bool normal = all_normal(s.total, n);
    for (size_t c = 0; c < n; c += size) {
        column_sums group = sums_from(s.total, c);
        gradient_columns p = columns_from(s.columns, c);
        gradient_sums sums = weighted_sums(group, p.weight, size);
        gradient k;
        make_gradient(&k, &sums, count, p.mean[0], p.rstd[0], true);
        bool kept = !k.fast || (!normal && !all_normal(group, size)) || (k.no_sums && any_sums(group, p.weight, size));
#pragma omp simd
        for (size_t i = 0; i < size; i++)
            p.x_slope[i] = k.x_slope, p.offset[i] = k.offset, p.kept[i] = kept;
#pragma omp simd
        for (size_t i = 0; i < size; i++)
            group.t[i] = k.hat_lo_acc;
    }
}

/* What rounding took, back into the sums. */
static inline void settle_sums(gradient_slot s, size_t cols)
{
    if (sizeof(real) == sizeof(acc)) {
        settle_columns(s.total, s.lost, cols);
        clear_columns(s.lost, cols);
    }
}

/* The careful way for one group, whose first channel is `first`. */
static void careful_columns(const channels_last_gradient *g, size_t sample, gradient_slot s, size_t first)
{
    size_t size = g->channels / g->groups, at = sample * g->rows * g->channels + first;
    wide_gradient w = {.shape = {g->rows * size, size, g->channels, 1, 1, size},
                       .dy = g->dy + at,
                       .x = g->x + at,
                       .weight = g->weight ? g->weight + first : NULL,
                       .mean = s.columns.mean[0],
                       .rstd = s.columns.rstd[0],
                       .centred = true,
                       .dx = g->dx ? g->dx + at : NULL,
                       .elements = g->elements,
                       .at = at,
                       .weight_sums = s.total.gt,
                       .bias_sums = s.total.g};
    clear_columns(s.total, size);
    if (sizeof(real) == sizeof(acc))
        w.weight_lost = s.lost.gt, w.bias_lost = s.lost.g;
    wide_backward(&w);
    settle_sums(s, size);
    memset(s.columns.kept, 1, size);
}

/* From the sums of the channels [first, first + n): what their output needs, and their share of the parameters' sums. */
static void finish_gradients(const channels_last_gradient *g, size_t sample, gradient_slot s, size_t first, size_t n)
{
    size_t size = g->channels / g->groups;
    acc count = (acc)(g->rows * size);
    gradient_slot mine = slot_from(s, first);
    if (g->frozen)
        memset(mine.total.t, 0, n * sizeof(acc));
    else if (count == 1) /* hat is 0, whatever the saved mean */
        memset(mine.total.gt, 0, n * sizeof(acc));
    if (!g->frozen && size == 1)
        finish_single_channels(mine, count, n);
    if (!g->frozen && size > 1)
        finish_channel_groups(mine, count, n, size);
    for (size_t c = 0; c < (g->elements ? n : 0); c++)
        mine.columns.hat_lo[c] = (real)mine.total.t[c];
    for (size_t c = 0; c < (!g->frozen && keeps_any(&mine.columns, n) ? n : 0); c += size)
        if (mine.columns.kept[c])
            careful_columns(g, sample, slot_from(mine, c), first + c);
    acc *sums = block_sums(&g->parameters, sample / g->block_samples);
    column_sums t = mine.total;
#pragma omp simd
    for (size_t c = 0; c < (wanted(&g->parameters) ? n : 0); c++)
        add_parameter(sums, g->channels, first + c, weight_sum(t.gt[c], t.g[c], t.t[c]), t.g[c]);
}

#endif
