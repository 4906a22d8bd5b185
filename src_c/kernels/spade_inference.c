/* SPADE with fixed statistics of each channel, forward and backward: every element stands alone.
 *
 *     y = (x - mean) * rstd * (offset + gamma) + beta,   rstd = 1 / sqrt(var + eps)
 *     dx = dy * (offset + gamma) * rstd,   dgamma = dy * (x - mean) * rstd,   dbeta = dy
 *
 * Passes: one, 4S and 6S. Split: parts of the whole array, so nothing to order. Mean and rstd are broadcast arrays like gamma
 * and beta (modulation.h). A run whose numbers leave the range where the products are safe is computed again, each number as
 * a mantissa and an exponent.
 */
#include "../parallel.h"
#include "frozen_gradient.h"
#include "kernels.h"
#include "modulation.h"
#include "normaliser.h"
#include "span.h"
#include "stream.h"

#define TASK_ELEMENTS 16384

typedef struct {
    real *y; /* forward */
    const real *x, *dy;
    real *dx, *dgamma, *dbeta; /* backward; each may be NULL */
    modulation mean, rstd, gamma, beta;
    real offset;
    size_t n;
    cn_work work;
} frozen;

/* What a run of at most STREAM_RUN elements is computed with. */
typedef struct {
    const real *mean, *rstd, *gamma;
    real buffers[3][STREAM_RUN];
} frozen_run;

static void begin_run(frozen_run *r, const frozen *g, size_t at, size_t n)
{
    r->mean = modulation_run(&g->mean, at, n, r->buffers[0]);
    r->rstd = modulation_run(&g->rstd, at, n, r->buffers[1]);
    r->gamma = modulation_run(&g->gamma, at, n, r->buffers[2]);
}

/* (x - mean) * rstd, of halves where the difference overflows. */
static parts frozen_hat(real x, real mean, real rstd)
{
    acc distance = (acc)x - (acc)mean;
    bool halve = fabs(distance) > DBL_MAX && fabs((acc)x) <= DBL_MAX;
    parts p = multiply_parts(split_parts(halve ? (acc)x * 0.5 - (acc)mean * 0.5 : distance), split_parts(rstd));
    p.exponent += halve;
    return p;
}

static inline void store_run(real *to, const real *from, size_t n, cn_work work)
{
    if (work.stream)
        stream_out(to, from, n);
    else
        memcpy(to, from, n * sizeof(real));
}

static void modulate_frozen(const frozen *g, size_t at, size_t n)
{
    real betas[STREAM_RUN], y[STREAM_RUN];
    frozen_run r;
    begin_run(&r, g, at, n);
    const real *x = g->x + at, *beta = modulation_run(&g->beta, at, n, betas), offset = g->offset;
    int outside = 0;
#pragma omp simd reduction(| : outside)
    for (size_t i = 0; i < n; i++) {
        y[i] = (x[i] - r.mean[i]) * r.rstd[i] * (offset + r.gamma[i]) + beta[i];
        outside |= !(y[i] <= (real)REAL_MAX && y[i] >= -(real)REAL_MAX);
    }
    for (size_t i = 0; i < (outside ? n : 0); i++) {
        parts p = multiply_parts(frozen_hat(x[i], r.mean[i], r.rstd[i]), split_parts(offset + r.gamma[i]));
        y[i] = (real)(ldexp(p.mantissa, p.exponent) + (acc)beta[i]);
    }
    store_run(g->y + at, y, n, g->work);
}

/* Whether a product of two numbers that are not 0 has all its digits. */
CN_INLINE int is_normal(real product) { return (product >= (real)REAL_MIN) | (product <= -(real)REAL_MIN); }
CN_INLINE int is_finite(real v) { return (v <= (real)REAL_MAX) & (v >= -(real)REAL_MAX); }

static void frozen_dx(const frozen *g, const frozen_run *r, size_t at, size_t n)
{
    const real *dy = g->dy + at, offset = g->offset;
    real dx[STREAM_RUN];
    int outside = 0;
#pragma omp simd reduction(| : outside)
    for (size_t i = 0; i < n; i++) {
        real weight = offset + r->gamma[i], product = dy[i] * weight;
        dx[i] = product * r->rstd[i];
        outside |= (!is_finite(dx[i])) | ((!is_normal(product)) & (dy[i] != 0) & (weight != 0));
    }
    for (size_t i = 0; i < (outside ? n : 0); i++) {
        parts p = multiply_parts(split_parts(dy[i]), split_parts(offset + r->gamma[i]));
        p = multiply_parts(p, split_parts(r->rstd[i]));
        dx[i] = (real)ldexp(p.mantissa, p.exponent);
    }
    store_run(g->dx + at, dx, n, g->work);
}

