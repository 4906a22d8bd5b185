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

/* What rounding took, back into a sum: nothing of float data, NaN where the sum has overflowed. */
CN_INLINE acc settled(acc sum, acc lost) { return sizeof(real) == sizeof(acc) && lost == lost ? sum + lost : sum; }

/* dx = ((g - average) - (t - hat_lo) * slope) * rstd,  or with one number less and one multiplication:
 * ((g - offset) - (x - mean) * x_slope) * rstd. */
typedef struct {
    real mean, rstd;
    real hat_lo, average, slope, offset, x_slope;
    acc hat_lo_acc;
    bool fast, no_sums; /* no_sums: only if dy * weight is zero as a whole, and not just too small */
} gradient;

/* Where these hold, nothing that matters to a gradient can overflow or be flushed in `real`: the spread is that of a fast
 * forward (is_fast in normaliser.h), and so are the averages, or dy is zero as a whole. Other groups take the careful way
 * of wide_gradient.h. */
#define RSTD_MIN (sizeof(real) == 4 ? 0x1p-60 : 0x1p-495)
#define RSTD_MAX (sizeof(real) == 4 ? 0x1p+50 : 0x1p+450)
#define AVERAGE_MIN (sizeof(real) == 4 ? 0x1p-100 : 0x1p-700)
#define AVERAGE_MAX (sizeof(real) == 4 ? 0x1p+100 : 0x1p+900)
#define X_SLOPE_MIN (REAL_MIN * 0x1p+6)

/* Without branches: a loop over channels calls it. */
static inline bool gradient_is_fast(acc rstd, acc t, acc average, acc slope)
{
    acc a = fabs(average), b = fabs(slope);
    int large_enough = (a >= AVERAGE_MIN) | (b >= AVERAGE_MIN) | ((a == 0) & (b == 0));
    int spread = (rstd == 0) | ((rstd >= RSTD_MIN) & (rstd <= RSTD_MAX)), steep = b * rstd <= AVERAGE_MAX;
    int flat = (b * rstd < X_SLOPE_MIN) & (rstd != 0) & (b != 0);
    return spread & steep & !flat & (fabs(t) <= AVERAGE_MAX) & (a <= AVERAGE_MAX) & (b <= AVERAGE_MAX) & large_enough;
}

/* False where t is so small that it may have lost digits, which the sums tell: an eps far above the squares of x. */
#define HAT_MIN (REAL_MIN * 0x1p+10)

static inline bool hats_are_normal(acc g, acc gt) { return gt == 0 || fabs(gt) >= HAT_MIN * fabs(g); }

static inline bool all_zero(const real *dy, size_t n)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t i = 0; i < n; i++)
        any |= dy[i] != 0;
    return !any;
}

/* sum / count; of float data by the inverse, since acc has digits to spare. */
CN_INLINE acc average_of(acc sum, acc lost, acc count, acc inverse)
{
    return sizeof(real) < sizeof(acc) ? sum * inverse : (sum + lost) / count;
}

/* A group of `count` elements. */
static inline gradient make_gradient(const gradient_sums *s, acc count, real mean, real rstd, bool centred)
{
    gradient k = {.mean = mean, .rstd = rstd};
    acc inverse = 1 / count, average = 0, slope = average_of(s->gt, s->gt_lo, count, inverse);
    if (centred) {
        k.hat_lo_acc = average_of(s->t, s->t_lo, count, inverse);
        average = average_of(s->g, s->g_lo, count, inverse);
        slope -= k.hat_lo_acc * average;
    }
    k.fast = gradient_is_fast(rstd, k.hat_lo_acc, average, slope);
    k.no_sums = average == 0 && slope == 0;
    k.hat_lo = (real)k.hat_lo_acc;
    k.average = (real)average;
    k.slope = (real)slope;
    k.offset = (real)(average - k.hat_lo_acc * slope);
    k.x_slope = (real)(slope * rstd);
    return k;
}

/* The three sums, in lanes (see moments.h). */
typedef struct {
    acc t[LANES], g[LANES], gt[LANES], t_lost[LANES], g_lost[LANES], gt_lost[LANES];
} gradient_lanes;

CN_INLINE void clear_sum(acc *sum, acc *lost)
{
    for (size_t l = 0; l < LANES; l++)
        sum[l] = 0;
    if (sizeof(real) == sizeof(acc))
        for (size_t l = 0; l < LANES; l++)
            lost[l] = 0;
}

/* Sum by sum: all at once they become one long string instruction, which costs a short run as much as its additions. */
CN_INLINE void clear_lanes(gradient_lanes *s)
{
    clear_sum(s->t, s->t_lost);
    clear_sum(s->g, s->g_lost);
    clear_sum(s->gt, s->gt_lost);
}

/* The numbers a run is taken with. `weighted` (the run has weights of its own), `shifted` (to which `offset` is added),
 * `centred` (there is a mean) and `frozen` (nobody asks for sum(t)) are constants. */
typedef struct {
    real mean, rstd, offset;
    bool weighted, shifted, centred, frozen;
} run_constants;

CN_INLINE real run_t(real x, run_constants c) { return c.centred ? (x - c.mean) * c.rstd : x * c.rstd; }

