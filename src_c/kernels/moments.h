/* Count, mean and centred sum of squares, of a block and merged.
 *
 * A block is read once. Its elements are shifted by a guess of their mean (from 16 of them, if it is long), and
 * sum(d), sum(d*d) are formed together, d = x - shift:
 *
 *     mean = shift + sum(d)/n          M2 = sum(d*d) - sum(d)^2/n
 *
 * Eight vectors are added in a tree in `real` before they join the lanes in `acc`: at most three roundings of a
 * partial sum however long the block, at little more than the price of a plain float sum. The second line loses
 * bits only when the guess is far off, |mean - shift| >> std; that is seen in the result, and the block, still in
 * the cache, is summed again around the mean just found. So constant data give M2 = 0 exactly.
 *
 * Blocks are merged with Chan, Golub and LeVeque's formula (1983) in a fixed order, mean and M2 each in two words, so
 * that a row of any length is as accurate as one block.
 */
#ifndef CN_MOMENTS_H
#define CN_MOMENTS_H

#include "level.h"

typedef struct {
    acc count, mean, mean_lo, m2, m2_lo;
} moments;

/* a + b = *a + *error exactly (Knuth). */
static inline acc two_sum(acc *a, acc b)
{
    acc s = *a + b, t = s - *a, error = (*a - (s - t)) + (b - t);
    *a = s;
    return error;
}

/* a * b - product exactly, product = a * b rounded (Dekker 1971): FMA is not to be had on every level. */
static inline acc product_error(acc a, acc b, acc product)
{
    acc a_big = a * 134217729.0, a_hi = a_big - (a_big - a), a_lo = a - a_hi;
    acc b_big = b * 134217729.0, b_hi = b_big - (b_big - b), b_lo = b - b_hi;
    return ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo;
}

static inline void merge(moments *a, const moments *b)
{
    if (a->count == 0) {
        *a = *b;
        return;
    }
    if (b->count == 0)
        return;
    acc count = a->count + b->count;
    acc delta = (b->mean - a->mean) + (b->mean_lo - a->mean_lo);
    acc step = delta * (b->count / count);
    a->m2_lo += b->m2_lo;
    a->m2_lo += two_sum(&a->m2, b->m2);
    a->m2_lo += two_sum(&a->m2, delta * step * a->count);
    a->mean_lo += two_sum(&a->mean, step);
    a->count = count;
}

/* *sum += value. Of double data the lanes are compensated: small terms can all round the same way beside a large one.
 * Sums of float data have digits to spare in double. */
CN_INLINE void add_to(acc *sum, acc *lost, acc value)
{
    if (sizeof(real) == sizeof(acc))
        *lost += two_sum(sum, value);
    else
        *sum += value;
}

/* Lane l of the first half of `from` and of the second. */
CN_INLINE void fold_halves(acc *to, acc *to_lost, const acc *from, const acc *lost, const int half)
{
#pragma omp simd
    for (int l = 0; l < half; l++) {
        to[l] = from[l];
        if (sizeof(real) == sizeof(acc))
            to_lost[l] = lost[l] + lost[l + half];
        add_to(&to[l], &to_lost[l], from[l + half]);
    }
}

/* The lanes of a sum, folded in order. Every step has arrays of its own, so that it stays in registers. */
CN_INLINE acc fold_lanes(const acc *sum, const acc *lost)
{
    acc a[LANES / 2], b[LANES / 4], c[LANES / 8], d[LANES / 16];
    acc a_lost[LANES / 2], b_lost[LANES / 4], c_lost[LANES / 8], d_lost[LANES / 16];
    fold_halves(a, a_lost, sum, lost, LANES / 2);
    fold_halves(b, b_lost, a, a_lost, LANES / 4);
    fold_halves(c, c_lost, b, b_lost, LANES / 8);
    fold_halves(d, d_lost, c, c_lost, LANES / 16);
    return sizeof(real) == sizeof(acc) ? d[0] + d_lost[0] : d[0];
}

/* The n < LANES elements that are left, and for the other lanes what adds nothing. So lanes are never indexed by a
 * variable, and stay in registers. */
CN_INLINE void pad_run(real *rest, const real *x, size_t n, real nothing)
{
    for (size_t l = 0; l < LANES; l++)
        rest[l] = nothing;
    for (size_t l = 0; l < n; l++)
        rest[l] = x[l];
}

