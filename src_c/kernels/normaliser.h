/* What an apply pass needs to know of a group: y = ((x - hi) - lo) * rstd * weight + bias.
 *
 * The mean goes in two words: the rounding of a float mean alone is worth |mean|/std units. Where a square may have
 * overflowed or been flushed (or the input holds a NaN or an infinity) the group is not `fast` and takes the careful
 * way of wide.h.
 */
#ifndef CN_NORMALISER_H
#define CN_NORMALISER_H

#include "moments.h"

typedef struct {
    real hi, lo, rstd;
    acc rstd_acc, rstd_lo; /* rstd unrounded, in two words */
    bool fast;
} normaliser;

/* variance = (m2 + m2_lo) / count + eps, returned rounded, and rstd = 1 / sqrt(variance).
 * For double data the four roundings of that would show in the result: they are computed, and one Newton step on
 * 1 - variance * rstd^2 puts their sum into rstd_lo. For float data double has digits to spare. */
static inline acc variance_and_rstd(acc m2, acc m2_lo, acc count, acc eps, acc *rstd, acc *rstd_lo)
{
    acc quotient = m2 / count, variance = quotient;
    if (sizeof(real) < sizeof(acc)) {
        variance += m2_lo / count + eps;
        *rstd = 1 / sqrt(variance);
        *rstd_lo = 0;
        return variance;
    }
    acc back = quotient * count;
    acc low = (((m2 - back) - product_error(quotient, count, back)) + m2_lo) / count;
    low += two_sum(&variance, eps);
    acc r = 1 / sqrt(variance), square = r * r, square_lo = product_error(r, r, square), one = variance * square;
    acc residue = ((1 - one) - product_error(variance, square, one)) - variance * square_lo - low * square;
    *rstd = r;
    *rstd_lo = r * residue * 0.5;
    return variance;
}

static inline bool is_fast(acc variance) { return variance >= VARIANCE_MIN && variance <= VARIANCE_MAX; }

static inline normaliser make_normaliser(const moments *m, acc eps)
{
    normaliser k;
    k.fast = is_fast(variance_and_rstd(m->m2, m->m2_lo, m->count, eps, &k.rstd_acc, &k.rstd_lo));
    k.hi = (real)(m->mean + m->mean_lo);
    k.lo = (real)((m->mean - (acc)k.hi) + m->mean_lo);
    k.rstd = (real)(k.rstd_acc + k.rstd_lo);
    return k;
}

/* rstd * weight, rounded once; false where it left the normal range, and the two must multiply in turn. */
static inline bool scale_of(acc rstd, acc rstd_lo, acc weight, real *scale)
{
    acc product = rstd * weight;
    if (sizeof(real) == sizeof(acc))
        product += product_error(rstd, weight, product) + rstd_lo * weight;
    acc size = fabs(product);
    *scale = (real)product;
    return (size >= REAL_MIN && size <= REAL_MAX / 0x1p+30) || weight == 0;
}

/* The second word of the mean, moved behind the scale where that is one number for many elements. It is at most about
 * half a deviation of data that are floats near their mean, so this adds a rounding of |weight| at most. */
static inline real shift_of(acc lo, acc scale, acc bias) { return (real)(bias - lo * scale); }

#endif
