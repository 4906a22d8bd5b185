/* SPADE, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean) * rstd,  g = dy * (offset + gamma)
 *     dx = rstd * (g - average(g) - hat * average(g * hat)),   averages over a group
 *     dgamma = dy * hat,   dbeta = dy for each element
 *
 * where gamma or beta was broadcast, these are still to be summed. Passes, split and determinism are those of group and batch norm's
 * gradients (channels_first_gradient.h, channels_last_gradient.h), with a weight for each element: dy, x and gamma are read,
 * dx, dgamma and dbeta are written, 6S, where a group (channels last: a sample) fits in the cache, else 9S.
 */
#include "channels_first_gradient.h"
#include "channels_last_gradient.h"
#include "kernels.h"

/* The sums of one block of a channel. */
static gradient_sums modulated_block(const channels_first_gradient *g, size_t channel, size_t block)
{
    span_block b = block_of_span(g->shape, &g->plan, block);
    size_t at = channel * g->spatial + b.at, group = channel / g->per_group;
    run_constants c = {.mean = g->mean[group],
                       .rstd = g->rstd[group],
                       .offset = g->elements->offset,
                       .weighted = true,
                       .shifted = true,
                       .centred = true};
    gradient_lanes lanes;
    clear_lanes(&lanes);
    real gammas[BLOCK];
    for (size_t run = 0; run < b.runs; run++, at += g->shape.stride)
        add_run(&lanes, g->dy + at, g->x + at, modulation_run(&g->elements->gamma, at, b.n, gammas), b.n, c);
    return fold_sums(&lanes);
}

/* dx and dgamma of n elements of one group. dx may be dy. */
static inline void modulated_gradient(real *dx, real *dgamma, const real *dy, const real *x, const real *gamma,
                                      size_t n, const gradient *k, real offset_of_gamma)
{
    const real mean = k->mean, rstd = k->rstd, x_slope = k->x_slope, offset = k->offset, hat_lo = k->hat_lo;
    if (dgamma) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dgamma[i] = dy[i] * ((x[i] - mean) * rstd - hat_lo);
    }
    if (dx) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = ((dy[i] * (offset_of_gamma + gamma[i]) - offset) - (x[i] - mean) * x_slope) * rstd;
    }
}

/* The same of columns side by side. */
static inline void modulated_columns(real *dx, real *dgamma, const real *dy, const real *x, const real *gamma, size_t n,
                                     gradient_columns p, real offset_of_gamma)
{
    if (dgamma) {
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            dgamma[c] = dy[c] * ((x[c] - p.mean[c]) * p.rstd[c] - p.hat_lo[c]);
    }
    if (dx) {
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            dx[c] =
                ((dy[c] * (offset_of_gamma + gamma[c]) - p.offset[c]) - (x[c] - p.mean[c]) * p.x_slope[c]) * p.rstd[c];
    }
}

/* An output, by whose cache lines runs are cut. */
static inline const real *written(const real *dx, const element_weights *e)
{
    return dx ? dx : e->dgamma ? e->dgamma : e->dbeta;
}

static void write_modulated_runs(const channels_first_gradient *g, const gradient *k, size_t first, size_t runs,
                                 size_t n, size_t stride)
{
    const element_weights *e = g->elements;
    real dxs[STREAM_RUN], dgammas[STREAM_RUN], gammas[STREAM_RUN];
    for (size_t run = 0; run < runs; run++, first += stride)
        for (size_t at = first, m; at < first + n; at += m) {
            m = stream_run(written(g->dx, e) + at, first + n - at);
            copy_run(e->dbeta, g->dy, at, m, g->work);
            const real *gamma = modulation_run(&e->gamma, at, m, gammas);
            real *dx = g->dx ? g->dx + at : NULL, *dgamma = e->dgamma ? e->dgamma + at : NULL;
            if (!g->work.stream) {
                modulated_gradient(dx, dgamma, g->dy + at, g->x + at, gamma, m, k, e->offset);
                continue;
            }
            modulated_gradient(dx ? dxs : NULL, dgamma ? dgammas : NULL, g->dy + at, g->x + at, gamma, m, k, e->offset);
            if (dx)
                stream_out(dx, dxs, m);
            if (dgamma)
                stream_out(dgamma, dgammas, m);
        }
}

/* n elements of a row, in buffers first where they are streamed or some columns are kept. */
static void write_modulated_columns(const channels_last_gradient *g, size_t at, size_t n, gradient_columns p, bool kept)
{
    const element_weights *e = g->elements;
    real buffers[2][STREAM_RUN], gammas[STREAM_RUN];
    real *const outputs[2] = {g->dx ? g->dx + at : NULL, e->dgamma ? e->dgamma + at : NULL};
    bool direct = !kept && !g->work.stream;
    real *dx = direct ? outputs[0] : buffers[0], *dgamma = direct ? outputs[1] : buffers[1];
    modulated_columns(outputs[0] ? dx : NULL, outputs[1] ? dgamma : NULL, g->dy + at, g->x + at,
                      modulation_run(&e->gamma, at, n, gammas), n, p, e->offset);
    for (int o = 0; o < (direct ? 0 : 2); o++) {
        if (outputs[o] && !kept)
            stream_out(outputs[o], buffers[o], n);
        for (size_t c = 0; c < (outputs[o] && kept ? n : 0); c++)
            outputs[o][c] = p.kept[c] ? outputs[o][c] : buffers[o][c];
    }
}

