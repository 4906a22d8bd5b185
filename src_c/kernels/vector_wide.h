/* The careful way for one vector: any p, any finite magnitude, and those that hold a NaN or an infinity, which become NaN
 * as a whole. Everything in acc, over any strided vector, on data scaled by powers of two:
 *
 *     t = x / 2^k, d = dy / 2^j, largest |t| and |d| between 1/2 and 1
 *     norm = 2^k * m * (sum (|t| / m)^p)^(1/p), m = max |t|
 *
 * Sums are compensated. A vector of zeros without eps has y = 0 and dx = 0. */
#ifndef CN_VECTOR_WIDE_H
#define CN_VECTOR_WIDE_H

#include "power.h"
#include "vector_sums.h"

/* Element i of a vector is x[i / length * stride + i % length]. */
typedef struct {
    size_t count, length, stride;
} strided_vector;

static inline size_t element_at(const strided_vector *v, size_t i)
{
    if (v->length == v->count)
        return i;
    return v->length == 1 ? i * v->stride : i / v->length * v->stride + i % v->length;
}

typedef struct {
    real *y;            /* or NULL on the way forward */
    const real *x, *dy; /* dy: NULL on the way forward */
    strided_vector shape;
    norm_kind kind;
    acc p, eps, factor;
} wide_vector_job;

/* The largest magnitude, NaN if one is not finite. */
static acc wide_largest(const real *x, const strided_vector *shape)
{
    acc largest = 0, nothing = 0;
    for (size_t i = 0; i < shape->count; i++) {
        acc value = (acc)x[element_at(shape, i)], a = fabs(value);
        largest = a > largest ? a : largest;
        nothing += value - value;
    }
    return largest + nothing;
}

/* 2^-k in two factors, since it can be out of range itself. */
typedef struct {
    acc first, second;
} wide_factors;

static inline wide_factors factors_of(int k) { return (wide_factors){ldexp(1, -(k / 2)), ldexp(1, -(k - k / 2))}; }
static inline acc reduced(acc x, wide_factors f) { return x * f.first * f.second; }

/* So many elements at a time, for the powers' sake: they are taken in vectors. */
#define WIDE_PIECE 64
static inline size_t piece_at(const strided_vector *shape, size_t start)
{
    return shape->count - start < WIDE_PIECE ? shape->count - start : WIDE_PIECE;
}

/* Of t: its norm, and how many elements have the largest magnitude. */
typedef struct {
    int exponent;
    wide_factors reduce;
    acc norm, ties;
} wide_norm;

static wide_norm norm_of_vector(const wide_vector_job *w, acc largest)
{
    wide_norm n = {0};
    acc most = frexp(largest, &n.exponent), one = most > 0 ? most : 1, sum = 0, lost = 0;
    n.reduce = factors_of(n.exponent);
    for (size_t start = 0; start < w->shape.count; start += WIDE_PIECE) {
        size_t count = piece_at(&w->shape, start);
        acc terms[WIDE_PIECE];
        for (size_t i = 0; i < count; i++) {
            acc x = fabs((acc)w->x[element_at(&w->shape, start + i)]), t = reduced(x, n.reduce);
            n.ties += x == largest;
            terms[i] = w->kind == NORM_TWO ? t * t : w->kind == NORM_ANY ? t / one : t;
        }
        if (w->kind == NORM_ANY)
            take_powers(terms, count, w->p);
        for (size_t i = 0; i < count; i++)
            lost += two_sum(&sum, terms[i]);
    }
    sum += lost;
    n.norm = w->kind == NORM_TWO   ? sqrt(sum)
             : w->kind == NORM_ONE ? sum
             : w->kind == NORM_MAX ? most
                                   : most * root_of(sum, w->p);
    return n;
}

