/* The careful way, for groups whose squares may overflow or vanish and for those that hold a NaN or an infinity:
 * everything in acc, on data scaled by a power of two to at most 1, in plain passes over any strided group.
 *
 *     t = x / 2^k,   xhat = (t - mean(t)) / sqrt(var(t) + eps / 4^k),   y = xhat * weight + bias
 *
 * k comes from the largest of |x| and sqrt(eps). The sums are compensated (Knuth's two-sum). A group with a non-finite
 * element is NaN as a whole; in a group with var + eps = 0, rstd is 0, so y = bias.
 */
#ifndef CN_WIDE_H
#define CN_WIDE_H

#include "moments.h"

/* Element i of a group is x[i / length * stride + i % length * step]; its parameter is i / divide % modulus. */
typedef struct {
    size_t count, length, stride, step;
    size_t divide, modulus;
} wide_group;

typedef struct {
    acc scale1, scale2;              /* t = x * scale1 * scale2, since 2^-k itself can be out of range */
    acc mean, mean_lo, square, rstd; /* of t; square is the variance without eps */
} wide_stats;

static inline size_t wide_at(const wide_group *g, size_t i)
{
    return i / g->length * g->stride + i % g->length * g->step;
}

static inline acc wide_centred(const wide_stats *w, real x)
{
    return ((acc)x * w->scale1 * w->scale2 - w->mean) - w->mean_lo;
}

/* Compensated mean over the group of (t - mean) - mean_lo, or of its square. */
static acc wide_average(const real *x, const wide_group *g, const wide_stats *w, bool squared)
{
    acc sum = 0, error = 0;
    for (size_t i = 0; i < g->count; i++) {
        acc d = wide_centred(w, x[wide_at(g, i)]);
        error += two_sum(&sum, squared ? d * d : d);
    }
    return (sum + error) / (acc)g->count;
}

/* With `centred` false the mean is taken as 0: the root mean square. */
static wide_stats wide_statistics(const real *x, const wide_group *g, acc eps, bool centred)
{
    acc largest = sqrt(eps);
    bool finite = true;
    for (size_t i = 0; i < g->count; i++) {
        acc a = fabs((acc)x[wide_at(g, i)]);
        finite &= a <= REAL_MAX;
        largest = a > largest ? a : largest;
    }
    if (!finite)
        return (wide_stats){1, 1, NAN, NAN, NAN, NAN};
    int k = 0;
    if (largest <= DBL_MAX)
        frexp(largest, &k);
    wide_stats w = {.scale1 = ldexp(1, -(k / 2)), .scale2 = ldexp(1, -(k - k / 2))};
    if (centred) {
        w.mean = wide_average(x, g, &w, false);
        acc low = wide_average(x, g, &w, false);
        w.mean_lo = two_sum(&w.mean, low); /* the first word may have been a place off */
        w.mean_lo += wide_average(x, g, &w, false);
    }
    w.square = wide_average(x, g, &w, true);
    acc variance = w.square + eps * w.scale1 * w.scale1 * w.scale2 * w.scale2;
    w.rstd = variance > 0 ? 1 / sqrt(variance) : 0;
    return w;
}

/* The statistics of x itself: may round to 0 or infinity where `real` has no such number. */
static inline acc wide_mean(const wide_stats *w) { return w->mean / w->scale1 / w->scale2; }
static inline acc wide_variance(const wide_stats *w)
{
    return w->square / w->scale1 / w->scale1 / w->scale2 / w->scale2;
}
static inline acc wide_rstd(const wide_stats *w, acc eps)
{
    if (w->square == 0) /* eps alone, which may have vanished in the scaling */
        return eps > 0 ? 1 / sqrt(eps) : 0;
    return w->rstd * w->scale1 * w->scale2;
}

/* From a known rstd, or where that is no normal number, from one taken from x with eps = 0:
 * hat = (x / 2^k - mean) * before * rstd * after, in this order: the product of the three can be out of range. */
typedef struct {
    acc before, rstd, after;
    int exponent; /* rstd * 2^exponent is that of x */
} wide_scale;

static inline wide_scale scale_of_hat(real rstd, const wide_stats *s)
{
    bool normal = rstd >= REAL_MIN && rstd <= REAL_MAX;
    if (normal || rstd == 0 || rstd != rstd)
        return (wide_scale){1 / s->scale1, rstd, 1 / s->scale2, 0};
    return (wide_scale){1, s->rstd, 1, ilogb(s->scale1) + ilogb(s->scale2)};
}

static inline acc wide_hat(const wide_stats *s, const wide_scale *scale, real x)
{
    return wide_centred(s, x) * scale->before * scale->rstd * scale->after;
}

static inline void wide_apply(real *y, const real *x, const wide_group *g, const wide_stats *w, acc weight_offset,
                              const real *weight, const real *bias)
{
    for (size_t i = 0; i < g->count; i++) {
        size_t at = wide_at(g, i), p = i / g->divide % g->modulus;
        acc value = wide_centred(w, x[at]) * w->rstd;
        if (weight)
            value *= (acc)(real)((real)weight_offset + weight[p]);
        y[at] = (real)(bias ? value + (acc)bias[p] : value);
    }
}

#endif
