/* What the backward pass of one group needs, whatever the norm and the layout.
 *
 *     hat = (x - mean) * rstd - hat_lo      g = dy * weight
 *     dx = rstd * (g - average(g) - hat * average(g * hat))
 *
 * hat_lo is the average of (x - mean) * rstd: what the rounding of the saved mean left, worth |mean| / std units. So the
 * sums are taken with t = (x - mean) * rstd, three together, and hat_lo is taken out of them afterwards:
 *
 *     average(g * hat) = average(g * t) - hat_lo * average(g)
 *
 * Root mean square norms have no mean: hat = t, and neither hat_lo nor average(g).
 */
#ifndef CN_GRADIENT_H
#define CN_GRADIENT_H

#include "moments.h"

/* Sums over a part of a group, and what rounding took from them (of double data). */
typedef struct {
    acc t, g, gt;
    acc t_lo, g_lo, gt_lo;
} gradient_sums;

static inline void add_sums(gradient_sums *a, const gradient_sums *b)
{
    add_to(&a->t, &a->t_lo, b->t);
    add_to(&a->g, &a->g_lo, b->g);
    add_to(&a->gt, &a->gt_lo, b->gt);
    if (sizeof(real) == sizeof(acc))
        a->t_lo += b->t_lo, a->g_lo += b->g_lo, a->gt_lo += b->gt_lo;
}

/* dx = ((g - average) - (t - hat_lo) * slope) * rstd,  or with one number less: (g - offset - t * slope) * rstd. */
typedef struct {
    real mean, rstd;
    real hat_lo, average, slope, offset;
    acc hat_lo_acc;
    bool fast, no_sums; /* no_sums: only if dy is zero as a whole, and not just too small */
} gradient;

/* Where these hold, nothing that matters to a gradient can overflow or be flushed in `real`: the spread is that of a fast
 * forward (is_fast in normaliser.h), and so are the averages, or dy is zero as a whole. Other groups take the careful way
 * of wide_gradient.h. */
#define RSTD_MIN (sizeof(real) == 4 ? 0x1p-60 : 0x1p-495)
#define RSTD_MAX (sizeof(real) == 4 ? 0x1p+50 : 0x1p+450)
#define AVERAGE_MIN (sizeof(real) == 4 ? 0x1p-80 : 0x1p-700)
#define AVERAGE_MAX (sizeof(real) == 4 ? 0x1p+100 : 0x1p+900)

static inline bool gradient_is_fast(acc rstd, acc t, acc average, acc slope)
{
    acc a = fabs(average), b = fabs(slope);
    bool large_enough = a >= AVERAGE_MIN || b >= AVERAGE_MIN || (a == 0 && b == 0);
    return (rstd == 0 || (rstd >= RSTD_MIN && rstd <= RSTD_MAX)) && fabs(t) <= AVERAGE_MAX && a <= AVERAGE_MAX &&
           b <= AVERAGE_MAX && large_enough;
}

static inline bool all_zero(const real *dy, size_t n)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t i = 0; i < n; i++)
        any |= dy[i] != 0;
    return !any;
}

/* A group of `count` elements. */
static inline gradient make_gradient(const gradient_sums *s, acc count, real mean, real rstd, bool centred)
{
    gradient k = {.mean = mean, .rstd = rstd};
    acc average = 0, slope = (s->gt + s->gt_lo) / count;
    if (centred) {
        k.hat_lo_acc = (s->t + s->t_lo) / count;
        average = (s->g + s->g_lo) / count;
        slope -= k.hat_lo_acc * average;
    }
    k.fast = gradient_is_fast(rstd, k.hat_lo_acc, average, slope);
    k.no_sums = average == 0 && slope == 0;
    k.hat_lo = (real)k.hat_lo_acc;
    k.average = (real)average;
    k.slope = (real)slope;
    k.offset = (real)(average - k.hat_lo_acc * slope);
    return k;
}

/* The three sums, in lanes (see moments.h). */
typedef struct {
    acc t[LANES], g[LANES], gt[LANES], t_lost[LANES], g_lost[LANES], gt_lost[LANES];
} gradient_lanes;

/* One vector joins the lanes; with `some`, only the lanes where `keep` is 1 and not 0. `weighted`, `centred` and `some` are
 * constants: see add_run. */
