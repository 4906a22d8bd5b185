/* Statistics and output of one group of any geometry, in float arithmetic.
 *
 * Passes over the group: its largest magnitude, in integers; the sum of t - t[0], which gives a centre; the sums of
 * d = t - centre and of d * d in two words each, again around a better centre if that one was far off; the output.
 * t is x times a power of two where squares of x could leave the range. A group that holds a NaN or an infinity is
 * scaled by NaN, and so becomes NaN as a whole. Constant groups give d = 0, hence exactly their bias.
 */
#include "group.h"

#include <stdint.h>

_Static_assert(sizeof(real) == 4, "the small kernels are for float");

#define MAGNITUDE 0x7fffffffu
#define INFINITE 0x7f800000u
#define EXPONENT_BIAS 127
#define SAFE_EXPONENT 20 /* magnitudes up to 2^20 or so, and the same below 1, need no scaling */
#define LEAST_EXPONENT (-126)
#define MOST_EXPONENT 126
#define SHIFT_LIMIT 1.5f /* as in moments.h */
#define CENTRE_ROUNDS 4

typedef struct {
    real sum, lost;
} pair;

/* eps = fraction * 4^half, 1 <= fraction < 4, or 0: a float alone could not hold a small one. */
typedef struct {
    real fraction;
    int half;
} split_eps;

static uint32_t bits_of(real value)
{
    const union {
        real value;
        uint32_t bits;
    } u = {value};
    return u.bits;
}

static real from_bits(uint32_t bits)
{
    const union {
        uint32_t bits;
        real value;
    } u = {bits};
    return u.value;
}

/* 2^k, 0 below the normal numbers and infinity above. */
static real power(int k)
{
    if (k < LEAST_EXPONENT)
        return 0;
    return from_bits(k > EXPONENT_BIAS ? INFINITE : (uint32_t)(k + EXPONENT_BIAS) << 23);
}

real CN(group_scaled)(real value, int exponent) { return value * power(exponent / 2) * power(exponent - exponent / 2); }

/* From the bits of the double, so that no double arithmetic is needed. */
static split_eps split(double eps)
{
    const union {
        double value;
        uint64_t bits;
    } u = {eps};
    int exponent = (int)(u.bits >> 52) - 1023, odd = exponent & 1;
    if (exponent == -1023)
        return (split_eps){0, 0};
    uint32_t fraction = (uint32_t)(u.bits >> 28 & 0xffffff); /* one more than fits, to round */
    real f = from_bits((uint32_t)EXPONENT_BIAS << 23 | fraction >> 1) + (real)(fraction & 1) * FLT_EPSILON;
    return (split_eps){odd ? 2 * f : f, (exponent - odd) / 2};
}

static void add(pair *a, real value)
{
    real s = a->sum + value, t = s - a->sum;
    a->lost += (a->sum - (s - t)) + (value - t);
    a->sum = s;
}

/* a * b - product exactly (Dekker 1971). */
static real product_error(real a, real b, real product)
{
    real a_big = a * 4097, a_hi = a_big - (a_big - a), a_lo = a - a_hi;
    real b_big = b * 4097, b_hi = b_big - (b_big - b), b_lo = b - b_hi;
    return ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo;
}

/* 1 / sqrt(variance + low) to the last bit or so: one Newton step on what the root and the division have rounded. */
static real reciprocal_root(real variance, real low)
{
    if (variance == 0)
        return 0;
    real r = 1 / sqrtf(variance), square = r * r, one = variance * square;
    real residue = (1 - one) - product_error(variance, square, one);
    residue -= variance * product_error(r, r, square) + low * square;
    return variance <= FLT_MAX ? r + r * residue * 0.5f : r;
}

/* The scale from the exponents of the largest magnitude and of sqrt(eps). */
static group_statistics choose_scale(uint32_t largest, split_eps eps)
{
    int exponent = (int)(largest >> 23) - EXPONENT_BIAS;
    if (eps.fraction > 0 && eps.half > exponent)
        exponent = eps.half;
    if (exponent >= -SAFE_EXPONENT && exponent <= SAFE_EXPONENT)
        exponent = 0;
    exponent = exponent < LEAST_EXPONENT ? LEAST_EXPONENT : exponent > MOST_EXPONENT ? MOST_EXPONENT : exponent;
    return (group_statistics){.scale = largest < INFINITE ? power(-exponent) : NAN, .exponent = exponent};
}

static real scaled_eps(split_eps eps, int exponent)
{
    real root = power(eps.half - exponent);
    return eps.fraction > 0 ? eps.fraction * root * root : 0;
}