/* acc sums of d = x - shift and of d*d over one contiguous block. */
static inline void shifted_sums(const real *x, size_t n, real shift, acc *sum, acc *square_sum)
{
    acc s[LANES] = {0}, q[LANES] = {0}, s_lost[LANES] = {0}, q_lost[LANES] = {0};
    size_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            real d0 = p[l] - shift, d1 = p[l + LANES] - shift;
            real d2 = p[l + 2 * LANES] - shift, d3 = p[l + 3 * LANES] - shift;
            real d4 = p[l + 4 * LANES] - shift, d5 = p[l + 5 * LANES] - shift;
            real d6 = p[l + 6 * LANES] - shift, d7 = p[l + 7 * LANES] - shift;
            add_to(&s[l], &s_lost[l], (acc)(((d0 + d1) + (d2 + d3)) + ((d4 + d5) + (d6 + d7))));
            add_to(&q[l], &q_lost[l],
                   (acc)(((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)) + ((d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7))));
        }
    }
    if (i + 4 * LANES <= n) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            real d0 = p[l] - shift, d1 = p[l + LANES] - shift;
            real d2 = p[l + 2 * LANES] - shift, d3 = p[l + 3 * LANES] - shift;
            add_to(&s[l], &s_lost[l], (acc)((d0 + d1) + (d2 + d3)));
            add_to(&q[l], &q_lost[l], (acc)((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)));
        }
        i += 4 * LANES;
    }
    for (; i + LANES <= n; i += LANES) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            acc d = p[l] - shift;
            add_to(&s[l], &s_lost[l], d);
            add_to(&q[l], &q_lost[l], d * d);
        }
    }
    if (i < n) {
        real rest[LANES];
        pad_run(rest, x + i, n - i, shift);
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            acc d = rest[l] - shift;
            add_to(&s[l], &s_lost[l], d);
            add_to(&q[l], &q_lost[l], d * d);
        }
    }
    *sum = fold_lanes(s, s_lost);
    *square_sum = fold_lanes(q, q_lost);
}

/* A guess of the mean, from 16 elements spread over the block: exact where the block is constant. */
static inline real guess_mean(const real *x, size_t n)
{
    if (n < 16)
        return x[0];
    size_t step = n / 16;
    real s[8];
    for (int l = 0; l < 8; l++)
        s[l] = x[(size_t)l * step] + x[(size_t)(l + 8) * step];
    return (((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) * (real)0.0625;
}

/* sum(d*d) may exceed M2 by this factor before the shift counts as too far from the mean: what cancels between the two
 * multiplies the roundings of the squares, and those of data with few distinct values can all go one way. Of normal
 * data one block in a hundred is summed again. */
#define SHIFT_LIMIT 1.4

/* Sums around `shift` as moments; false if the shift was too far from the mean for an accurate M2. */
static inline bool centre(moments *m, acc count, acc shift, acc sum, acc square_sum)
{
    acc offset = sum / count, m2 = square_sum - sum * offset;
    *m = (moments){.count = count, .mean = shift, .m2 = m2 > 0 ? m2 : (m2 == m2 ? 0 : m2)};
    m->mean_lo = two_sum(&m->mean, offset);
    return !(square_sum > SHIFT_LIMIT * m2);
}

/* Most rounds that a bad guess can cost: each one shrinks the guess's error by five digits. */
#define CENTRE_ROUNDS 4

static inline moments block_moments(const real *x, size_t n)
{
    moments m;
    acc sum, square_sum;
    real shift = guess_mean(x, n);
    for (int round = 0; round < CENTRE_ROUNDS; round++) {
        shifted_sums(x, n, shift, &sum, &square_sum);
        if (centre(&m, (acc)n, shift, sum, square_sum))
            break;
        shift = (real)m.mean;
    }
    return m;
}

/* The root mean square has no mean: count and sum(x*x) alone, in the same tree and lanes, as moments about 0. */
static inline moments block_squares(const real *x, size_t n)
{
    acc q[LANES] = {0}, q_lost[LANES] = {0};
    size_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            real d0 = p[l], d1 = p[l + LANES], d2 = p[l + 2 * LANES], d3 = p[l + 3 * LANES];
            real d4 = p[l + 4 * LANES], d5 = p[l + 5 * LANES], d6 = p[l + 6 * LANES], d7 = p[l + 7 * LANES];
            add_to(&q[l], &q_lost[l],
                   (acc)(((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)) + ((d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7))));
        }
    }
    if (i + 4 * LANES <= n) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            real d0 = p[l], d1 = p[l + LANES], d2 = p[l + 2 * LANES], d3 = p[l + 3 * LANES];
            add_to(&q[l], &q_lost[l], (acc)((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)));
        }
        i += 4 * LANES;
    }
    for (; i + LANES <= n; i += LANES) {
        const real *p = x + i;
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            add_to(&q[l], &q_lost[l], (acc)p[l] * (acc)p[l]);
    }
    if (i < n) {
        real rest[LANES];
        pad_run(rest, x + i, n - i, 0);
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            add_to(&q[l], &q_lost[l], (acc)rest[l] * (acc)rest[l]);
    }
    return (moments){.count = (acc)n, .m2 = fold_lanes(q, q_lost)};
}

#endif
