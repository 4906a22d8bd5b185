/* The careful way back, for groups whose gradient may overflow or vanish on the way, and for those that hold a NaN or an
 * infinity: everything in acc, over any strided group.
 *
 *     hat = (x / 2^k - mean) * (rstd * 2^k),   g = dy / 2^a * weight / 2^b
 *     dx = (g - average(g) - hat * average(g * hat)) * rstd * 2^(a + b)
 *
 * rstd is the saved one, or where that is no normal number it is taken from x with eps = 0. Sums are compensated. A group
 * with a non-finite element has NaN gradients as a whole.
 */
#ifndef CN_WIDE_GRADIENT_H
#define CN_WIDE_GRADIENT_H

#include "gradient.h"
#include "modulation.h"
#include "wide.h"

typedef struct {
    wide_group shape; /* its divide and modulus give the index of the parameter of an element */
    const real *dy, *x, *weight;
    real offset, mean, rstd; /* the mean is taken from x again; the saved one tells a NaN group */
    bool centred;
    real *dx; /* or NULL */
    /* Of a group whose elements have weights of their own: those, and where the group begins. Else NULL */
    const element_weights *elements;
    size_t at;
    /* Of each parameter sum(dy * hat) and sum(dy), added to, and what rounding took from them, or NULL. */
    acc *weight_sums, *bias_sums, *weight_lost, *bias_lost;
} wide_gradient;

static inline size_t wide_parameter(const wide_gradient *w, size_t i) { return i / w->shape.divide % w->shape.modulus; }

static acc wide_weight(const wide_gradient *w, size_t i)
{
    size_t p = wide_parameter(w, i);
    if (w->elements)
        return element_weight(w->elements, w->at + wide_at(&w->shape, i));
    return !w->weight ? 1 : w->centred ? (acc)w->weight[p] : (acc)(real)(w->offset + w->weight[p]);
}

static inline void wide_add(acc *sums, acc *lost, size_t p, acc value)
{
    acc error = sums ? two_sum(&sums[p], value) : 0;
    if (lost)
        lost[p] += error;
}

/* The power of two that brings the largest magnitude to 1 at most. */
static int wide_exponent(acc largest)
{
    int k = 0;
    if (largest <= DBL_MAX)
        frexp(largest, &k);
    return k;
}

CN_NOINLINE static void wide_backward(const wide_gradient *w)
{
    const wide_group *shape = &w->shape;
    wide_stats s = wide_statistics(w->x, shape, 0, w->centred);
    wide_scale scale = scale_of_hat(w->rstd, &s);
    acc count = (acc)shape->count, most_dy = 0, most_weight = 0;
    for (size_t i = 0; i < shape->count; i++) {
        acc a = fabs((acc)w->dy[wide_at(shape, i)]), b = fabs(wide_weight(w, i));
        most_dy = a > most_dy ? a : most_dy;
        most_weight = b > most_weight ? b : most_weight;
    }
    int dy_exponent = wide_exponent(most_dy), weight_exponent = wide_exponent(most_weight);
    int back = dy_exponent + weight_exponent + scale.exponent;
    acc g_sum = 0, g_lost = 0, gt_sum = 0, gt_lost = 0;
    for (size_t i = 0; i < shape->count; i++) {
        size_t at = wide_at(shape, i), p = wide_parameter(w, i);
        acc hat = wide_hat(&s, &scale, w->x[at]);
        acc g = ldexp((acc)w->dy[at], -dy_exponent) * ldexp(wide_weight(w, i), -weight_exponent);
        if (w->elements && w->elements->dgamma)
            w->elements->dgamma[w->at + at] = (real)((acc)w->dy[at] * hat);
        if (w->elements && w->elements->dbeta)
            w->elements->dbeta[w->at + at] = w->dy[at];
        g_lost += two_sum(&g_sum, g);
        gt_lost += two_sum(&gt_sum, g * hat);
        wide_add(w->weight_sums, w->weight_lost, p, (acc)w->dy[at] * hat);
        wide_add(w->bias_sums, w->bias_lost, p, (acc)w->dy[at]);
    }
    acc average = w->centred ? (g_sum + g_lost) / count : 0, slope = (gt_sum + gt_lost) / count;
    /* Without eps, 1 and hat are all that two elements have (RMS norm: hat, and one element): then dx is 0. */
    bool spanned = scale.exponent != 0 && shape->count <= (w->centred ? 2 : 1);
    acc nothing = (average - average) + (slope - slope) + (acc)(w->mean - w->mean); /* NaN if one is not finite */
    for (size_t i = 0; w->dx && i < shape->count; i++) {
        size_t at = wide_at(shape, i);
        acc hat = wide_hat(&s, &scale, w->x[at]);
        acc g = ldexp((acc)w->dy[at], -dy_exponent) * ldexp(wide_weight(w, i), -weight_exponent);
        acc value = spanned ? 0 : (g - average) - hat * slope;
        w->dx[at] = (real)ldexp((value + nothing) * scale.rstd, back);
    }
}

#endif
