/* The sums of vector_sums.h, of vectors side by side: each column is a lane of its own, rows are added four at a time, and
 * the columns of a vector are joined in order.
 */
#ifndef CN_VECTOR_COLUMN_SUMS_H
#define CN_VECTOR_COLUMN_SUMS_H

#include "vector_sums.h"

typedef struct {
    acc *size, *size_lost, *dot, *dot_lost, *ties;
} column_sums;

#define SUMS_OF_A_COLUMN 5

static inline column_sums place_column_sums(acc *memory, size_t cols)
{
    return (column_sums){memory, memory + cols, memory + 2 * cols, memory + 3 * cols, memory + 4 * cols};
}

static inline column_sums column_sums_from(column_sums s, size_t first)
{
    return (column_sums){s.size + first, s.size_lost + first, s.dot + first, s.dot_lost + first, s.ties + first};
}

static inline void clear_column_sums(column_sums s, size_t cols)
{
    memset(s.size, 0, cols * sizeof(acc));
    memset(s.size_lost, 0, cols * sizeof(acc));
    memset(s.dot, 0, cols * sizeof(acc));
    memset(s.dot_lost, 0, cols * sizeof(acc));
    memset(s.ties, 0, cols * sizeof(acc));
}

CN_INLINE void column_element(column_sums s, size_t c, real x, const real *dy, norm_kind kind)
{
    if (kind == NORM_MAX) {
        join_largest(&s.size[c], &s.ties[c], magnitude(x), 1);
        s.size_lost[c] += x - x;
    } else {
        add_to(&s.size[c], &s.size_lost[c], kind == NORM_TWO ? (acc)x * (acc)x : (acc)size_term(x, kind));
    }
    if (dy)
        add_to(&s.dot[c], &s.dot_lost[c], (acc)x * (acc)dy[c]);
}

/* So many rows ahead their parts are fetched, where they lie apart: the processor's own prefetching keeps to lines that
 * follow each other. */
#define ROWS_AHEAD 32

CN_INLINE void add_rows(column_sums s, const real *x, const real *dy, size_t stride, size_t rows, size_t cols,
                        norm_kind kind)
{
    size_t r = 0;
    for (; kind != NORM_MAX && r + 4 <= rows; r += 4) {
        const real *p = x + r * stride, *q = dy ? dy + r * stride : NULL;
        for (size_t i = r; i < r + 4; i++) {
            size_t ahead = stride > cols && i + ROWS_AHEAD < rows ? ROWS_AHEAD * stride : 0;
            fetch_far(x + i * stride, cols, ahead);
            if (dy)
                fetch_far(dy + i * stride, cols, ahead);
        }
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            real x0 = p[c], x1 = p[c + stride], x2 = p[c + 2 * stride], x3 = p[c + 3 * stride];
            real a = size_term(x0, kind) + size_term(x1, kind), b = size_term(x2, kind) + size_term(x3, kind);
            add_to(&s.size[c], &s.size_lost[c], (acc)(a + b));
            if (dy)
                add_to(&s.dot[c], &s.dot_lost[c],
                       (acc)((x0 * q[c] + x1 * q[c + stride]) + (x2 * q[c + 2 * stride] + x3 * q[c + 3 * stride])));
        }
    }
    for (; r < rows; r++) {
        const real *p = x + r * stride, *q = dy ? dy + r * stride : NULL;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            column_element(s, c, p[c], q, kind);
    }
}

/* Of `rows` rows. */
static inline void sum_columns(column_sums s, const real *x, const real *dy, size_t stride, size_t rows, size_t cols,
                               norm_kind kind)
{
    clear_column_sums(s, cols);
    if (kind == NORM_TWO && dy)
        add_rows(s, x, dy, stride, rows, cols, NORM_TWO);
    else if (kind == NORM_TWO)
        add_rows(s, x, NULL, stride, rows, cols, NORM_TWO);
    else if (kind == NORM_ONE && dy)
        add_rows(s, x, dy, stride, rows, cols, NORM_ONE);
    else if (kind == NORM_ONE)
        add_rows(s, x, NULL, stride, rows, cols, NORM_ONE);
    else if (kind == NORM_MAX && dy)
        add_rows(s, x, dy, stride, rows, cols, NORM_MAX);
    else if (kind == NORM_MAX)
        add_rows(s, x, NULL, stride, rows, cols, NORM_MAX);
}

static inline vector_sums sums_of_column(column_sums s, size_t c)
{
    return (vector_sums){s.size[c], s.size_lost[c], s.dot[c], s.dot_lost[c], s.ties[c]};
}

/* The sums of the vector whose columns are `first` to `first + n - 1`. */
static inline vector_sums sums_of_columns(column_sums s, size_t first, size_t n, norm_kind kind)
{
    vector_sums sums = {0};
    for (size_t c = first; c < first + n; c++) {
        vector_sums column = sums_of_column(s, c);
        join_sums(&sums, &column, kind);
    }
    return sums;
}

CN_INLINE void join_columns_of(column_sums a, column_sums b, size_t cols, norm_kind kind)
{
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        vector_sums one = sums_of_column(a, c), other = sums_of_column(b, c);
        join_sums(&one, &other, kind);
        a.size[c] = one.size, a.size_lost[c] = one.size_lost;
        a.dot[c] = one.dot, a.dot_lost[c] = one.dot_lost;
        a.ties[c] = one.ties;
    }
}

/* Those of further rows, b, into a. */
static inline void join_columns(column_sums a, column_sums b, size_t cols, norm_kind kind)
{
    if (kind == NORM_MAX)
        join_columns_of(a, b, cols, NORM_MAX);
    else
        join_columns_of(a, b, cols, NORM_TWO);
}

#endif
