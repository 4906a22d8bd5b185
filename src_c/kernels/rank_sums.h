/* Of batch norm over several processes, backward: the sums of a channel that ranks exchange, how they come together, and the
 * careful way for channels whose gradient may leave the range of `real`.
 *
 *     t = (x - mean) * rstd,   hat = t - hat_lo,   hat_lo = average(t)
 *     dx = rstd * weight * (dy - average(dy) - hat * average(dy * hat)),   averages over the values of all ranks
 */
#ifndef CN_RANK_SUMS_H
#define CN_RANK_SUMS_H

#include "columns_gradient.h"
#include "wide_gradient.h"

#include <limits.h>

/* Sums in two words. Those with dy are of dy / 2^exponent, which is 0 unless dy is far from 1. Where rstd is not a normal
 * number, t is taken without it (hat_scale) and sum(t * t) is there to make up for it. */
enum sums_row { T, T_LO, G, G_LO, GT, GT_LO, TT, EXPONENT, SUMS_ROWS };

/* Up to 2^DY_EXPONENT, and down to its inverse, dy and its products are safe in `acc`, and far inside AVERAGE_MIN and _MAX. */
#define DY_EXPONENT (sizeof(real) == 4 ? 80 : 600)

/* t = (x - mean) * factor * 2^exponent. */
typedef struct {
    acc mean, factor;
    int exponent;
    bool own; /* without rstd */
} hat_scale;

static hat_scale scale_of_hats(real mean, real rstd)
{
    bool normal = rstd >= REAL_MIN && rstd <= REAL_MAX;
    if (normal || rstd == 0 || rstd != rstd)
        return (hat_scale){mean, rstd, 0, false};
    return (hat_scale){mean, 1, sizeof(real) < sizeof(acc) ? 0 : rstd > 1 ? 1000 : -1000, true};
}

static inline acc careful_t(const hat_scale *k, real x)
{
    acc d = (acc)x - k->mean;
    if (fabs(d) > DBL_MAX) /* of numbers that are finite the half is */
        return ldexp(((acc)x * 0.5 - k->mean * 0.5) * k->factor, k->exponent + 1);
    return ldexp(d * k->factor, k->exponent);
}

/* The sums of a channel in acc, of dy scaled by a power of two where it needs to be. */
CN_NOINLINE static void careful_sums(acc *sums, size_t channels, size_t c, const real *dy, const real *x,
                                     const wide_group *shape, real mean, real rstd)
{
    hat_scale scale = scale_of_hats(mean, rstd);
    acc s[EXPONENT] = {0}, most = 0;
    for (size_t i = 0; i < shape->count; i++) {
        acc a = fabs((acc)dy[wide_at(shape, i)]);
        most = a > most ? a : most;
    }
    int exponent = wide_exponent(most);
    if (exponent >= -DY_EXPONENT && exponent <= DY_EXPONENT)
        exponent = 0;
    for (size_t i = 0; i < shape->count; i++) {
        size_t at = wide_at(shape, i);
        acc t = careful_t(&scale, x[at]), g = ldexp((acc)dy[at], -exponent);
        s[T_LO] += two_sum(&s[T], t);
        s[G_LO] += two_sum(&s[G], g);
        s[GT_LO] += two_sum(&s[GT], g * t);
        s[TT] += scale.own ? t * t : 0;
    }
    for (size_t row = 0; row < EXPONENT; row++)
        sums[row * channels + c] = s[row];
    sums[EXPONENT * channels + c] = exponent;
}

/* Sums out, or if they may have left the range of `real` on the way, the careful ones. silent: of a channel whose sums of
 * dy are 0, that dy is 0 or not too small. */
static void store_sums(acc *sums, size_t channels, size_t c, const gradient_sums *s, bool silent, const real *dy,
                       const real *x, const wide_group *shape, real mean, real rstd)
{
    acc n = (acc)shape->count;
    bool fast = gradient_is_fast(rstd, s->t / n, s->g / n, s->gt / n) && hats_are_normal(s->g, s->gt);
    if (!fast || (s->g == 0 && s->gt == 0 && !silent)) {
        careful_sums(sums, channels, c, dy, x, shape, mean, rstd);
        return;
    }
    const acc rows[SUMS_ROWS] = {s->t, s->t_lo, s->g, s->g_lo, s->gt, s->gt_lo, 0, 0};
    for (size_t row = 0; row < SUMS_ROWS; row++)
        sums[row * channels + c] = rows[row];
}

