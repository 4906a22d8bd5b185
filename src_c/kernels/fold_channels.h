/* The lanes of several short channels' sums, folded side by side: the additions of fold_lanes (moments.h), in its order, of
 * which the last steps would leave most of a vector idle.
 */
#ifndef CN_FOLD_CHANNELS_H
#define CN_FOLD_CHANNELS_H

#include "gradient.h"

#define CHANNELS_TOGETHER 8
#define FOLDED (LANES / 4)

/* What two folds leave of one sum of each channel. */
typedef struct {
    acc sum[CHANNELS_TOGETHER][FOLDED], lost[CHANNELS_TOGETHER][FOLDED];
} folded_lanes;

typedef struct {
    folded_lanes t, g, gt;
} folded_channels;

CN_INLINE void fold_twice(folded_lanes *f, size_t c, const acc *sum, const acc *lost)
{
    acc a[LANES / 2], a_lost[LANES / 2];
    fold_halves(a, a_lost, sum, lost, LANES / 2);
    fold_halves(f->sum[c], f->lost[c], a, a_lost, LANES / 4);
}

CN_INLINE void fold_channel(folded_channels *f, size_t c, const gradient_lanes *s)
{
    fold_twice(&f->t, c, s->t, s->t_lost);
    fold_twice(&f->g, c, s->g, s->g_lost);
    fold_twice(&f->gt, c, s->gt, s->gt_lost);
}

/* The two folds that are left, of all channels. */
CN_INLINE void fold_rest(acc *to, const folded_lanes *f)
{
#pragma omp simd
    for (size_t c = 0; c < CHANNELS_TOGETHER; c++) {
        const acc *s = f->sum[c], *l = f->lost[c];
        acc a = s[0], b = s[1], a_lost = 0, b_lost = 0;
        if (sizeof(real) == sizeof(acc))
            a_lost = l[0] + l[2], b_lost = l[1] + l[3];
        add_to(&a, &a_lost, s[2]);
        add_to(&b, &b_lost, s[3]);
        a_lost += b_lost;
        add_to(&a, &a_lost, b);
        to[c] = sizeof(real) == sizeof(acc) ? a + a_lost : a;
    }
}

#endif