static void write_modulated_rows(const channels_last_gradient *g, const gradient_columns *p, size_t at, size_t stride,
                                 size_t rows, size_t cols)
{
    bool kept = keeps_any(p, cols);
    for (size_t r = 0; r < rows; r++, at += stride)
        for (size_t c = 0, n; c < cols; c += n) {
            n = stream_run(written(g->dx, g->elements) + at + c, cols - c);
            copy_run(g->elements->dbeta, g->dy, at + c, n, g->work);
            write_modulated_columns(g, at + c, n, columns_from(*p, c), kept);
        }
}

#define TILE_ROWS 8
#define TILE_WIDTH STREAM_RUN

/* dy * (offset + gamma) of a few rows of a tile of columns, TILE_WIDTH apart. */
static void weigh_rows(real *weighted, const channels_last_gradient *g, size_t at, size_t stride, size_t rows,
                       size_t cols)
{
    const element_weights *e = g->elements;
    const real offset = e->offset;
    real gammas[TILE_WIDTH];
    for (size_t r = 0; r < rows; r++, at += stride, weighted += TILE_WIDTH) {
        const real *gamma = modulation_run(&e->gamma, at, cols, gammas), *dy = g->dy + at;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            weighted[c] = dy[c] * (offset + gamma[c]);
    }
}

/* A column of which both sums are 0: is dy * weight zero, or is it only too small? Then a NaN sends it the careful way. */
static void check_silent_elements(column_sums s, const channels_last_gradient *g, size_t at, size_t stride, size_t rows,
                                  size_t cols)
{
    for (size_t c = 0; c < cols; c++) {
        real most = 0;
        bool silent = s.g[c] == 0 && s.gt[c] == 0, zero = true;
        for (size_t r = 0; r < (silent ? rows : 0); r++) {
            size_t i = at + r * stride + c;
            real dy = g->dy[i], weight = (real)element_weight(g->elements, i), a = (real)fabs((acc)(dy * weight));
            zero &= dy == 0 || weight == 0;
            most = a > most ? a : most;
        }
        if (!zero && most < TERM_MIN)
            s.gt[c] = NAN;
    }
}

/* The sums of a tile of columns: the weighted rows first, then as for weights of channels (sum_columns in
 * columns_gradient.h). */
static void sum_tile(column_sums s, const channels_last_gradient *g, const gradient_columns *p, size_t at,
                     size_t stride, size_t rows, size_t cols)
{
    real weighted[TILE_ROWS * TILE_WIDTH];
    acc memory[3 * (sizeof(real) == sizeof(acc) ? TILE_WIDTH : 1)]; /* what rounding took, of double data */
    column_sums lost = place_sums(memory, sizeof memory / sizeof(acc) / 3);
    clear_columns(s, cols);
    if (sizeof(real) == sizeof(acc))
        clear_columns(lost, cols);
    for (size_t r = 0; r < rows; r += TILE_ROWS) {
        size_t n = rows - r < TILE_ROWS ? rows - r : TILE_ROWS, from = at + r * stride;
        weigh_rows(weighted, g, from, stride, n, cols);
        tile_gradients(s, lost, weighted, TILE_WIDTH, g->x + from, stride, n, cols, p, false);
    }
    if (sizeof(real) == sizeof(acc))
        settle_columns(s, lost, cols);
    check_silent_elements(s, g, at, stride, rows, cols);
}

static void sum_modulated_rows(const channels_last_gradient *g, column_sums s, const gradient_columns *p, size_t at,
                               size_t stride, size_t rows, size_t cols)
{
    for (size_t c = 0; c < cols; c += TILE_WIDTH) {
        gradient_columns q = columns_from(*p, c);
        sum_tile(sums_from(s, c), g, &q, at + c, stride, rows, cols - c < TILE_WIDTH ? cols - c : TILE_WIDTH);
    }
}

static channels_first_gradient geometry(size_t batch, size_t channels, size_t spatial, size_t groups)
{
    return (channels_first_gradient){
        .samples = groups ? batch : 1,
        .groups = groups ? groups : channels,
        .per_group = groups ? channels / groups : 1,
        .spatial = spatial,
        .shape = {.runs = groups ? 1 : batch, .length = spatial, .stride = channels * spatial, .centred = true}};
}

size_t CN(spade_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last)
{
    if (!last)
        return channels_first_gradient_workspace(geometry(batch, channels, spatial, groups));
    return groups ? channels_last_gradient_workspace(batch, spatial, channels, groups)
                  : channels_last_gradient_workspace(1, batch * spatial, channels, channels);
}

void CN(spade_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *mean,
                        const real *rstd, const real *gamma, cnorm_strides strides, size_t batch, size_t channels,
                        size_t spatial, size_t groups, double gamma_offset, bool last, cn_work work, void *workspace)
{
    element_weights e = {make_modulation(gamma, strides, batch, channels, spatial, last), (real)gamma_offset, dgamma,
                         dbeta};
    if (last) {
        channels_last_gradient job = {.dx = dx,
                                      .dy = dy,
                                      .x = x,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .samples = groups ? batch : 1,
                                      .rows = groups ? spatial : batch * spatial,
                                      .channels = channels,
                                      .groups = groups ? groups : channels,
                                      .work = work,
                                      .elements = &e,
                                      .element_sums = sum_modulated_rows,
                                      .element_rows = write_modulated_rows};
        channels_last_backward(&job, workspace);
        return;
    }
    channels_first_gradient job = geometry(batch, channels, spatial, groups);
    job.dx = dx, job.dy = dy, job.x = x, job.mean = mean, job.rstd = rstd, job.work = work;
    job.elements = &e, job.element_block = modulated_block, job.element_runs = write_modulated_runs;
    channels_first_backward(&job, workspace);
}