CN_INLINE void add_vector(gradient_lanes *s, const real *dy, const real *x, const real *weight, const real *keep,
                          real mean, real rstd, real offset, const bool weighted, const bool centred, const bool some)
{
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        real t = centred ? (x[l] - mean) * rstd : x[l] * rstd;
        real g = !weighted ? dy[l] : centred ? dy[l] * weight[l] : dy[l] * (offset + weight[l]);
        if (some)
            t *= keep[l], g *= keep[l];
        if (centred) {
            add_to(&s->t[l], &s->t_lost[l], (acc)t);
            add_to(&s->g[l], &s->g_lost[l], (acc)g);
        }
        add_to(&s->gt[l], &s->gt_lost[l], (acc)(g * t));
    }
}

/* Four vectors are added in a tree in `real` first. */
CN_INLINE void add_four_vectors(gradient_lanes *s, const real *dy, const real *x, const real *weight, real mean,
                                real rstd, real offset, const bool weighted, const bool centred)
{
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const int m = l + LANES, o = l + 2 * LANES, q = l + 3 * LANES;
        real t0, t1, t2, t3, g0 = dy[l], g1 = dy[m], g2 = dy[o], g3 = dy[q];
        if (centred) {
            t0 = (x[l] - mean) * rstd, t1 = (x[m] - mean) * rstd;
            t2 = (x[o] - mean) * rstd, t3 = (x[q] - mean) * rstd;
            if (weighted)
                g0 *= weight[l], g1 *= weight[m], g2 *= weight[o], g3 *= weight[q];
            add_to(&s->t[l], &s->t_lost[l], (acc)((t0 + t1) + (t2 + t3)));
            add_to(&s->g[l], &s->g_lost[l], (acc)((g0 + g1) + (g2 + g3)));
        } else {
            t0 = x[l] * rstd, t1 = x[m] * rstd, t2 = x[o] * rstd, t3 = x[q] * rstd;
            if (weighted) {
                g0 *= offset + weight[l], g1 *= offset + weight[m];
                g2 *= offset + weight[o], g3 *= offset + weight[q];
            }
        }
        add_to(&s->gt[l], &s->gt_lost[l], (acc)((g0 * t0 + g1 * t1) + (g2 * t2 + g3 * t3)));
    }
}

/* From element m on: m ones at the end. */
static const real last_lanes[2 * LANES] = {[LANES] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* A contiguous run of n elements joins the lanes; `weight` runs along it, or is NULL (`weighted` false). With `centred`
 * false there is no mean, and `offset` is added to the weight. What is left at the end is taken as the last of a whole
 * vector that reaches back; a run shorter than a vector is copied. */
CN_INLINE void add_run(gradient_lanes *s, const real *dy, const real *x, const real *weight, size_t n, real mean,
                       real rstd, real offset, const bool weighted, const bool centred)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        add_four_vectors(s, dy + i, x + i, weighted ? weight + i : NULL, mean, rstd, offset, weighted, centred);
    for (; i + LANES <= n; i += LANES)
        add_vector(s, dy + i, x + i, weighted ? weight + i : NULL, NULL, mean, rstd, offset, weighted, centred, false);
    if (i < n && n >= LANES) {
        size_t last = n - LANES;
        add_vector(s, dy + last, x + last, weighted ? weight + last : NULL, last_lanes + (n - i), mean, rstd, offset,
                   weighted, centred, true);
    } else if (i < n) {
        real x_rest[LANES], dy_rest[LANES], weight_rest[LANES];
        pad_run(x_rest, x, n, centred ? mean : 0);
        pad_run(dy_rest, dy, n, 0);
        if (weighted)
            pad_run(weight_rest, weight, n, 0);
        add_vector(s, dy_rest, x_rest, weight_rest, NULL, mean, rstd, offset, weighted, centred, false);
    }
}

CN_INLINE gradient_sums fold_sums(const gradient_lanes *s)
{
    return (gradient_sums){
        .t = fold_lanes(s->t, s->t_lost), .g = fold_lanes(s->g, s->g_lost), .gt = fold_lanes(s->gt, s->gt_lost)};
}

/* Sums over one run. */
CN_INLINE gradient_sums sum_gradients(const real *dy, const real *x, const real *weight, size_t n, real mean, real rstd,
                                      real offset, const bool weighted, const bool centred)
{
    gradient_lanes s = {0};
    add_run(&s, dy, x, weight, n, mean, rstd, offset, weighted, centred);
    return fold_sums(&s);
}

#endif
