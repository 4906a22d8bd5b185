/* What a norm is made of: sums over the elements of vectors, and with a second array their products with it.
 *
 *     p = 2     size = sum(x^2)        p = 1     size = sum(|x|)        p = inf     size = max(|x|), and how many have it
 *     dot = sum(x * dy)
 *
 * A contiguous run goes through LANES independent lanes, folded in order.
 * Four elements are added in a tree in `real` before they join a sum in acc; sums of double data are compensated
 * (moments.h). Any other p has no sums here: its vectors take the careful way of vector_wide.h.
 */
#ifndef CN_VECTOR_SUMS_H
#define CN_VECTOR_SUMS_H

#include "moments.h"
#include "stream.h"

typedef enum { NORM_TWO, NORM_ONE, NORM_MAX, NORM_ANY } norm_kind;

static inline norm_kind kind_of(acc p)
{
    return p == 2 ? NORM_TWO : p == 1 ? NORM_ONE : p > DBL_MAX ? NORM_MAX : NORM_ANY;
}

typedef struct {
    acc size, size_lost, dot, dot_lost, ties;
} vector_sums;

CN_INLINE real magnitude(real x)
{
    return sizeof(real) == sizeof(float) ? (real)fabsf((float)x) : (real)fabs((double)x);
}

/* The largest magnitude, and how many have it. */
CN_INLINE void join_largest(acc *size, acc *ties, acc other, acc other_ties)
{
    acc both = *size == other ? *ties + other_ties : *ties;
    *ties = other > *size ? other_ties : both;
    *size = other > *size ? other : *size;
}

CN_INLINE void join_sums(vector_sums *a, const vector_sums *b, norm_kind kind)
{
    if (kind == NORM_MAX) {
        join_largest(&a->size, &a->ties, b->size, b->ties);
        a->size_lost += b->size_lost;
    } else {
        add_to(&a->size, &a->size_lost, b->size);
        a->size_lost += b->size_lost;
    }
    add_to(&a->dot, &a->dot_lost, b->dot);
    a->dot_lost += b->dot_lost;
}

/* Lanes of a run. `most`, `ties` and `nothing`, which is 0 or of non-finite data NaN, are those of p = inf. */
typedef struct {
    acc size[LANES], size_lost[LANES], dot[LANES], dot_lost[LANES];
    real most[LANES], ties[LANES], nothing[LANES];
} vector_lanes;

CN_INLINE real size_term(real x, norm_kind kind) { return kind == NORM_TWO ? x * x : magnitude(x); }

CN_INLINE void lane_largest(vector_lanes *s, size_t l, real x)
{
    real m = magnitude(x), most = s->most[l];
    real both = m == most ? s->ties[l] + 1 : s->ties[l];
    s->ties[l] = m > most ? 1 : both;
    s->most[l] = m > most ? m : most;
    s->nothing[l] += x - x;
}

CN_INLINE void add_four(vector_lanes *s, const real *x, const real *dy, norm_kind kind)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++) {
        real x0 = x[l], x1 = x[l + LANES], x2 = x[l + 2 * LANES], x3 = x[l + 3 * LANES];
        if (kind == NORM_MAX) {
            lane_largest(s, l, x0), lane_largest(s, l, x1), lane_largest(s, l, x2), lane_largest(s, l, x3);
        } else {
            real a = size_term(x0, kind) + size_term(x1, kind), b = size_term(x2, kind) + size_term(x3, kind);
            add_to(&s->size[l], &s->size_lost[l], (acc)(a + b));
        }
        if (dy)
            add_to(&s->dot[l], &s->dot_lost[l],
                   (acc)((x0 * dy[l] + x1 * dy[l + LANES]) + (x2 * dy[l + 2 * LANES] + x3 * dy[l + 3 * LANES])));
    }
}

CN_INLINE void add_one(vector_lanes *s, const real *x, const real *dy, norm_kind kind)
{
#pragma omp simd
    for (size_t l = 0; l < LANES; l++) {
        if (kind == NORM_MAX)
            lane_largest(s, l, x[l]);
        else
            add_to(&s->size[l], &s->size_lost[l],
                   kind == NORM_TWO ? (acc)x[l] * (acc)x[l] : (acc)size_term(x[l], kind));
        if (dy)
            add_to(&s->dot[l], &s->dot_lost[l], (acc)x[l] * (acc)dy[l]);
    }
}

CN_INLINE vector_sums run_sums_of(const real *x, const real *dy, size_t n, norm_kind kind)
{
    vector_lanes s = {0};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        add_four(&s, x + i, dy ? dy + i : NULL, kind);
    for (; i + LANES <= n; i += LANES)
        add_one(&s, x + i, dy ? dy + i : NULL, kind);
    if (i < n) {
        real x_rest[LANES], dy_rest[LANES];
        pad_run(x_rest, x + i, n - i, 0);
        if (dy)
            pad_run(dy_rest, dy + i, n - i, 0);
        add_one(&s, x_rest, dy ? dy_rest : NULL, kind);
    }
    vector_sums sums = {.dot = dy ? fold_lanes(s.dot, s.dot_lost) : 0};
    if (kind == NORM_MAX)
        for (int l = 0; l < LANES; l++) {
            join_largest(&sums.size, &sums.ties, s.most[l], s.ties[l]);
            sums.size_lost += s.nothing[l];
        }
    else
        sums.size = fold_lanes(s.size, s.size_lost);
    return sums;
}

/* Of at most a few thousand elements, one after the other; without dy no product. */
static inline vector_sums run_sums(const real *x, const real *dy, size_t n, norm_kind kind)
{
    switch (kind) {
    case NORM_TWO:
        return dy ? run_sums_of(x, dy, n, NORM_TWO) : (vector_sums){.size = block_squares(x, n).m2};
    case NORM_ONE:
        return dy ? run_sums_of(x, dy, n, NORM_ONE) : run_sums_of(x, NULL, n, NORM_ONE);
    case NORM_MAX:
        return dy ? run_sums_of(x, dy, n, NORM_MAX) : run_sums_of(x, NULL, n, NORM_MAX);
    default:
        return (vector_sums){0};
    }
}

#endif
