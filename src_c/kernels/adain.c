/* Adaptive instance norm (Huang, Belongie 2017), forward.
 *
 *     y[n, c, s] = (content[n, c, s] - mean_c[n, c]) / std_c[n, c] * std_s[n, c] + mean_s[n, c]
 *     std = sqrt(var + eps), var = M2 / n or, unbiased, M2 / (n - 1) (0 of a single element), n that of either array
 *
 * With f = (n - 1) / n for unbiased variances and 1 for others, var + eps = (M2 / n + f * eps) / f: so the content is
 * instance-normalised with eps * f, and given the scale std_s * sqrt(f) and the shift mean_s (restyle.h).
 * Passes: style is read once for its moments, content once from memory for its own and again from the cache while y is
 * written: 2S and the size of the style.
 * Split and determinism as in instance norm, first for the style, then for the content. Style and content of the same
 * numbers have the same moments, so their std cancel but for two roundings.
 */
#include "kernels.h"
#include "restyle.h"

/* (n - 1) / n, by which biased variances are smaller than unbiased ones. */
static inline acc freedom(size_t n, bool unbiased) { return unbiased && n > 1 ? (acc)(n - 1) / (acc)n : 1; }

/* The first factor over the second: exactly 1 of equal sizes. */
static inline acc freedom_ratio(size_t n, size_t m, bool unbiased)
{
    acc over_n = unbiased && n > 1 ? (acc)(n - 1) : (acc)n, over_m = unbiased && m > 1 ? (acc)(m - 1) : (acc)m;
    return over_n * (acc)m / ((acc)n * over_m);
}

static void no_output(const groups *g, size_t map, const normaliser *k, size_t at, size_t start, size_t n, size_t ahead)
{
    (void)g, (void)map, (void)k, (void)at, (void)start, (void)n, (void)ahead;
}

static void no_affine(const channels_last *g, size_t sample, size_t first, size_t n, row_parameters *p)
{
    (void)g, (void)sample, (void)first, (void)n, (void)p;
}

/* Mean and variance of x / 2^power. */
static void keep_moments(styles s, size_t map, const wide_stats *w)
{
    s.shift[map] = w->mean + w->mean_lo;
    s.scale[map] = w->square;
    s.power[map] = w->square == w->square ? -(ilogb(w->scale1) + ilogb(w->scale2)) : 0;
}

static void keep_group(const groups *g, size_t map, const wide_stats *w)
{
    keep_moments(((const restyled_groups *)g)->job->styles, map, w);
}

static void keep_column(const channels_last *g, size_t sample, size_t channel, const wide_group *shape,
                        const wide_stats *w)
{
    (void)shape;
    keep_moments(((const restyled_columns *)g)->job->styles, sample * g->channels + channel, w);
}

/* Of each map of the style its mean into shift and its biased variance into scale, both of x / 2^power. */
static void take_moments(const restyling *job, void *workspace)
{
    styles s = job->styles;
    memset(s.power, 0, job->maps.batch * job->maps.channels * sizeof(acc));
    if (job->maps.last) {
        restyled_columns r = {map_columns(job->maps), job};
        r.base.mean_acc = s.shift, r.base.variance = s.scale, r.base.eps = job->eps, r.base.work = job->work;
        r.base.affine = no_affine, r.base.careful_output = keep_column;
        normalise_channels_last(&r.base, workspace);
    } else {
        restyled_groups r = {map_groups(job->maps), job};
        r.base.mean_acc = s.shift, r.base.variance = s.scale, r.base.eps = job->eps, r.base.work = job->work;
        r.base.apply = no_output, r.base.careful_output = keep_group;
        normalise_groups(&r.base, workspace);
    }
}

/* Where a standard deviation and its products are safe without a power of two. */
#define STD_MIN 0x1p-500
#define STD_MAX 0x1p+500

/* From a map's moments its statistics, and the scale: sqrt(ratio) times the biased sqrt(variance + eps). */
static void finish_style(styles s, size_t map, acc eps, acc style_freedom, acc ratio, real *mean, real *rstd)
{
    int power = (int)s.power[map];
    acc variance = s.scale[map] + ldexp(eps, -2 * power), whole_mean = ldexp(s.shift[map], power);
    if (s.scale[map] == 0) /* eps alone, which may have vanished in the scaling */
        variance = ldexp(eps, -2 * (power = 0));
    acc std = ldexp(sqrt(variance * ratio), power);
    if (mean)
        mean[map] = (real)whole_mean;
    if (rstd)
        rstd[map] = variance == 0 ? 0 : (real)ldexp(sqrt(style_freedom) / sqrt(variance), -power);
    bool plain = std == 0 || (std >= STD_MIN && std <= STD_MAX) || std != std;
    s.scale[map] = plain ? std : sqrt(variance * ratio);
    s.shift[map] = plain ? whole_mean : s.shift[map];
    s.power[map] = plain ? 0 : power;
}

size_t CN(adain_workspace)(size_t batch, size_t channels, size_t spatial, size_t style_spatial, bool last,
                           bool style_last)
{
    size_t a = maps_workspace((channel_maps){NULL, batch, channels, spatial, last});
    size_t b = maps_workspace((channel_maps){NULL, batch, channels, style_spatial, style_last});
    return styles_size(batch * channels) + (a > b ? a : b);
}

void CN(adain_forward)(real *y, real *content_mean, real *content_rstd, real *style_mean, real *style_rstd,
                       const real *content, const real *style, size_t batch, size_t channels, size_t spatial,
                       size_t style_spatial, double eps, bool unbiased, bool last, bool style_last, cn_work work,
                       void *workspace)
{
    size_t count = batch * channels;
    acc f = freedom(spatial, unbiased), style_f = freedom(style_spatial, unbiased);
    acc ratio = freedom_ratio(spatial, style_spatial, unbiased);
    void *rest = (unsigned char *)workspace + styles_size(count);
    restyling job = {.maps = {style, batch, channels, style_spatial, style_last},
                     .styles = place_styles(workspace, count),
                     .eps = style_f * eps,
                     .work = work};
    take_moments(&job, rest);
    for (size_t map = 0; map < count; map++)
        finish_style(job.styles, map, job.eps, style_f, ratio, style_mean, style_rstd);
    job.maps = (channel_maps){content, batch, channels, spatial, last};
    job.y = y, job.mean = content_mean, job.rstd = content_rstd, job.eps = f * eps;
    restyle(&job, rest);
    for (size_t map = 0; map < (content_rstd ? count : 0); map++)
        content_rstd[map] = (real)((acc)content_rstd[map] * sqrt(f));
}
