/* Adaptive instance norm, backward; derived in docs/backward.md.
 *
 *     hat = (x - mean) / std of either array
 *     dcontent = std_s / std_c * (dy - average(dy) - hat_c * average(dy * hat_c) * n / m)
 *     dstyle = sum(dy) / n_s + hat_s * sum(dy * hat_c) / m_s
 *
 * of each channel of each sample; sums over the content's n elements, m = n - 1 for unbiased variances (of more than one
 * element) and n for others, n_s and m_s those of the style.
 *
 * dcontent is instance norm's gradient with eps * m / n for eps and a weight std_s * sqrt(m / n) for each channel of each
 * sample (see adain.c): channels first, one sample of batch * channels channels (channels_first_gradient.h); channels last,
 * a sample at a time (channels_last_gradient.h, samples.h). Its sums for weight and bias, not yet rounded, are those of
 * dstyle, which is the style normalised with another scale and shift (restyle.h).
 * Passes: 3S of the content's traffic where a channel (channels last: a sample) fits in the cache, else 5S; and 2S of the
 * style's.
 */
#include "channels_first_gradient.h"
#include "channels_last_gradient.h"
#include "kernels.h"
#include "restyle.h"
#include "samples.h"

typedef struct {
    real *dcontent, *dstyle; /* each may be NULL */
    const real *dy, *mean;
    channel_maps content, style;
    cn_work work;
    real *rstd, *weight; /* of instance norm */
    real *sums;          /* (2, batch * channels): rounded, and not used */
    styles styles;       /* at first sum(dy * hat) and sum(dy) of instance norm, and how much weight is lifted */
} adain_gradient;

static acc elements_less(size_t n, bool unbiased) { return unbiased && n > 1 ? (acc)(n - 1) : (acc)n; }

/* Element i of a map is at + i * step. */
static wide_group map_shape(channel_maps m, size_t map, size_t *at)
{
    size_t c = map % m.channels;
    *at = m.last ? (map - c) * m.spatial + c : map * m.spatial;
    return (wide_group){m.spatial, m.spatial, 0, m.last ? m.channels : 1, 1, 1};
}

/* Whether an rstd tells its standard deviation. */
static bool is_known(real rstd) { return rstd == 0 || rstd != rstd || (rstd >= REAL_MIN && rstd <= REAL_MAX); }

/* A weight that `real` cannot hold, or not with all its digits, is lifted by a power of two, and dcontent lowered
 * afterwards. */
#define LIFT (sizeof(real) == 4 ? 24 : 53)
#define LEAST_EXPONENT (sizeof(real) == 4 ? FLT_MIN_EXP : DBL_MIN_EXP)
#define MOST_EXPONENT ((sizeof(real) == 4 ? FLT_MAX_EXP : DBL_MAX_EXP) - 2)

/* std_s * sqrt(m / n) * 2^lift from the saved rstd. Where that is no normal number std_s is taken from the style, whose
 * spread is far from any eps then; ratio is m / n of the content over that of the style. */
static acc style_weight(real rstd, channel_maps m, size_t map, acc root, acc ratio, int *lift)
{
    *lift = 0;
    if (!(rstd > 0)) /* or not a number */
        return (acc)rstd;
    int exponent = 0, own;
    acc weight;
    if (is_known(rstd)) {
        weight = root / frexp((acc)rstd, &own);
        exponent = -own;
    } else {
        size_t at;
        wide_group shape = map_shape(m, map, &at);
        wide_stats w = wide_statistics(m.x + at, &shape, 0, true);
        weight = sqrt(w.square * ratio);
        exponent = -(ilogb(w.scale1) + ilogb(w.scale2));
    }
    weight = frexp(weight, &own);
    exponent += own;
    *lift = exponent < LEAST_EXPONENT ? LIFT : exponent > MOST_EXPONENT ? -2 : 0;
    return ldexp(weight, exponent + *lift);
}

static void lower_content(const adain_gradient *g)
{
    for (size_t map = 0; map < (g->dcontent ? g->content.batch * g->content.channels : 0); map++) {
        size_t at;
        wide_group shape = map_shape(g->content, map, &at);
        real factor = (real)ldexp(1, -(int)g->styles.power[map]);
        for (size_t i = 0; i < (factor == 1 ? 0 : shape.count); i++)
            g->dcontent[at + wide_at(&shape, i)] *= factor;
    }
}

static channels_first_gradient gradient_of_maps(size_t count, size_t spatial)
{
    return (channels_first_gradient){.samples = 1,
                                     .groups = count,
                                     .per_group = 1,
                                     .spatial = spatial,
                                     .shape = {.runs = 1, .length = spatial, .stride = spatial, .centred = true}};
}

/* The sums of `count` maps from a pass over them, unrounded; none were taken of empty maps. */
static void take_sums(const adain_gradient *g, const parameter_sums *p, size_t first, size_t count)
{
    for (size_t c = 0; c < (g->dstyle ? count : 0); c++) {
        const acc *sums = p->memory + c;
        acc dy_hat = p->blocks ? sums[0] : 0, dy = p->blocks ? sums[count] : 0;
        if (p->blocks && carried(dy_hat))
            dy_hat += sums[2 * count];
        if (p->blocks && carried(dy))
            dy += sums[3 * count];
        g->styles.scale[first + c] = dy_hat;
        g->styles.shift[first + c] = dy;
    }
}