static void frozen_dgamma(const frozen *g, const frozen_run *r, size_t at, size_t n)
{
    const real *dy = g->dy + at, *x = g->x + at;
    real dgamma[STREAM_RUN];
    int outside = 0;
#pragma omp simd reduction(| : outside)
    for (size_t i = 0; i < n; i++) {
        real d = x[i] - r->mean[i], hat = d * r->rstd[i];
        dgamma[i] = dy[i] * hat;
        outside |= (!is_finite(dgamma[i])) | ((!is_normal(hat)) & (d != 0) & (r->rstd[i] != 0));
    }
    for (size_t i = 0; i < (outside ? n : 0); i++) {
        parts p = multiply_parts(split_parts(dy[i]), frozen_hat(x[i], r->mean[i], r->rstd[i]));
        dgamma[i] = (real)ldexp(p.mantissa, p.exponent);
    }
    store_run(g->dgamma + at, dgamma, n, g->work);
}

static void part_of_array(void *job, size_t task)
{
    const frozen *g = job;
    size_t at = task * TASK_ELEMENTS, end = at + TASK_ELEMENTS < g->n ? at + TASK_ELEMENTS : g->n;
    const real *to = g->y ? g->y : g->dx ? g->dx : g->dgamma ? g->dgamma : g->dbeta;
    for (size_t n; at < end; at += n) {
        n = stream_run(to + at, end - at);
        if (g->y) {
            modulate_frozen(g, at, n);
            continue;
        }
        frozen_run r;
        begin_run(&r, g, at, n);
        copy_run(g->dbeta, g->dy, at, n, g->work);
        if (g->dgamma)
            frozen_dgamma(g, &r, at, n);
        if (g->dx) /* which may be dy */
            frozen_dx(g, &r, at, n);
    }
    stream_fence();
}

/* A statistic of each channel. */
static modulation by_channel(const real *values, size_t batch, size_t channels, size_t spatial, bool last)
{
    return make_modulation(values, (cnorm_strides){.channel = 1}, batch, channels, spatial, last);
}

size_t CN(spade_inference_workspace)(size_t channels) { return channels * sizeof(acc); }

void CN(spade_inference)(real *y, const real *x, const real *mean, const real *var, const real *gamma,
                         cnorm_strides gamma_strides, const real *beta, cnorm_strides beta_strides, size_t batch,
                         size_t channels, size_t spatial, double eps, double gamma_offset, bool last, cn_work work,
                         void *workspace)
{
    real *rstd = workspace;
    for (size_t c = 0; c < channels; c++) {
        acc r, r_lo, quarter = (acc)var[c] / 4 + eps / 4; /* the sum itself can overflow */
        if (is_fast(variance_and_rstd(var[c], 0, 1, eps, &r, &r_lo)))
            rstd[c] = (real)(r + r_lo);
        else
            rstd[c] = (real)(var[c] == 0 && eps == 0 ? 0 : quarter > 1 ? 0.5 / sqrt(quarter) : 1 / sqrt(var[c] + eps));
    }
    frozen g = {.y = y,
                .x = x,
                .mean = by_channel(mean, batch, channels, spatial, last),
                .rstd = by_channel(rstd, batch, channels, spatial, last),
                .gamma = make_modulation(gamma, gamma_strides, batch, channels, spatial, last),
                .beta = make_modulation(beta, beta_strides, batch, channels, spatial, last),
                .offset = (real)gamma_offset,
                .n = batch * channels * spatial,
                .work = work};
    cn_parallel_for(divide_up(g.n, TASK_ELEMENTS), work, part_of_array, &g);
}

void CN(spade_inference_backward)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x, const real *mean,
                                  const real *rstd, const real *gamma, cnorm_strides strides, size_t batch,
                                  size_t channels, size_t spatial, double gamma_offset, bool last, cn_work work)
{
    frozen g = {.dx = dx,
                .dgamma = dgamma,
                .dbeta = dbeta,
                .dy = dy,
                .x = x,
                .mean = by_channel(mean, batch, channels, spatial, last),
                .rstd = by_channel(rstd, batch, channels, spatial, last),
                .gamma = make_modulation(gamma, strides, batch, channels, spatial, last),
                .offset = (real)gamma_offset,
                .n = batch * channels * spatial,
                .work = work};
    cn_parallel_for(divide_up(g.n, TASK_ELEMENTS), work, part_of_array, &g);
}
