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

/* What rounding took, back into a sum: NaN where the sum has overflowed. */
CN_INLINE acc with_lost(acc sum, acc lost) { return lost == lost ? sum + lost : sum; }

/* The same of sums that have lost nothing of float data. */
CN_INLINE acc settled(acc sum, acc lost) { return sizeof(real) == sizeof(acc) ? with_lost(sum, lost) : sum; }

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

/* A group of `count` elements. Into its place, number by number: a struct that is copied just after its fields were stored
 * waits for them. */
static inline void make_gradient(gradient *k, const gradient_sums *s, acc count, real mean, real rstd, bool centred)
{
    acc inverse = 1 / count, hat_lo = 0, average = 0, slope = average_of(s->gt, s->gt_lo, count, inverse);
    if (centred) {
        hat_lo = average_of(s->t, s->t_lo, count, inverse);
        average = average_of(s->g, s->g_lo, count, inverse);
        slope -= hat_lo * average;
    }
    k->mean = mean, k->rstd = rstd;
    k->hat_lo_acc = hat_lo;
    k->hat_lo = (real)hat_lo;
    k->average = (real)average;
    k->slope = (real)slope;
    k->offset = (real)(average - hat_lo * slope);
    k->x_slope = (real)(slope * rstd);
    k->fast = gradient_is_fast(rstd, hat_lo, average, slope);
    k->no_sums = average == 0 && slope == 0;
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

/* What a lane begins with. Of zeros alone it may be -0, unlike one that was cleared first. */
CN_INLINE void set_lane(gradient_lanes *s, size_t l, lane_terms a)
{
    s->t[l] = (acc)a.t, s->g[l] = (acc)a.g, s->gt[l] = (acc)a.gt;
    if (sizeof(real) == sizeof(acc))
        s->t_lost[l] = s->g_lost[l] = s->gt_lost[l] = 0;
}

CN_INLINE void join_lane(gradient_lanes *s, size_t l, lane_terms a, run_constants c)
{
    if (c.centred && !c.frozen)
        add_to(&s->t[l], &s->t_lost[l], (acc)a.t);
    if (c.centred)
        add_to(&s->g[l], &s->g_lost[l], (acc)a.g);
    add_to(&s->gt[l], &s->gt_lost[l], (acc)a.gt);
}

CN_INLINE lane_terms term(const real *dy, const real *x, const real *weight, size_t i, run_constants c)
{
    real t = run_t(x[i], c), g = run_g(dy, weight, i, c);
    return (lane_terms){t, g, g * t};
}

CN_INLINE lane_terms sum_of(lane_terms a, lane_terms b) { return (lane_terms){a.t + b.t, a.g + b.g, a.gt + b.gt}; }

/* Lane l of four vectors, the first from `first` on, added in a tree in `real`. */
CN_INLINE lane_terms four_terms(const real *dy, const real *x, const real *weight, size_t first, size_t l,
                                run_constants c)
{
    const size_t i = first + l;
    lane_terms v0 = term(dy, x, weight, i, c), v1 = term(dy, x, weight, i + LANES, c);
    lane_terms v2 = term(dy, x, weight, i + 2 * LANES, c), v3 = term(dy, x, weight, i + 3 * LANES, c);
    return sum_of(sum_of(v0, v1), sum_of(v2, v3));
}

CN_INLINE void add_eight_vectors(gradient_lanes *s, const real *dy, const real *x, const real *weight, run_constants c)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++) {
        lane_terms a = four_terms(dy, x, weight, 0, l, c), b = four_terms(dy, x, weight, 4 * LANES, l, c);
        join_lane(s, l, sum_of(a, b), c);
    }
}

