/* The lanes of several short groups' sums (channels, rows), folded side by side: the additions of fold_lanes (moments.h), in
 * its order, of which the last steps would leave most of a vector idle.
 */
#ifndef CN_FOLD_TOGETHER_H
#define CN_FOLD_TOGETHER_H

#include "gradient.h"

#define TOGETHER_MOST 8
#define FOLDED (LANES / 4)

/* What two folds leave of one sum of each group. */
typedef struct {
    acc sum[TOGETHER_MOST][FOLDED], lost[TOGETHER_MOST][FOLDED];
} folded_lanes;

typedef struct {
    folded_lanes t, g, gt;
} folded_groups;

CN_INLINE void fold_twice(folded_lanes *f, size_t i, const acc *sum, const acc *lost)
{
    acc a[LANES / 2], a_lost[LANES / 2];
    fold_halves(a, a_lost, sum, lost, LANES / 2);
    fold_halves(f->sum[i], f->lost[i], a, a_lost, LANES / 4);
}

CN_INLINE void fold_group(folded_groups *f, size_t i, const gradient_lanes *s, const bool centred)
{
    if (centred) {
        fold_twice(&f->t, i, s->t, s->t_lost);
        fold_twice(&f->g, i, s->g, s->g_lost);
    }
    fold_twice(&f->gt, i, s->gt, s->gt_lost);
}

/* The same of the terms of a short run that is all of its group. */
CN_INLINE void fold_terms(folded_groups *f, size_t i, const run_terms *a)
{
    gradient_lanes lanes;
#pragma omp simd
    for (size_t l = 0; l < LANES; l++)
        set_lane(&lanes, l, (lane_terms){a->t[l], a->g[l], a->gt[l]});
    fold_group(f, i, &lanes, true);
}

/* The two folds that are left, of n groups, a constant. */
CN_INLINE void fold_rest(acc *to, const folded_lanes *f, const size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const acc *s = f->sum[i], *l = f->lost[i];
        acc a = s[0], b = s[1], a_lost = 0, b_lost = 0;
        if (sizeof(real) == sizeof(acc))
            a_lost = l[0] + l[2], b_lost = l[1] + l[3];
        add_to(&a, &a_lost, s[2]);
        add_to(&b, &b_lost, s[3]);
        a_lost += b_lost;
        add_to(&a, &a_lost, b);
        to[i] = sizeof(real) == sizeof(acc) ? a + a_lost : a;
    }
}

/* Their sums, side by side; those of t and g if the norm is `centred`, a constant. */
typedef struct {
    acc t[TOGETHER_MOST], g[TOGETHER_MOST], gt[TOGETHER_MOST];
} sums_together;

CN_INLINE void fold_groups(sums_together *to, const folded_groups *f, const size_t n, const bool centred)
{
    if (centred) {
        fold_rest(to->t, &f->t, n);
        fold_rest(to->g, &f->g, n);
    }
    fold_rest(to->gt, &f->gt, n);
}

#endif
