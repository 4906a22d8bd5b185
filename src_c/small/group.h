/* The small kernels, for processors with little memory and no double arithmetic: what they share.
 *
 * The ISA level `small` (-DCN_ISA=small -DCN_REAL=f32) has the functions of kernels.h once more, for the forward passes,
 * written for size: every op is a loop over groups, and a group of any geometry goes through the two functions of
 * group.c. No lanes, no blocks, no workspace, and float arithmetic alone, with sums in two words. The promised accuracy
 * and range are those of the other levels; the bits are not.
 *
 *     y = (x - mean) * rstd * (weight_offset + weight) + bias
 */
#ifndef CN_SMALL_GROUP_H
#define CN_SMALL_GROUP_H

#include "../kernels/kernels.h"

/* `runs` runs, their beginnings `stride` apart, of `length` elements `step` apart. A parameter's place moves by
 * `each_element` along a run and by `each_run` from run to run. */
typedef struct {
    size_t runs, length, stride, step;
    size_t each_element, each_run;
    bool centred; /* false: the root mean square */
    double eps;
    real weight_offset;
} group_shape;

/* t = x * scale, a power of two; mean = hi + lo, rstd and square (the variance without eps) are those of t. */
typedef struct {
    real scale, hi, lo, rstd, square;
    real saved_rstd; /* of x */
    int exponent;    /* scale = 2^-exponent */
} group_statistics;

group_statistics CN(group_measure)(const real *x, const group_shape *shape);
group_statistics CN(group_given)(real mean, real variance, double eps);
void CN(group_write)(real *y, const real *x, const real *weight, const real *bias, const group_shape *shape,
                     const group_statistics *s);

/* value * 2^exponent; may round to infinity or 0. */
real CN(group_scaled)(real value, int exponent);

static inline real mean_of(const group_statistics *s) { return CN(group_scaled)(s->hi + s->lo, s->exponent); }

/* Measures a group, saves its statistics where they are wanted, and writes it. */
static inline group_statistics normalise_group(real *y, real *mean, real *rstd, const real *x, const real *weight,
                                               const real *bias, const group_shape *shape)
{
    group_statistics s = CN(group_measure)(x, shape);
    if (mean)
        *mean = mean_of(&s);
    if (rstd)
        *rstd = s.saved_rstd;
    CN(group_write)(y, x, weight, bias, shape, &s);
    return s;
}

/* The i-th parameter or statistic of an array that may be absent. */
static inline const real *parameter_at(const real *array, size_t i) { return array ? array + i : NULL; }
static inline real *statistic_at(real *array, size_t i) { return array ? array + i : NULL; }

static inline real moved(real running, real momentum, real value)
{
    if (momentum == 0)
        return running;
    return momentum == 1 ? value : (1 - momentum) * running + momentum * value;
}

#endif