static uint32_t largest_bits(const real *x, const group_shape *shape)
{
    uint32_t largest = 0;
    for (size_t run = 0; run < shape->runs; run++) {
        const real *p = x + run * shape->stride;
        for (size_t i = shape->length; i > 0; i--, p += shape->step) {
            uint32_t bits = bits_of(*p) & MAGNITUDE;
            largest = bits > largest ? bits : largest;
        }
    }
    return largest;
}

/* A centre for the sums to come: rough, but exact where the group is constant. */
static real guess_mean(const real *x, const group_shape *shape, real scale, real count)
{
    real first = x[0] * scale, sum = 0;
    for (size_t run = 0; run < shape->runs; run++) {
        const real *p = x + run * shape->stride;
        for (size_t i = shape->length; i > 0; i--, p += shape->step)
            sum += *p * scale - first;
    }
    return first + sum / count;
}

/* A few terms are added plainly before they join the two words. */
#define TERMS 4

static void centred_sums(const real *x, const group_shape *shape, real scale, real centre, pair *sum, pair *squares)
{
    *sum = *squares = (pair){0, 0};
    for (size_t run = 0; run < shape->runs; run++) {
        const real *p = x + run * shape->stride;
        real part = 0, square_part = 0;
        for (size_t left = shape->length; left > 0; p += shape->step) {
            real d = *p * scale - centre;
            part += d;
            square_part += d * d;
            if (--left % TERMS == 0) {
                add(sum, part);
                add(squares, square_part);
                part = square_part = 0;
            }
        }
    }
}

group_statistics CN(group_measure)(const real *x, const group_shape *shape)
{
    split_eps eps = split(shape->eps);
    group_statistics s = choose_scale(largest_bits(x, shape), eps);
    real count = (real)(shape->runs * shape->length);
    pair sum, squares, variance = {0, 0};
    if (shape->centred)
        s.hi = guess_mean(x, shape, s.scale, count);
    for (int round = 0; round < CENTRE_ROUNDS; round++) {
        centred_sums(x, shape, s.scale, s.hi, &sum, &squares);
        real offset = (sum.sum + sum.lost) / count, taken = shape->centred ? sum.sum * offset : 0;
        pair mean = {s.hi, 0};
        if (shape->centred)
            add(&mean, offset);
        s.hi = mean.sum, s.lo = mean.lost;
        real square_sum = squares.sum;
        add(&squares, -taken);
        if (!(square_sum > SHIFT_LIMIT * squares.sum) || square_sum == 0)
            break;
    }
    squares.sum = squares.sum < 0 ? 0 : squares.sum;
    s.square = squares.sum / count;
    real back = s.square * count;
    variance = (pair){s.square, ((squares.sum - back) - product_error(s.square, count, back) + squares.lost) / count};
    add(&variance, scaled_eps(eps, s.exponent));
    s.rstd = reciprocal_root(variance.sum, variance.lost);
    s.saved_rstd = s.rstd * s.scale;
    if (s.square == 0) /* eps alone, which may have vanished in the scaling */
        s.saved_rstd = CN(group_scaled)(reciprocal_root(eps.fraction, 0), -eps.half);
    return s;
}

group_statistics CN(group_given)(real mean, real variance, double eps)
{
    split_eps e = split(eps);
    uint32_t root = ((bits_of(variance) & MAGNITUDE) >> 1) + ((uint32_t)EXPONENT_BIAS << 22); /* to a factor of 2 */
    uint32_t size = bits_of(mean) & MAGNITUDE;
    group_statistics s = choose_scale(variance > 0 && root > size ? root : size, e);
    pair sum = {variance * s.scale * s.scale, 0};
    add(&sum, scaled_eps(e, s.exponent));
    s.hi = mean * s.scale;
    s.rstd = reciprocal_root(sum.sum, sum.lost);
    return s;
}

void CN(group_write)(real *y, const real *x, const real *weight, const real *bias, const group_shape *shape,
                     const group_statistics *s)
{
    for (size_t run = 0; run < shape->runs; run++) {
        size_t at = run * shape->stride, p = run * shape->each_run;
        for (size_t i = shape->length; i > 0; i--, at += shape->step, p += shape->each_element) {
            real d = (x[at] * s->scale - s->hi) - s->lo, value = d * s->rstd;
            if (weight) {
                real factor = shape->weight_offset + weight[p];
                bool finite = value >= -FLT_MAX && value <= FLT_MAX;
                value = finite ? value * factor : d * (s->rstd * factor);
            }
            y[at] = bias ? value + bias[p] : value;
        }
    }
}