static void content_first(const adain_gradient *g, void *workspace)
{
    size_t count = g->content.batch * g->content.channels;
    channels_first_gradient job = gradient_of_maps(count, g->content.spatial);
    job.dx = g->dcontent, job.dy = g->dy, job.x = g->content.x, job.mean = g->mean;
    job.rstd = g->rstd, job.weight = g->weight, job.work = g->work;
    if (g->dstyle)
        job.parameters.dweight = g->sums, job.parameters.dbias = g->sums + count;
    channels_first_backward(&job, workspace);
    take_sums(g, &job.parameters, 0, count);
}

static void content_sample(const void *all, size_t sample, cn_work work, void *workspace)
{
    const adain_gradient *g = all;
    size_t channels = g->content.channels, first = sample * channels, at = first * g->content.spatial;
    channels_last_gradient job = {.dx = g->dcontent ? g->dcontent + at : NULL,
                                  .dweight = g->dstyle ? g->sums + 2 * first : NULL,
                                  .dbias = g->dstyle ? g->sums + 2 * first + channels : NULL,
                                  .dy = g->dy + at,
                                  .x = g->content.x + at,
                                  .mean = g->mean + first,
                                  .rstd = g->rstd + first,
                                  .weight = g->weight + first,
                                  .samples = 1,
                                  .rows = g->content.spatial,
                                  .channels = channels,
                                  .groups = channels,
                                  .work = work};
    channels_last_backward(&job, workspace);
    take_sums(g, &job.parameters, first, channels);
}

static size_t sample_workspace(channel_maps m)
{
    return channels_last_gradient_workspace(1, m.spatial, m.channels, m.channels);
}

static size_t content_workspace(channel_maps m)
{
    return m.last ? samples_workspace(m.batch, sample_workspace(m))
                  : channels_first_gradient_workspace(gradient_of_maps(m.batch * m.channels, m.spatial));
}

/* From the sums the scale and shift of the style. Returns whether each rstd is a normal number or 0. */
static bool finish_sums(const adain_gradient *g, const real *style_rstd, acc root, bool unbiased)
{
    size_t n = g->style.spatial;
    acc less = elements_less(n, unbiased), own_root = sqrt(less / (acc)n);
    bool normal = true;
    for (size_t map = 0; map < g->style.batch * g->style.channels; map++) {
        bool known = is_known(style_rstd[map]);
        normal &= known;
        /* An rstd taken from the style again is that of biased variances. */
        g->styles.scale[map] *= root / less * (known ? 1 : own_root);
        g->styles.shift[map] /= (acc)n;
        g->styles.power[map] = 0;
    }
    return normal;
}

size_t CN(adain_backward_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                                    bool style_last)
{
    size_t a = content_workspace((channel_maps){NULL, batch, channels, spatial, last});
    size_t b = maps_workspace((channel_maps){NULL, batch, channels, style_spatial, style_last});
    return styles_size(batch * channels) + 4 * batch * channels * sizeof(real) + (a > b ? a : b);
}

void CN(adain_backward)(real *dcontent, real *dstyle, const real *dy, const real *content, const real *style,
                        const real *content_mean, const real *content_rstd, const real *style_rstd, size_t batch,
                        size_t channels, size_t spatial, size_t style_spatial, bool unbiased, bool last,
                        bool style_last, cn_work work, void *workspace)
{
    size_t count = batch * channels;
    adain_gradient g = {.dcontent = dcontent,
                        .dstyle = dstyle,
                        .dy = dy,
                        .mean = content_mean,
                        .content = {content, batch, channels, spatial, last},
                        .style = {style, batch, channels, style_spatial, style_last},
                        .work = work,
                        .styles = place_styles(workspace, count)};
    g.rstd = (real *)((unsigned char *)workspace + styles_size(count));
    g.weight = g.rstd + count, g.sums = g.weight + count;
    void *rest = g.sums + 2 * count;
    acc freedom = spatial ? elements_less(spatial, unbiased) / (acc)spatial : 1, root = sqrt(freedom);
    acc ratio = freedom / (elements_less(style_spatial, unbiased) / (acc)style_spatial);
    for (size_t map = 0; map < count; map++) {
        int lift;
        g.weight[map] = (real)style_weight(style_rstd[map], g.style, map, root, ratio, &lift);
        g.styles.power[map] = lift;
        g.rstd[map] = (real)((acc)content_rstd[map] / root);
    }
    sample_jobs samples = {.job = &g,
                           .sample = content_sample,
                           .samples = batch,
                           .slot_size = last ? sample_workspace(g.content) : 0,
                           .work = work};
    if (last)
        run_samples(&samples, rest);
    else
        content_first(&g, rest);
    lower_content(&g);
    if (!dstyle)
        return;
    /* The known rstd is used: what this eps does is to let constant maps pass. */
    acc eps = finish_sums(&g, style_rstd, root, unbiased) ? 1 : 0;
    restyling job = {
        .y = dstyle, .maps = g.style, .known_rstd = style_rstd, .styles = g.styles, .eps = eps, .work = work};
    restyle(&job, rest);
}
