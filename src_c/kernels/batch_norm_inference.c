/* Batch norm with fixed statistics: an affine map of each channel.
 *
 *     y[n, c, s] = (x[n, c, s] - mean[c]) * scale[c] + bias[c],   scale = weight / sqrt(var + eps)
 *
 * Passes: one, 2S of traffic. Split: runs of a channel, channels where runs are short, or rows. Every element stands alone, so nothing to order.
 * A channel whose mean, variance or scale leaves the range where that is safe is computed in acc, a product at a time.
 */
#include "../parallel.h"
#include "apply.h"
#include "kernels.h"
#include "rows.h"
#include "span.h"

#define NARROW 256
/* Runs this short are mostly beginnings and ends; repeating their parameters pays from a few samples on. */
#define SHORT_RUN 128
#define SHORT_RUN_BATCH 4
/* Below the half of the last place of REAL_MAX: subtracting such a mean cannot overflow. */
#define MEAN_MAX (REAL_MAX / (sizeof(real) == 4 ? 0x1p+26 : 0x1p+55))
#define ROWS_BYTES (128 * 1024)

typedef struct {
    real *y;
    const real *x, *weight, *bias, *mean;
    size_t batch, channels, spatial;
    cn_work work;
    row_parameters parameters; /* hi is the mean; kept: the careful way */
    size_t width, rows, left, per_task;
    bool kept;
} inference;

static size_t row_width(size_t rows, size_t channels)
{
    size_t fold = channels && channels < NARROW ? divide_up(NARROW, channels) : 1;
    return channels * (fold <= rows ? fold : (rows ? rows : 1));
}

size_t CN(batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return row_parameters_size(last ? row_width(batch * spatial, channels) : channels);
}

static void prepare_channels(inference *g, const real *var, acc eps)
{
    row_parameters *p = &g->parameters;
#pragma omp simd
    for (size_t c = 0; c < g->channels; c++) {
        acc variance = variance_and_rstd(var[c], 0, 1, eps, &p->rstd[c], &p->rstd_lo[c]);
        p->hi[c] = g->mean[c];
        p->lo[c] = 0;
        p->kept[c] = !(is_fast(variance) && fabs((acc)g->mean[c]) <= MEAN_MAX);
    }
    set_affine(p, g->weight, g->bias, g->channels);
    g->kept = any_kept(p, g->channels);
    for (size_t c = 0; g->kept && c < g->channels; c++)
        if (p->kept[c]) {
            acc quarter = (acc)var[c] / 4 + eps / 4; /* the sum itself can overflow */
            p->rstd[c] = var[c] == 0 && eps == 0 ? 0 : fabs(quarter) > 1 ? 0.5 / sqrt(quarter) : 1 / sqrt(var[c] + eps);
        }
}

/* n elements of one channel, `step` apart, in acc. The difference is taken of halves where it could itself overflow, and
 * the factors are multiplied as fractions, their exponents apart: only the result can leave the range. */
CN_NOINLINE static void careful_run(const inference *g, size_t at, size_t n, size_t step, size_t channel)
{
    acc mean = g->mean[channel], bias = g->bias ? g->bias[channel] : 0;
    bool halves = fabs(mean) > MEAN_MAX;
    acc unit = halves ? 0.5 : 1;
    int rstd_exponent, weight_exponent, exponent;
    acc factor = frexp(g->parameters.rstd[channel], &rstd_exponent);
    factor *= frexp(g->weight ? g->weight[channel] : 1, &weight_exponent);
    for (size_t i = at, end = at + n * step; i < end; i += step) {
        acc d = frexp((acc)g->x[i] * unit - mean * unit, &exponent);
        g->y[i] = (real)(ldexp(d * factor, exponent + rstd_exponent + weight_exponent + halves) + bias);
    }
}

static void write_run_of_channel(const inference *g, size_t run, size_t c)
{
    const row_parameters *p = &g->parameters;
    size_t at = run * g->spatial;
    if (p->kept[c])
        careful_run(g, at, g->spatial, 1, c);
    else
        affine_scalars(g->y + at, g->x + at, g->spatial, p->hi[c], p->scale[c], p->shift[c], g->work.stream,
                       g->work.stream ? FAR_STEP : 0);
}

static void runs_first(void *job, size_t task)
{
    const inference *g = job;
    size_t run = task * g->per_task, end = run + g->per_task, runs = g->batch * g->channels;
    for (size_t c = run % g->channels; run < end && run < runs; run++, c = c + 1 < g->channels ? c + 1 : 0)
        write_run_of_channel(g, run, c);
    stream_fence();
}

/* Short runs: the parameters of some channels are repeated over their positions once, and the channels of each sample
 * are then one long run. */
static void short_runs_first(void *job, size_t task)
{
    const inference *g = job;
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
    const inference *g = job;
    size_t row = task * g->per_task, rows = g->rows - row;
    bool end = rows <= g->per_task;
    rows = end ? rows : g->per_task;
    size_t at = row * g->width, elements = rows * g->width + (end ? g->left : 0);
    for (size_t c = 0; g->kept && c < g->channels; c++)
        if (g->parameters.kept[c])
            careful_run(g, at + c, elements / g->channels, g->channels, c);
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

void CN(batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                              const real *bias, size_t batch, size_t channels, size_t spatial, double eps, bool last,
                              cn_work work, void *workspace)
{
    if (batch * channels * spatial == 0)
        return;
    inference g = {.y = y,
                   .x = x,
                   .weight = weight,
                   .bias = bias,
                   .mean = mean,
                   .batch = batch,
                   .channels = channels,
                   .spatial = spatial,
                   .work = work};
    size_t rows = batch * spatial;
    g.width = last ? row_width(rows, channels) : channels;
    g.parameters = place_parameters(workspace, g.width);
    prepare_channels(&g, var, eps);
    if (last) {
        repeat_parameters(&g.parameters, channels, g.width);
        g.rows = rows * channels / g.width;
        g.left = rows * channels % g.width;
        g.per_task = divide_up(ROWS_BYTES, g.width * sizeof(real));
        cn_parallel_for(divide_up(g.rows, g.per_task), work, rows_last, &g);
    } else if (spatial <= SHORT_RUN && batch >= SHORT_RUN_BATCH && !work.stream) {
        g.per_task = TILE_PARAMETERS / spatial;
        cn_parallel_for(divide_up(channels, g.per_task), work, short_runs_first, &g);
    } else {
        g.per_task = cn_groups_per_task(batch * channels, spatial * sizeof(real), work.threads);
        cn_parallel_for(divide_up(batch * channels, g.per_task), work, runs_first, &g);
    }
}
