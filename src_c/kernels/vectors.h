/* Norms of vectors, and what is divided by them: the job of normalize and weight_norm, both ways.
 *
 * An array (matrices, runs, vectors, length) is contiguous; a vector is what shares the first and the third index: `runs`
 * runs of `length` elements, `stride` apart. norm = (sum |x|^p)^(1/p), n = max(norm, eps).
 *
 *     y  = x * scale                              scale = factor / n
 *     dx = (dy - direction * slope) * scale       slope = sum(dy * x) / n, and 0 where norm < eps
 *
 * direction is the gradient of the norm: x / norm for p = 2; the sign of x for p = 1; for p = inf the sign at the largest
 * magnitudes, over their number. The gradient of the factor is the slope.
 *
 * Where these numbers may have left the range of `real`, or the data are not finite, a vector is not `fast` and takes
 * the careful way of vector_wide.h, as all do for other p.
 */
#ifndef CN_VECTORS_H
#define CN_VECTORS_H

#include "../parallel.h"
#include "stream.h"
#include "vector_wide.h"

typedef struct {
    size_t matrices, runs, vectors, length;
} vector_shape;

typedef struct {
    real *y;                     /* with dy, dx; NULL where nothing but the norms is asked for */
    real *noted;                 /* of each vector: its norm, or with dy the gradient of its factor; or NULL */
    const real *x, *dy, *factor; /* dy: NULL on the way forward; factor: one a vector, NULL for 1 */
    vector_shape shape;
    norm_kind kind;
    acc p, eps;
    cn_work work;
} vectors;

static inline size_t stride_of(const vector_shape *s) { return s->vectors * s->length; }
static inline size_t count_of(const vector_shape *s) { return s->matrices * s->vectors; }

static inline size_t vector_start(const vector_shape *s, size_t i)
{
    return i / s->vectors * (s->runs * stride_of(s)) + i % s->vectors * s->length;
}

/* `measure` is 1 / norm for p = 2, and the norm for p = inf, which an element is compared with. */
typedef struct {
    real measure, slope, scale;
    bool fast;
} vector_scale;

/* Between these bounds no square or product that matters to a norm was lost; a smaller norm is below eps if that is twice
 * the first one. */
#define NORM_LEAST (sizeof(real) == 4 ? 0x1p-50 : 0x1p-450)
#define NORM_MOST (sizeof(real) == 4 ? 0x1p+60 : 0x1p+490)

/* The same for sum(x * dy); a smaller one needs a dy that is not small, or nothing but zeros. */
#define DOT_LEAST (sizeof(real) == 4 ? 0x1p-100 : 0x1p-900)
#define DOT_MOST (sizeof(real) == 4 ? 0x1p+100 : 0x1p+900)
#define DY_LEAST (sizeof(real) == 4 ? 0x1p-30 : 0x1p-300)

/* Whether a sum of products that is all but zero can be believed: it is rarely asked for, and mostly answered at once. */
CN_NOINLINE static bool dy_is_large(const real *dy, const strided_vector *shape)
{
    bool zero = true;
    for (size_t i = 0; i < shape->count; i++) {
        acc a = fabs((acc)dy[element_at(shape, i)]);
        if (a >= DY_LEAST)
            return true;
        zero &= a == 0;
    }
    return zero;
}

/* What is asked of a vector, and its sums. `kind`, `backward` and `single`, a vector of one element, are constants where it
 * matters. */
typedef struct {
    acc size, dot, ties, factor, eps;
    norm_kind kind;
    bool backward, single;
} vector_question;

/* The numbers of a vector, and what is noted of it. Without branches: a loop over columns calls it. */
CN_INLINE vector_scale answer(vector_question q, acc *noted)
{
    acc norm = q.kind == NORM_TWO ? sqrt(q.size) : q.size;
    int small = norm < q.eps;
    acc n = small ? q.eps : norm, scale = q.factor / n, a = fabs(scale);
    int known = (norm >= NORM_LEAST) | ((norm < NORM_LEAST) & (q.eps >= 2 * NORM_LEAST));
    int normal = ((a >= REAL_MIN) & (a <= REAL_MAX)) | (q.factor == 0);
    vector_scale k = {.scale = (real)scale};
    k.fast = known & normal & (norm <= NORM_MOST);
    *noted = norm;
    if (q.backward) {
        acc slope = small ? 0 : q.dot / n, size = fabs(q.dot);
        *noted = slope;
        k.fast &= (size >= DOT_LEAST) & (size <= DOT_MOST);
        k.slope = (real)(q.kind == NORM_MAX ? slope / (q.ties > 0 ? q.ties : 1) : slope);
        k.measure = (real)(small ? 0 : q.kind == NORM_MAX ? norm : 1 / norm);
        k.scale = (q.single & !small) ? 0 : k.scale; /* the sign of one element has no gradient */
    }
    return k;
}

/* A vector that is not fast: either its sum of products is zero or almost, and can be believed; or it is written here and
 * now. */
CN_NOINLINE static void settle_vector(const vectors *v, const wide_vector_job *w, vector_question q, vector_scale *k,
                                      acc *noted)
{
    acc dot = q.dot;
    q.dot = 1;
    if (v->kind != NORM_ANY && w->dy && fabs(dot) < DOT_LEAST && dy_is_large(w->dy, &w->shape) &&
        answer(q, noted).fast) {
        q.dot = dot;
        *k = answer(q, noted);
        k->fast = true;
    } else {
        k->fast = false;
        *noted = wide_vector(w);
    }
}

static inline acc factor_of(const vectors *v, size_t i) { return v->factor ? (acc)v->factor[i] : 1; }

/* Of vector i, whose first elements are those of x, dy and y. */
static inline vector_scale finish_vector(const vectors *v, size_t i, const real *x, const real *dy, real *y,
                                         const vector_sums *s, const strided_vector *shape)
{
    acc factor = factor_of(v, i), noted;
    vector_question q = {s->size + s->size_lost, s->dot + s->dot_lost, s->ties, factor, v->eps, v->kind, dy != NULL,
                         shape->count == 1};
    vector_scale k = answer(q, &noted);
    if (!k.fast || v->kind == NORM_ANY)
        settle_vector(v, &(wide_vector_job){y, x, dy, *shape, v->kind, v->p, v->eps, factor}, q, &k, &noted);
    if (v->noted)
        v->noted[i] = (real)noted;
    return k;
}

CN_INLINE real gradient_of(real dy, real x, real measure, real slope, real scale, norm_kind kind)
{
    real part = kind == NORM_TWO ? x * measure * slope : x > 0 ? slope : x < 0 ? -slope : 0;
    if (kind == NORM_MAX)
        part = magnitude(x) == measure ? part : 0;
    return (dy - part) * scale;
}

#endif
