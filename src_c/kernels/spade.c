/* SPADE (Park, Liu, Wang, Zhu 2019), forward: a norm without parameters, then a scale and a shift for each element.
 *
 *     y = (x - mean) * rstd * (offset + gamma) + beta
 *
 * mean and rstd over the groups of a sample, as in group norm (and so instance and layer norm), or over the batch, as in batch
 * norm, which moves the running statistics. Gamma and beta may be broadcast (modulation.h).
 * Passes: those of group and batch norm (groups.h, channels_last.h), whose last one reads gamma and beta on its way: x, gamma
 * and beta are read once and y is written once, 4S, where a group (channels last: a sample) fits in the cache. The normalised
 * array is never stored. Split and determinism are theirs too; each element takes the same operations wherever its gamma lies.
 */
#include "channels_first.h"
#include "channels_last.h"
#include "kernels.h"
#include "modulation.h"
#include "running.h"

typedef struct {
    modulation gamma, beta;
    real offset;
} scale_and_shift;

typedef struct {
    channels_first base; /* first: the driver hands back a pointer to it */
    scale_and_shift m;
} spade_first;

typedef struct {
    channels_last base; /* first, as above */
    scale_and_shift m;
} spade_last;

/* The second word of the mean goes with beta: so no rounding of it adds to those of xhat.
 *
 *     y = (x - hi) * rstd * weight + (beta + shift * weight),   weight = offset + gamma, shift = -lo * rstd
 *
 * One group. */
static inline void modulate_run(real *y, const real *x, size_t n, const normaliser *k, const real *gamma,
                                const real *beta, real offset)
{
    const real hi = k->hi, rstd = k->rstd, shift = shift_of(k->lo, rstd, 0);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        real weight = offset + gamma[i];
        y[i] = (x[i] - hi) * rstd * weight + (beta[i] + shift * weight);
    }
}

static void apply_modulated(const groups *g, size_t parameter, const normaliser *k, size_t at, size_t start, size_t n,
                            size_t ahead)
{
    const scale_and_shift *s = &((const spade_first *)g)->m;
    real buffer[STREAM_RUN], gammas[STREAM_RUN], betas[STREAM_RUN];
    (void)parameter, (void)start;
    for (size_t end = at + n, m; at < end; at += m) {
        m = stream_run(g->y + at, end - at);
        const real *gamma = modulation_run(&s->gamma, at, m, gammas), *beta = modulation_run(&s->beta, at, m, betas);
        if (g->work.stream) {
            fetch_far(g->x + at, m, ahead);
            modulate_run(buffer, g->x + at, m, k, gamma, beta, s->offset);
            stream_out(g->y + at, buffer, m);
        } else {
            fetch_near(g->x + at, m, ahead);
            modulate_run(g->y + at, g->x + at, m, k, gamma, beta, s->offset);
        }
    }
}

/* Columns side by side, each with numbers of its own: without weights, scale is rstd. */
static inline void modulate_columns(real *y, const real *x, size_t n, row_parameters p, const real *gamma,
                                    const real *beta, real offset)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        real weight = offset + gamma[c];
        y[c] = (x[c] - p.hi[c]) * p.scale[c] * weight + (beta[c] + p.shift[c] * weight);
    }
}

/* n elements of a row, in a buffer first where they are streamed or some columns are kept. */
static void write_modulated_run(const channels_last *g, size_t at, size_t n, row_parameters p, bool kept)
{
    const scale_and_shift *s = &((const spade_last *)g)->m;
    real buffer[STREAM_RUN], gammas[STREAM_RUN], betas[STREAM_RUN];
    const real *gamma = modulation_run(&s->gamma, at, n, gammas), *beta = modulation_run(&s->beta, at, n, betas);
    bool direct = !kept && !g->work.stream;
    modulate_columns(direct ? g->y + at : buffer, g->x + at, n, p, gamma, beta, s->offset);
    if (!direct && !kept)
        stream_out(g->y + at, buffer, n);
    for (size_t c = 0; c < (kept ? n : 0); c++)
        g->y[at + c] = p.kept[c] ? g->y[at + c] : buffer[c];
}

