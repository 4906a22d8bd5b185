/* Batch norm with fixed statistics: an affine map of each channel.
 *
 *     y[n, c, s] = (x[n, c, s] - mean[c]) * scale[c] + bias[c],   scale = weight / sqrt(var + eps)
 *
 * Passes, split and determinism: fixed_statistics.h.
 * A channel whose mean, variance or scale leaves the range where that is safe is computed in acc, a product at a time.
 */
#include "fixed_statistics.h"
#include "kernels.h"

/* Below the half of the last place of REAL_MAX: subtracting such a mean cannot overflow. */
#define MEAN_MAX (REAL_MAX / (sizeof(real) == 4 ? 0x1p+26 : 0x1p+55))

typedef struct {
    fixed_statistics base; /* first: the driver hands back a pointer to it */
    const real *mean;
} inference;

size_t CN(batch_norm_inference_workspace)(size_t batch, size_t channels, size_t spatial, bool last)
{
    return fixed_statistics_workspace(batch, channels, spatial, last);
}

static void prepare_channels(inference *job, const real *var, acc eps)
{
    fixed_statistics *g = &job->base;
    row_parameters *p = &g->parameters;
#pragma omp simd
    for (size_t c = 0; c < g->channels; c++) {
        acc variance = variance_and_rstd(var[c], 0, 1, eps, &p->rstd[c], &p->rstd_lo[c]);
        p->hi[c] = job->mean[c];
        p->lo[c] = 0;
        p->kept[c] = !(is_fast(variance) && fabs((acc)job->mean[c]) <= MEAN_MAX);
    }
    set_affine(p, g->weight, g->bias, g->channels);
    g->kept = any_kept(p, g->channels);
    for (size_t c = 0; g->kept && c < g->channels; c++)
        if (p->kept[c]) {
            acc quarter = (acc)var[c] / 4 + eps / 4; /* the sum itself can overflow */
            p->rstd[c] = var[c] == 0 && eps == 0 ? 0 : fabs(quarter) > 1 ? 0.5 / sqrt(quarter) : 1 / sqrt(var[c] + eps);
        }
}

/* In acc. The difference is taken of halves where it could itself overflow, and the factors are multiplied as fractions,
 * their exponents apart: only the result can leave the range. */
CN_NOINLINE static void careful_run(const fixed_statistics *g, size_t at, size_t n, size_t step, size_t channel)
{
    acc mean = ((const inference *)g)->mean[channel], bias = g->bias ? g->bias[channel] : 0;
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

void CN(batch_norm_inference)(real *y, const real *x, const real *mean, const real *var, const real *weight,
                              const real *bias, size_t batch, size_t channels, size_t spatial, double eps, bool last,
                              cn_work work, void *workspace)
{
    if (batch * channels * spatial == 0)
        return;
    inference job = {.base = {.y = y,
                              .x = x,
                              .weight = weight,
                              .bias = bias,
                              .batch = batch,
                              .channels = channels,
                              .spatial = spatial,
                              .work = work,
                              .careful = careful_run},
                     .mean = mean};
    place_fixed(&job.base, last, workspace);
    prepare_channels(&job, var, eps);
    write_fixed(&job.base, last);
}
