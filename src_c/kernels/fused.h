/* sum + a * b with one rounding: IEEE 754's fused multiply-add, and so the same bits on every level.
 *
 * The compiler is not left to fuse, nor not to, as it likes (-ffp-contract=off): what is fused says so. Where the CPU has
 * the instruction, tiles of products (tile.h) are twice as fast with it. Where it has not, float is computed in double:
 * the product is exact there, and a sum that is not exact has its last bit set ("rounding to odd", Boldo and Melquiond
 * 2008), so that rounding it again, to float, rounds as if it were the first time. That takes some twenty operations
 * in place of two; processors without the instruction are from before 2013, or small. double has no wider type to be
 * computed in, and its products are rounded.
 */
#ifndef CN_FUSED_H
#define CN_FUSED_H

#include <stdint.h>

#include "level.h"

/* 1 where fmaf() is an instruction. */
#if defined(FUSED_IN_HARDWARE)
#elif defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FUSED_IN_HARDWARE 1
#else
#define FUSED_IN_HARDWARE 0
#endif

/* x with its last bit set unless it is exact; `lost` is what its rounding left, NaN if x is not finite. */
CN_INLINE double to_odd(double x, double lost)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t inexact = (lost < 0) | (lost > 0), even = ~bits & 1, away = (lost > 0) == (x > 0);
    bits += (inexact & even) * (2 * away - 1);
    memcpy(&x, &bits, sizeof x);
    return x;
}

CN_INLINE float fused(float a, float b, float sum)
{
#if FUSED_IN_HARDWARE
    return fmaf(a, b, sum);
#else
    double product = (double)a * (double)b, x = product + (double)sum, part = x - product;
    return (float)to_odd(x, (product - (x - part)) + ((double)sum - part));
#endif
}

/* sum + a * b, fused where it can be. */
CN_INLINE real add_product(real sum, real a, real b)
{
    return sizeof(real) == sizeof(float) ? (real)fused((float)a, (float)b, (float)sum) : sum + a * b;
}

#endif