static void write_modulated(const channels_last *g, size_t at, size_t stride, size_t rows, size_t cols,
                            const row_parameters *p, bool kept)
{
    for (size_t r = 0; r < rows; r++, at += stride)
        for (size_t c = 0, n; c < cols; c += n) {
            n = stream_run(g->y + at + c, cols - c);
            write_modulated_run(g, at + c, n, parameters_from(*p, c), kept);
        }
}

/* The careful way for a group from element `at` on. */
static void modulate_carefully(real *y, const real *x, size_t at, const wide_group *group, const wide_stats *w,
                               const scale_and_shift *s)
{
    for (size_t i = 0; i < group->count; i++) {
        size_t e = at + wide_at(group, i);
        acc weight = (acc)(real)(s->offset + *modulation_of(&s->gamma, e));
        y[e] = (real)(wide_centred(w, x[e]) * w->rstd * weight + (acc)*modulation_of(&s->beta, e));
    }
}

static void apply_carefully_first(const groups *g, size_t group, const wide_stats *w)
{
    modulate_carefully(g->y, g->x, group * g->stride, &g->careful, w, &((const spade_first *)g)->m);
}

static void apply_carefully_last(const channels_last *g, size_t sample, size_t group, const wide_group *shape,
                                 const wide_stats *w)
{
    size_t at = sample * g->rows * g->channels + group * (g->channels / g->groups);
    modulate_carefully(g->y, g->x, at, shape, w, &((const spade_last *)g)->m);
}

size_t CN(spade_workspace)(size_t batch, size_t channels, size_t spatial, size_t groups, bool last)
{
    return 2 * channels * sizeof(acc) + (groups ? CN(group_norm_workspace)(batch, channels, spatial, groups, last)
                                                : CN(batch_norm_workspace)(batch, channels, spatial, last));
}

/* `groups` of each sample, or 0: statistics over the batch. */
void CN(spade_forward)(real *y, real *mean, real *rstd, real *running_mean, real *running_var, const real *x,
                       const real *gamma, cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides,
                       size_t batch, size_t channels, size_t spatial, size_t groups, double eps, double gamma_offset,
                       double momentum, bool unbiased, bool last, cn_work work, void *workspace)
{
    acc *mean_acc = running_mean ? workspace : NULL, *variance = running_mean ? mean_acc + channels : NULL;
    void *rest = (acc *)workspace + 2 * channels;
    scale_and_shift m = {.gamma = make_modulation(gamma, gamma_strides, batch, channels, spatial, last),
                         .beta = make_modulation(beta, beta_strides, batch, channels, spatial, last),
                         .offset = (real)gamma_offset};
    if (last) {
        spade_last job = {.base = {.y = y,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .mean_acc = mean_acc,
                                   .variance = variance,
                                   .x = x,
                                   .samples = groups ? batch : 1,
                                   .rows = groups ? spatial : batch * spatial,
                                   .channels = channels,
                                   .groups = groups ? groups : channels,
                                   .eps = eps,
                                   .work = work,
                                   .write = write_modulated,
                                   .careful_output = apply_carefully_last},
                          .m = m};
        normalise_channels_last(&job.base, rest);
    } else {
        spade_first job = {.base = {.base = {.y = y,
                                             .mean = mean,
                                             .rstd = rstd,
                                             .mean_acc = mean_acc,
                                             .variance = variance,
                                             .x = x,
                                             .eps = eps,
                                             .work = work}},
                           .m = m};
        if (groups)
            per_sample_geometry(&job.base, batch, channels, spatial, groups);
        else
            per_channel_geometry(&job.base, batch, channels, spatial);
        job.base.base.apply = apply_modulated;
        job.base.base.careful_output = apply_carefully_first;
        normalise_groups(&job.base.base, rest);
    }
    if (running_mean)
        move_running(running_mean, running_var, mean_acc, variance, channels, batch * spatial, momentum, unbiased);
}
