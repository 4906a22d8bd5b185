/* Instance norm whose scale and shift belong to a channel of one sample, and are not rounded: AdaIN, and the gradient of
 * its style.
 *
 *     y = (hat * scale + shift) * 2^power,   hat = (x - mean) * rstd
 *
 * power is 0 but where scale, or its product with hat, could leave the range of acc. rstd is that of x, or a known one;
 * the mean is always taken from x, since the rounding of a saved one is worth |mean| / std units.
 * Passes, split and determinism as in instance norm (groups.h, channels_last.h).
 */
#ifndef CN_RESTYLE_H
#define CN_RESTYLE_H

#include "channels_last.h"
#include "groups.h"

/* x[batch, channels, spatial], or with channels last. */
typedef struct {
    const real *x;
    size_t batch, channels, spatial;
    bool last;
} channel_maps;

/* Of each channel of each sample. */
typedef struct {
    acc *scale, *shift, *power;
} styles;

static inline size_t styles_size(size_t count) { return 3 * count * sizeof(acc); }

static inline styles place_styles(void *memory, size_t count)
{
    acc *a = memory;
    return (styles){a, a + count, a + 2 * count};
}

typedef struct {
    real *y, *mean, *rstd; /* statistics may be NULL */
    channel_maps maps;
    const real *known_rstd; /* (batch * channels,) or NULL */
    styles styles;
    acc eps;
    cn_work work;
} restyling;

typedef struct {
    groups base; /* first: the driver hands back a pointer to it */
    const restyling *job;
} restyled_groups;

typedef struct {
    channels_last base; /* first */
    const restyling *job;
} restyled_columns;

static inline size_t own_parameter(const groups *g, size_t group)
{
    (void)g;
    return group;
}

/* Channels first: each map a group. */
static inline groups map_groups(channel_maps m)
{
    size_t n = m.spatial;
    return (groups){.x = m.x,
                    .count = m.batch * m.channels,
                    .stride = n,
                    .shape = {.runs = 1, .length = n, .stride = n, .centred = true},
                    .careful = {n, n, 0, 1, 1, 1},
                    .parameter = own_parameter};
}

static inline channels_last map_columns(channel_maps m)
{
    return (channels_last){
        .x = m.x, .samples = m.batch, .rows = m.spatial, .channels = m.channels, .groups = m.channels};
}

static inline size_t maps_workspace(channel_maps m)
{
    groups g = map_groups(m);
    return m.last ? channels_last_workspace(m.batch, m.spatial, m.channels) : groups_workspace(g.count, g.shape);
}

/* A run of a map whose scale, or its product with rstd, is out of the range of `real`. */
CN_NOINLINE static void restyle_slowly(real *y, const real *x, size_t n, const normaliser *k, acc rstd, styles s,
                                       size_t map)
{
    for (size_t i = 0; i < n; i++) {
        acc hat = (((acc)x[i] - (acc)k->hi) - (acc)k->lo) * rstd;
        y[i] = (real)ldexp(hat * s.scale[map] + s.shift[map], (int)s.power[map]);
    }
}

static void restyle_run(const groups *g, size_t map, const normaliser *k, size_t at, size_t start, size_t n,
                        size_t ahead)
{
    (void)start;
    const restyling *job = ((const restyled_groups *)g)->job;
    styles s = job->styles;
    acc rstd = job->known_rstd ? (acc)job->known_rstd[map] : k->rstd_acc;
    real scale;
    if (s.power[map] == 0 && scale_of(rstd, job->known_rstd ? 0 : k->rstd_lo, s.scale[map], &scale))
        affine_scalars(g->y + at, g->x + at, n, k->hi, scale, shift_of(k->lo, scale, s.shift[map]), g->work.stream,
                       ahead);
    else
        restyle_slowly(g->y + at, g->x + at, n, k, rstd, s, map);
}

/* A whole map, of which the careful statistics are known. */
static void restyle_carefully(const restyling *job, real *y, const real *x, const wide_group *shape,
                              const wide_stats *w, size_t map)
{
    styles s = job->styles;
    wide_scale hat = {1, w->rstd, 1, 0};
    if (job->known_rstd)
        hat = scale_of_hat(job->known_rstd[map], w);
    for (size_t i = 0; i < shape->count; i++) {
        size_t at = wide_at(shape, i);
        y[at] = (real)ldexp(wide_hat(w, &hat, x[at]) * s.scale[map] + s.shift[map], (int)s.power[map]);
    }
}

static void restyle_group(const groups *g, size_t map, const wide_stats *w)
{
    size_t at = map * g->stride;
    restyle_carefully(((const restyled_groups *)g)->job, g->y + at, g->x + at, &g->careful, w, map);
}

static void restyle_column(const channels_last *g, size_t sample, size_t channel, const wide_group *shape,
                           const wide_stats *w)
{
    size_t at = sample * g->rows * g->channels + channel;
    restyle_carefully(((const restyled_columns *)g)->job, g->y + at, g->x + at, shape, w,
                      sample * g->channels + channel);
}

static void restyle_affine(const channels_last *g, size_t sample, size_t first, size_t n, row_parameters *p)
{
    const restyling *job = ((const restyled_columns *)g)->job;
    size_t map = sample * g->channels + first;
    const acc *scale = job->styles.scale + map, *shift = job->styles.shift + map, *power = job->styles.power + map;
    for (size_t c = 0; c < (job->known_rstd ? n : 0); c++)
        p->rstd[c] = job->known_rstd[map + c], p->rstd_lo[c] = 0;
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        p->kept[c] |= !scale_of(p->rstd[c], p->rstd_lo[c], scale[c], &p->scale[c]) | (power[c] != 0);
        p->shift[c] = shift_of(p->lo[c], p->scale[c], shift[c]);
    }
}

static inline void restyle(const restyling *job, void *workspace)
{
    if (job->maps.last) {
        restyled_columns r = {map_columns(job->maps), job};
        r.base.y = job->y, r.base.mean = job->mean, r.base.rstd = job->rstd, r.base.eps = job->eps;
        r.base.work = job->work, r.base.affine = restyle_affine, r.base.careful_output = restyle_column;
        normalise_channels_last(&r.base, workspace);
    } else {
        restyled_groups r = {map_groups(job->maps), job};
        r.base.y = job->y, r.base.mean = job->mean, r.base.rstd = job->rstd, r.base.eps = job->eps;
        r.base.work = job->work, r.base.apply = restyle_run, r.base.careful_output = restyle_group;
        normalise_groups(&r.base, workspace);
    }
}

#endif