/* Ones from the middle on: from element m on, m ones at the end of a vector. */
static const real last_lanes[2 * LANES] = {[LANES] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Lane l of a run's last vector: whole, or one that would reach beyond the end of the run of n elements and reaches back
 * instead, so that only its last lanes count. */
CN_INLINE lane_terms last_terms(const real *dy, const real *x, const real *weight, size_t n, size_t l, const bool whole,
                                run_constants c)
{
    lane_terms a = term(dy, x, weight, n - LANES + l, c);
    if (whole)
        return a;
    const real keep = last_lanes[(n - 1) % LANES + 1 + l];
    a.t *= keep, a.g *= keep;
    return (lane_terms){a.t, a.g, a.g * a.t};
}

/* Lane l of the last vectors of a run of n elements, those from `first` on: one to four, a constant. */
CN_INLINE lane_terms few_terms(const real *dy, const real *x, const real *weight, size_t n, size_t first, size_t l,
                               const int vectors, const bool whole, run_constants c)
{
    if (vectors == 1)
        return last_terms(dy, x, weight, n, l, whole, c);
    lane_terms a = term(dy, x, weight, first + l, c);
    if (vectors == 2)
        return sum_of(a, last_terms(dy, x, weight, n, l, whole, c));
    a = sum_of(a, term(dy, x, weight, first + LANES + l, c));
    if (vectors == 3)
        return sum_of(a, last_terms(dy, x, weight, n, l, whole, c));
    lane_terms b = term(dy, x, weight, first + 2 * LANES + l, c);
    return sum_of(a, sum_of(b, last_terms(dy, x, weight, n, l, whole, c)));
}

/* Runs of n elements, `stride` apart, whose weights run along them, from element `first` on: at most SHORT_RUN elements. */
typedef struct {
    const real *dy, *x, *weight;
    size_t runs, stride, n, first;
} short_runs;

#define SHORT_RUN (8 * LANES)

/* What joins the lanes at once of one of them. */
typedef struct {
    real t[LANES], g[LANES], gt[LANES];
} run_terms;

/* Where that goes: to the lanes, which need not be clear if they are `fresh`, a constant, or, if those are NULL, to the terms of
 * each run. */
typedef struct {
    gradient_lanes *lanes;
    run_terms *terms;
    bool fresh;
} terms_go;

CN_INLINE void put_lane(terms_go to, size_t l, lane_terms a, run_constants c)
{
    if (!to.lanes) {
        to.terms->t[l] = a.t, to.terms->g[l] = a.g, to.terms->gt[l] = a.gt;
        return;
    }
    if (to.fresh)
        set_lane(to.lanes, l, a);
    else
        join_lane(to.lanes, l, a, c);
}

/* `vectors`, at most eight, and `whole` are constants. */
CN_INLINE void put_vectors(terms_go to, short_runs a, const int vectors, const bool whole, run_constants c)
{
    for (size_t r = 0; r < a.runs; r++, a.dy += a.stride, a.x += a.stride) {
#pragma omp simd
        for (size_t l = 0; l < LANES; l++) {
            const int rest = vectors > 4 ? vectors - 4 : vectors;
            const size_t first = vectors > 4 ? a.first + 4 * LANES : a.first;
            lane_terms four = {0}, sum;
            if (vectors > 4)
                four = four_terms(a.dy, a.x, a.weight, a.first, l, c);
            sum = few_terms(a.dy, a.x, a.weight, a.n, first, l, rest, whole, c);
            put_lane(to, l, vectors > 4 ? sum_of(four, sum) : sum, c);
        }
        if (!to.lanes)
            to.terms++;
    }
}

CN_INLINE void put_padded(terms_go to, short_runs a, run_constants c)
{
    real x_rest[LANES], dy_rest[LANES], weight_rest[LANES];
    for (size_t r = 0; r < a.runs; r++, a.dy += a.stride, a.x += a.stride) {
        pad_run(x_rest, a.x, a.n, c.centred ? c.mean : 0);
        pad_run(dy_rest, a.dy, a.n, 0);
        if (c.weighted)
            pad_run(weight_rest, a.weight, a.n, 0);
        put_vectors(to, (short_runs){dy_rest, x_rest, weight_rest, 1, 0, LANES, 0}, 1, true, c);
        if (!to.lanes)
            to.terms++;
    }
}

/* Runs of four whole vectors, images of 8 x 8, do without the ones of a last vector; others hardly gain by it. */
CN_INLINE void put_runs(terms_go to, short_runs a, run_constants c)
{
    const size_t left = a.n - a.first, vectors = (left + LANES - 1) / LANES;
    const bool whole = left % LANES == 0;
    if (a.n < LANES)
        put_padded(to, a, c);
    else if (vectors == 8)
        put_vectors(to, a, 8, false, c);
    else if (vectors == 7)
        put_vectors(to, a, 7, false, c);
    else if (vectors == 6)
        put_vectors(to, a, 6, false, c);
    else if (vectors == 5)
        put_vectors(to, a, 5, false, c);
    else if (vectors == 4 && whole)
        put_vectors(to, a, 4, true, c);
    else if (vectors == 4)
        put_vectors(to, a, 4, false, c);
    else if (vectors == 3)
        put_vectors(to, a, 3, false, c);
    else if (vectors == 2)
        put_vectors(to, a, 2, false, c);
    else
        put_vectors(to, a, 1, false, c);
}

/* Their terms, by functions of their own: once in each file for each kind of run. */
CN_NOINLINE static void centred_terms(run_terms *to, short_runs a, real mean, real rstd)
{
    put_runs((terms_go){.terms = to}, a, (run_constants){.mean = mean, .rstd = rstd, .centred = true});
}

CN_NOINLINE static void weighted_terms(run_terms *to, short_runs a, real mean, real rstd)
{
    put_runs((terms_go){.terms = to}, a,
             (run_constants){.mean = mean, .rstd = rstd, .weighted = true, .centred = true});
}

CN_NOINLINE static void uncentred_terms(run_terms *to, short_runs a, real offset, real rstd)
{
    if (a.weight)
        put_runs((terms_go){.terms = to}, a,
                 (run_constants){.rstd = rstd, .offset = offset, .weighted = true, .shifted = true});
    else
        put_runs((terms_go){.terms = to}, a, (run_constants){.rstd = rstd});
}

/* One joins the lanes. */
CN_INLINE void add_short_run(gradient_lanes *s, short_runs a, run_constants c)
{
    run_terms all;
    if (c.centred && c.weighted && c.shifted)
        put_runs((terms_go){.terms = &all}, a, c);
    else if (c.centred && c.weighted)
        weighted_terms(&all, a, c.mean, c.rstd);
    else if (c.centred)
        centred_terms(&all, a, c.mean, c.rstd);
    else
        uncentred_terms(&all, a, c.offset, c.rstd);
#pragma omp simd
    for (size_t l = 0; l < LANES; l++)
        join_lane(s, l, (lane_terms){all.t[l], all.g[l], all.gt[l]}, c);
}

/* A contiguous run of n elements joins the lanes; its weights run along it. */
CN_INLINE void add_run(gradient_lanes *s, const real *dy, const real *x, const real *weight, size_t n, run_constants c)
{
    size_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES)
        add_eight_vectors(s, dy + i, x + i, c.weighted ? weight + i : NULL, c);
    if (i < n)
        add_short_run(s, (short_runs){dy, x, c.weighted ? weight : NULL, 1, 0, n, i}, c);
}