/* The sums of all ranks, and this one's. */
typedef struct {
    const acc *own, *counts, *all; /* (8, channels), (ranks,), (ranks, 8, channels) */
    size_t ranks, channels;
} rank_sums;

/* What dx of a channel is made with, in acc: of dy / 2^exponent and of hat = (t - hat_lo) * factor. */
typedef struct {
    acc hat_lo, average, slope, factor;
    int exponent;
    bool spanned; /* 1 and hat are all there is: dx is 0 */
} merged_gradient;

static inline acc of_rank(const rank_sums *g, size_t rank, enum sums_row row, size_t c)
{
    return g->all[(rank * SUMS_ROWS + row) * g->channels + c];
}

/* Of the ranks where dy has sums. */
static int largest_exponent(const rank_sums *g, size_t c)
{
    int most = INT_MIN;
    for (size_t rank = 0; rank < g->ranks; rank++) {
        int exponent = (int)of_rank(g, rank, EXPONENT, c);
        if (exponent > most && (of_rank(g, rank, G, c) != 0 || of_rank(g, rank, GT, c) != 0))
            most = exponent;
    }
    return most == INT_MIN ? 0 : most;
}

static merged_gradient merge_gradient(const rank_sums *g, size_t c, real mean, real rstd)
{
    acc s[TT + 1] = {0}, count = 0;
    merged_gradient k = {.factor = 1, .exponent = largest_exponent(g, c)};
    for (size_t rank = 0; rank < g->ranks; rank++) {
        int shift = (int)of_rank(g, rank, EXPONENT, c) - k.exponent;
        count += g->counts[rank];
        for (size_t row = T; row < TT; row += 2) {
            acc sum = of_rank(g, rank, row, c), low = of_rank(g, rank, row + 1, c);
            if (shift != 0 && row != T)
                sum = ldexp(sum, shift), low = ldexp(low, shift);
            s[row + 1] += two_sum(&s[row], sum) + low;
        }
        s[TT] += of_rank(g, rank, TT, c);
    }
    k.hat_lo = (s[T] + s[T_LO]) / count;
    k.average = (s[G] + s[G_LO]) / count;
    if (scale_of_hats(mean, rstd).own) {
        acc variance = s[TT] / count - k.hat_lo * k.hat_lo;
        k.factor = variance > 0 ? 1 / sqrt(variance) : 0;
        k.spanned = count <= 2;
    }
    k.slope = count == 1 ? 0 : ((s[GT] + s[GT_LO]) / count - k.hat_lo * k.average) * k.factor;
    return k;
}

/* dx of a channel the careful way. */
static void careful_gradient(real *dx, const real *dy, const real *x, const wide_group *shape, const merged_gradient *k,
                             real mean, real rstd, real weight)
{
    hat_scale scale = scale_of_hats(mean, rstd);
    int weight_exponent = 0, root_exponent = 0; /* the parts: a product of them can be out of range */
    acc w = frexp(weight, &weight_exponent), root = frexp(scale.own ? k->factor : rstd, &root_exponent);
    int back = k->exponent + weight_exponent + root_exponent + scale.exponent;
    acc nothing = (k->average - k->average) + (k->slope - k->slope) + (acc)(mean - mean); /* NaN if one is not finite */
    for (size_t i = 0; i < shape->count; i++) {
        size_t at = wide_at(shape, i);
        acc hat = (careful_t(&scale, x[at]) - k->hat_lo) * k->factor;
        acc value = k->spanned ? 0 : (ldexp((acc)dy[at], -k->exponent) - k->average) - hat * k->slope;
        dx[at] = (real)ldexp((value * w + nothing) * root, back);
    }
}

#endif
