/* Normalization by statistics that are known already: an affine map of each channel.
 *
 *     y[n, c, s] = (x[n, c, s] - hi[c]) * scale[c] + shift[c]
 *
 * Passes: one, 2S of traffic. Split: runs of a channel, channels where runs are short, or rows. Every element stands alone,
 * so nothing to order. A kernel supplies hi, scale and shift of each channel (rows.h), and what is to become of channels
 * where these leave the range.
 */
#ifndef CN_FIXED_STATISTICS_H
#define CN_FIXED_STATISTICS_H

#include "../parallel.h"
#include "apply.h"
#include "rows.h"
#include "span.h"

#define NARROW 256
/* Runs this short are mostly beginnings and ends; repeating their parameters pays from a few samples on. */
#define SHORT_RUN 128
#define SHORT_RUN_BATCH 4
#define ROWS_BYTES (128 * 1024)

typedef struct fixed_statistics fixed_statistics;
struct fixed_statistics {
    real *y;
    const real *x, *weight, *bias;
    size_t batch, channels, spatial;
    cn_work work;
    row_parameters parameters; /* kept: the careful way */
    /* n elements of one channel from `at` on, `step` apart, the careful way */
    void (*careful)(const fixed_statistics *g, size_t at, size_t n, size_t step, size_t channel);
    size_t width, rows, left, per_task;
    bool kept;
};

static inline size_t row_width(size_t rows, size_t channels)
{
    size_t fold = channels && channels < NARROW ? divide_up(NARROW, channels) : 1;
    return channels * (fold <= rows ? fold : (rows ? rows : 1));
}

static inline size_t fixed_statistics_workspace(size_t batch, size_t channels, size_t spatial, bool last)
{
    return row_parameters_size(last ? row_width(batch * spatial, channels) : channels);
}

/* Where the parameters of the channels go; a kernel fills them in. */
static inline void place_fixed(fixed_statistics *g, bool last, void *workspace)
{
    g->width = last ? row_width(g->batch * g->spatial, g->channels) : g->channels;
    g->parameters = place_parameters(workspace, g->width);
}

static void write_run_of_channel(const fixed_statistics *g, size_t run, size_t c)
{
    const row_parameters *p = &g->parameters;
    size_t at = run * g->spatial;
    if (p->kept[c])
        g->careful(g, at, g->spatial, 1, c);
    else
        affine_scalars(g->y + at, g->x + at, g->spatial, p->hi[c], p->scale[c], p->shift[c], g->work.stream,
                       g->work.stream ? FAR_STEP : 0);
}

static void runs_first(void *job, size_t task)
{
    const fixed_statistics *g = job;
    size_t run = task * g->per_task, end = run + g->per_task, runs = g->batch * g->channels;
    for (size_t c = run % g->channels; run < end && run < runs; run++, c = c + 1 < g->channels ? c + 1 : 0)
        write_run_of_channel(g, run, c);
    stream_fence();
}

/* Short runs: the parameters of some channels are repeated over their positions once, and the channels of each sample
 * are then one long run. */
static void short_runs_first(void *job, size_t task)
{
    const fixed_statistics *g = job;
    const row_parameters *p = &g->parameters;
    real hi[TILE_PARAMETERS], scale[TILE_PARAMETERS], shift[TILE_PARAMETERS];
    size_t first = task * g->per_task, last = first + g->per_task, n = 0;
    last = last < g->channels ? last : g->channels;
    for (size_t c = first; c < last; c++)
        for (size_t i = 0; i < g->spatial; i++, n++)
            hi[n] = p->hi[c], scale[n] = p->scale[c], shift[n] = p->shift[c];
    for (size_t sample = 0; sample < g->batch; sample++) {
        size_t run = sample * g->channels + first, at = run * g->spatial;
        if (!g->kept)
            write_run(g->y + at, g->x + at, n, hi, scale, shift);
        for (size_t c = first; g->kept && c < last; c++, run++)
            write_run_of_channel(g, run, c);
    }
}

static void rows_last(void *job, size_t task)
{
    const fixed_statistics *g = job;
    size_t row = task * g->per_task, rows = g->rows - row;
    bool end = rows <= g->per_task;
    rows = end ? rows : g->per_task;
    size_t at = row * g->width, elements = rows * g->width + (end ? g->left : 0);
    for (size_t c = 0; g->kept && c < g->channels; c++)
        if (g->parameters.kept[c])
            g->careful(g, at + c, elements / g->channels, g->channels, c);
    size_t last = at + rows * g->width, left = end ? g->left : 0;
    if (g->kept) {
        write_other_columns(g->y + at, g->x + at, g->width, rows, g->width, &g->parameters);
        write_other_columns(g->y + last, g->x + last, g->width, 1, left, &g->parameters);
    } else {
        write_rows(g->y + at, g->x + at, g->width, rows, g->width, &g->parameters, g->work.stream, 0);
        write_rows(g->y + last, g->x + last, g->width, 1, left, &g->parameters, false, 0);
    }
    stream_fence();
}

/* The parameters are there: the output. */
static inline void write_fixed(fixed_statistics *g, bool last)
{
    size_t rows = g->batch * g->spatial;
    if (last) {
        repeat_parameters(&g->parameters, g->channels, g->width);
        g->rows = rows * g->channels / g->width;
        g->left = rows * g->channels % g->width;
        g->per_task = divide_up(ROWS_BYTES, g->width * sizeof(real));
        cn_parallel_for(divide_up(g->rows, g->per_task), g->work, rows_last, g);
    } else if (g->spatial <= SHORT_RUN && g->batch >= SHORT_RUN_BATCH && !g->work.stream) {
        g->per_task = TILE_PARAMETERS / g->spatial;
        cn_parallel_for(divide_up(g->channels, g->per_task), g->work, short_runs_first, g);
    } else {
        g->per_task = cn_groups_per_task(g->batch * g->channels, g->spatial * sizeof(real), g->work.threads);
        cn_parallel_for(divide_up(g->batch * g->channels, g->per_task), g->work, runs_first, g);
    }
}

#endif