/* Many short runs: in place, where their lanes stay in registers, unless code is to be small. */
#ifdef __OPTIMIZE_SIZE__
#define RUNS_IN_PLACE false
#else
#define RUNS_IN_PLACE true
#endif

/* A short run alone; the lanes need not be clear. */
CN_INLINE void set_short_run(gradient_lanes *s, const real *dy, const real *x, const real *weight, size_t n,
                             run_constants c)
{
    const short_runs run = {dy, x, weight, 1, 0, n, 0};
    if (RUNS_IN_PLACE) {
        put_runs((terms_go){.lanes = s, .fresh = true}, run, c);
    } else {
        clear_lanes(s);
        add_short_run(s, run, c);
    }
}

/* Several runs, `stride` apart. */
CN_INLINE void add_runs(gradient_lanes *s, const real *dy, const real *x, size_t runs, size_t n, size_t stride,
                        run_constants c)
{
    if (RUNS_IN_PLACE && n <= SHORT_RUN)
        put_runs((terms_go){.lanes = s}, (short_runs){dy, x, NULL, runs, stride, n, 0}, c);
    else
        for (size_t r = 0; r < runs; r++, dy += stride, x += stride)
            add_run(s, dy, x, NULL, n, c);
}

CN_INLINE gradient_sums fold_sums(const gradient_lanes *s)
{
    return (gradient_sums){
        .t = fold_lanes(s->t, s->t_lost), .g = fold_lanes(s->g, s->g_lost), .gt = fold_lanes(s->gt, s->gt_lost)};
}

#endif