CN_INLINE real run_g(const real *dy, const real *weight, size_t i, run_constants c)
{
    return !c.weighted ? dy[i] : c.shifted ? dy[i] * (c.offset + weight[i]) : dy[i] * weight[i];
}

/* What joins one lane. */
typedef struct {
    real t, g, gt;
} lane_terms;

CN_INLINE void join_lane(gradient_lanes *s, size_t l, lane_terms a, run_constants c)
{
    if (c.centred && !c.frozen)
        add_to(&s->t[l], &s->t_lost[l], (acc)a.t);
    if (c.centred)
        add_to(&s->g[l], &s->g_lost[l], (acc)a.g);
    add_to(&s->gt[l], &s->gt_lost[l], (acc)a.gt);
}

/* Where four vectors begin; and if `some`, a constant, is true, which of their lanes count: 1, and 0 for the others. */
typedef struct {
    size_t at[4];
    const real *keep[4];
    bool some;
} four_vectors;

CN_INLINE four_vectors neighbours(size_t first)
{
    return (four_vectors){.at = {first, first + LANES, first + 2 * LANES, first + 3 * LANES}};
}

CN_INLINE lane_terms term(const real *dy, const real *x, const real *weight, four_vectors v, int j, size_t l,
                          run_constants c)
{
    const size_t i = v.at[j] + l;
    real t = run_t(x[i], c), g = run_g(dy, weight, i, c);
    if (v.some)
        t *= v.keep[j][l], g *= v.keep[j][l];
    return (lane_terms){t, g, g * t};
}

CN_INLINE lane_terms sum_of(lane_terms a, lane_terms b) { return (lane_terms){a.t + b.t, a.g + b.g, a.gt + b.gt}; }

/* Lane l of four vectors, added in a tree in `real`. */
CN_INLINE lane_terms four_terms(const real *dy, const real *x, const real *weight, four_vectors v, size_t l,
                                run_constants c)
{
    lane_terms a = sum_of(term(dy, x, weight, v, 0, l, c), term(dy, x, weight, v, 1, l, c));
    return sum_of(a, sum_of(term(dy, x, weight, v, 2, l, c), term(dy, x, weight, v, 3, l, c)));
}

CN_INLINE void add_eight_vectors(gradient_lanes *s, const real *dy, const real *x, const real *weight, run_constants c)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++)
        join_lane(s, l,
                  sum_of(four_terms(dy, x, weight, neighbours(0), l, c),
                         four_terms(dy, x, weight, neighbours(4 * LANES), l, c)),
                  c);
}

CN_INLINE void add_four_vectors(gradient_lanes *s, const real *dy, const real *x, const real *weight, four_vectors v,
                                run_constants c)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++)
        join_lane(s, l, four_terms(dy, x, weight, v, l, c), c);
}

/* The first of the four. */
CN_INLINE void add_vector(gradient_lanes *s, const real *dy, const real *x, const real *weight, four_vectors v,
                          run_constants c)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++)
        join_lane(s, l, term(dy, x, weight, v, 0, l, c), c);
}

/* Ones from the middle on: from element m on, m ones at the end of a vector. */
static const real last_lanes[2 * LANES] = {[LANES] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* What is left of a run of n elements after its first i, less than four vectors: a vector that would reach beyond the end
 * reaches back instead, and its last lanes count. */
CN_INLINE four_vectors rest_of_run(size_t i, size_t n)
{
    four_vectors v = {.some = true};
    for (int j = 0; j < 4; j++, i += LANES) {
        size_t left = i < n ? n - i : 0, kept = left < LANES ? left : LANES;
        v.at[j] = kept == LANES ? i : n - LANES;
        v.keep[j] = last_lanes + kept;
    }
    return v;
}

/* A contiguous run of n elements joins the lanes; its weights run along it. */
CN_INLINE void add_run(gradient_lanes *s, const real *dy, const real *x, const real *weight, size_t n, run_constants c)
{
    size_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES)
        add_eight_vectors(s, dy + i, x + i, c.weighted ? weight + i : NULL, c);
    if (i + 4 * LANES <= n) {
        add_four_vectors(s, dy + i, x + i, c.weighted ? weight + i : NULL, neighbours(0), c);
        i += 4 * LANES;
    }
    if ((n - i) % LANES == 0) {
        for (; i < n; i += LANES)
            add_vector(s, dy + i, x + i, c.weighted ? weight + i : NULL, neighbours(0), c);
    } else if (n >= LANES) {
        if (n - i < LANES)
            add_vector(s, dy, x, weight, rest_of_run(i, n), c);
        else
            add_four_vectors(s, dy, x, weight, rest_of_run(i, n), c);
    } else {
        real x_rest[LANES], dy_rest[LANES], weight_rest[LANES];
        pad_run(x_rest, x, n, c.centred ? c.mean : 0);
        pad_run(dy_rest, dy, n, 0);
        if (c.weighted)
            pad_run(weight_rest, weight, n, 0);
        add_vector(s, dy_rest, x_rest, weight_rest, neighbours(0), c);
    }
}

CN_INLINE gradient_sums fold_sums(const gradient_lanes *s)
{
    return (gradient_sums){
        .t = fold_lanes(s->t, s->t_lost), .g = fold_lanes(s->g, s->g_lost), .gt = fold_lanes(s->gt, s->gt_lost)};
}

#endif