/* The gradient of the norm at x = 2^k t, for a piece from `start` on. t alone may have vanished. */
static void directions_of(acc *direction, const wide_vector_job *w, const wide_norm *n, acc largest, size_t start)
{
    size_t count = piece_at(&w->shape, start);
    acc t[WIDE_PIECE];
    for (size_t i = 0; i < count; i++) {
        acc x = w->x[element_at(&w->shape, start + i)], sign = x > 0 ? 1 : x < 0 ? -1 : 0;
        t[i] = reduced(x, n->reduce);
        direction[i] = w->kind == NORM_TWO   ? t[i] / n->norm
                       : w->kind == NORM_ONE ? sign
                       : w->kind == NORM_MAX ? (fabs(x) == largest ? sign / n->ties : 0)
                                             : fabs(t[i]) / n->norm;
    }
    if (w->kind != NORM_ANY)
        return;
    take_powers(direction, count, w->p - 1);
    for (size_t i = 0; i < count; i++)
        direction[i] = t[i] > 0 ? direction[i] : t[i] < 0 ? -direction[i] : 0;
}

/* Where the norm is below eps: no gradient goes through it. */
static void divide_by_eps(const wide_vector_job *w)
{
    const real *from = w->dy ? w->dy : w->x;
    for (size_t i = 0; w->y && i < w->shape.count; i++) {
        size_t at = element_at(&w->shape, i);
        w->y[at] = w->eps > 0 ? (real)((acc)from[at] / w->eps) : 0;
    }
}

/* sum(dy * x) / norm, times 2^-j. */
static acc wide_slope(const wide_vector_job *w, const wide_norm *n, wide_factors reduce_dy)
{
    acc sum = 0, lost = 0;
    for (size_t i = 0; i < w->shape.count; i++) {
        size_t at = element_at(&w->shape, i);
        acc product = reduced((acc)w->x[at], n->reduce) / n->norm * reduced((acc)w->dy[at], reduce_dy);
        lost += two_sum(&sum, product);
    }
    return sum + lost;
}

/* dx; returns the gradient of the factor. */
static acc wide_gradient_of_vector(const wide_vector_job *w, const wide_norm *n, acc largest, acc most_dy)
{
    int j = 0, g = 0;
    frexp(most_dy, &j);
    wide_factors reduce_dy = factors_of(j);
    acc slope = wide_slope(w, n, reduce_dy), factor = frexp(w->factor, &g), direction[WIDE_PIECE];
    for (size_t i = 0; i < w->shape.count; i++) {
        size_t at = element_at(&w->shape, i);
        if (i % WIDE_PIECE == 0)
            directions_of(direction, w, n, largest, i);
        acc rest = reduced((acc)w->dy[at], reduce_dy) - direction[i % WIDE_PIECE] * slope;
        acc value = w->shape.count == 1 ? 0 : rest / n->norm;
        w->y[at] = (real)ldexp(value * factor, j - n->exponent + g);
    }
    return ldexp(slope, j);
}

/* Writes y, unless that is NULL, or dx; returns the norm or, with dy, the gradient of the factor. */
CN_NOINLINE static acc wide_vector(const wide_vector_job *w)
{
    acc largest = wide_largest(w->x, &w->shape), most_dy = w->dy ? wide_largest(w->dy, &w->shape) : 0;
    acc nothing = (largest - largest) + (most_dy - most_dy) + (w->factor - w->factor);
    if (nothing != 0) {
        for (size_t i = 0; w->y && i < w->shape.count; i++)
            w->y[element_at(&w->shape, i)] = (real)NAN;
        return NAN;
    }
    wide_norm n = norm_of_vector(w, largest);
    acc norm = ldexp(n.norm, n.exponent);
    if (n.norm == 0 || norm < w->eps) {
        divide_by_eps(w);
        return w->dy ? 0 : norm;
    }
    if (w->dy)
        return wide_gradient_of_vector(w, &n, largest, most_dy);
    for (size_t i = 0; w->y && i < w->shape.count; i++) {
        size_t at = element_at(&w->shape, i);
        w->y[at] = (real)(reduced((acc)w->x[at], n.reduce) / n.norm * w->factor);
    }
    return norm;
}

#endif
