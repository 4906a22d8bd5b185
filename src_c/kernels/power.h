/* x^p and x^(1/p), x >= 0, for norms of any order: the same bits on every machine, which pow of the C library does not
 * promise, and within 0.8 units in the last place of the exact result.
 *
 *     x = 2^e m, sqrt(1/2) <= m < sqrt(2)      log2 x = e + 2 / ln 2 * atanh s, s = (m - 1) / (m + 1)
 *     x^p = 2^z = 2^k exp(ln 2 * (z - k))      z = p log2 x, or log2 x / p; k whole, |z - k| <= 1/2
 *
 * The logarithm and z are sums of two numbers, good to 2^-64 of their size: z may be as large as 1100, and its absolute
 * error is what counts. Both series are cut off below the last bit that matters. There are no branches, tables or calls,
 * so that a loop over x has vectors: exponents are cut out and put in as bits, and what is out of range is selected away.
 */
#ifndef CN_POWER_H
#define CN_POWER_H

#include "moments.h"

#include <string.h>

typedef struct {
    acc hi, lo;
} two_words;

CN_INLINE two_words sum_in_words(acc a, acc b)
{
    acc lo = two_sum(&a, b);
    return (two_words){a, lo};
}

/* a * b exactly: by one instruction where there is one. */
CN_INLINE two_words product_in_words(acc a, acc b)
{
    acc p = a * b;
#if defined(__GNUC__) && (defined(__FP_FAST_FMA) || defined(__AVX512F__))
    return (two_words){p, __builtin_fma(a, b, -p)};
#else
    return (two_words){p, product_error(a, b, p)};
#endif
}

CN_INLINE two_words times_words(two_words a, two_words b)
{
    two_words p = product_in_words(a.hi, b.hi);
    return sum_in_words(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

/* (a - q * b) / b, where q is a / b rounded. */
CN_INLINE acc rest_of_quotient(two_words a, acc q, two_words b)
{
    two_words p = product_in_words(q, b.hi);
    return (((a.hi - p.hi) - p.lo) + (a.lo - q * b.lo)) / b.hi;
}

CN_INLINE uint64_t bits_of(acc x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

CN_INLINE acc from_bits(uint64_t bits)
{
    acc x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* From 2^52 on, a number's last bits are its whole part; from 1.5 * 2^52 on, a sum rounds to it. */
#define WHOLE 0x1p52
#define ROUNDING 0x1.8p52
#define BIAS 1023

/* Of 0, some finite number. */
CN_INLINE two_words logarithm(acc x)
{
    static const two_words third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
    static const two_words two_over_ln2 = {0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55};
    const uint64_t bias = (uint64_t)BIAS << 52, root_half = 0x3fe6a09e667f3bcd;
    acc raised = x < DBL_MIN ? 54 : 0;
    uint64_t bits = bits_of(x < DBL_MIN ? x * 0x1p54 : x), exponent = (bits - root_half + bias) >> 52;
    acc e = from_bits(exponent | bits_of(WHOLE)) - (WHOLE + BIAS) - raised;
    acc m = from_bits(bits - (exponent << 52) + bias);
    two_words above = {m - 1, 0}, below = sum_in_words(m, 1), s = {above.hi / below.hi, 0};
    s.lo = rest_of_quotient(above, s.hi, below);
    two_words square = times_words(s, s), series = times_words(square, third);
    acc q = square.hi, r = q * q, t = r * r;
    acc odd = (1. / 5 + 1. / 7 * q) + (1. / 9 + 1. / 11 * q) * r +
              ((1. / 13 + 1. / 15 * q) + (1. / 17 + 1. / 19 * q) * r + (1. / 21 + 1. / 23 * q) * t) * t;
    odd = r * odd + series.lo;
    series = sum_in_words(1, series.hi);
    series = sum_in_words(series.hi, series.lo + odd);
    two_words log2_m = times_words(times_words(s, series), two_over_ln2), all = sum_in_words(e, log2_m.hi);
    return sum_in_words(all.hi, all.lo + log2_m.lo);
}

/* 2^k, k whole. */
CN_INLINE acc two_to(acc k) { return from_bits(bits_of(k + (WHOLE + BIAS)) << 52); }

/* 2^z. */
CN_INLINE acc exponential(two_words z)
{
    static const two_words ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
    acc most = z.hi < -1100 ? -1100 : z.hi, hi = most > 1100 ? 1100 : most, lo = hi == z.hi ? z.lo : 0;
    acc k = (hi + ROUNDING) - ROUNDING, half = (hi / 2 + ROUNDING) - ROUNDING;
    two_words r = times_words((two_words){hi - k, lo}, ln2), result = sum_in_words(1, r.hi);
    acc q = r.hi, s = q * q, t = s * s;
    acc series = (1. / 2 + 1. / 6 * q) + (1. / 24 + 1. / 120 * q) * s +
                 ((1. / 720 + 1. / 5040 * q) + (1. / 40320 + 1. / 362880 * q) * s) * t +
                 ((1. / 3628800 + 1. / 39916800 * q) + (1. / 479001600 + 1. / 6227020800 * q) * s) * t * t;
    acc value = result.hi + (result.lo + (r.lo * (1 + q) + s * series));
    return value * two_to(half) * two_to(k - half); /* only the last product can round */
}

/* Beyond these, x^p does not depend on p. */
static inline acc within_range(acc p)
{
    acc most = p < -0x1p100 ? -0x1p100 : p > 0x1p100 ? 0x1p100 : p;
    return fabs(most) < 0x1p-100 ? 0x1p-100 : most;
}

/* x^p, in place. By multiplication where p is a small whole number. */
#define WHOLE_POWER_MOST 8
static inline void take_powers(acc *x, size_t count, acc p)
{
    if (p >= 1 && p <= WHOLE_POWER_MOST && p == (int)p) {
        for (size_t i = 0; i < count; i++)
            for (acc base = x[i], n = 1; n < p; n++)
                x[i] *= base;
        return;
    }
    two_words order = {within_range(p), 0};
    acc of_zero = p > 0 ? 0 : INFINITY;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        acc result = exponential(times_words(order, logarithm(x[i])));
        x[i] = x[i] > 0 ? result : of_zero;
    }
}

/* x^(1/p), x > 0, p > 0. */
static inline acc root_of(acc x, acc p)
{
    two_words order = {within_range(p), 0}, log2_x = logarithm(x);
    acc z = log2_x.hi / order.hi;
    return exponential(sum_in_words(z, rest_of_quotient(log2_x, z, order)));
}

#undef WHOLE
#undef ROUNDING
#undef BIAS
#endif
