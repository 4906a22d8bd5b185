/* Moments of the columns of a contiguous matrix, all columns side by side: what channels-last data and (N, C) need.
 *
 * The same arithmetic as moments.h, with a column in each lane: around a guess of the mean, eight rows are added in a
 * tree before they join the sums in acc. A block is 128 rows; its first guess is the mean so far (for the first block,
 * its own rough mean), and a column whose guess was far off is summed again, alone in its decision, so no
 * column's bits depend on another's. Blocks are merged into a piece, pieces in order into the whole.
 */
#ifndef CN_COLUMNS_H
#define CN_COLUMNS_H

#include "moments.h"
#include "span.h"
#include "stream.h"

#define COLUMN_BLOCK 128
#define COLUMN_PIECE 65536
#define TILE_COLUMNS 512

/* Moments of many columns with one count: mean, mean_lo, m2, m2_lo. */
typedef struct {
    acc count;
    acc *mean, *mean_lo, *m2, *m2_lo;
} column_moments;

typedef struct {
    column_moments moments;
    acc *sum, *square_sum, *sum_lost, *square_lost; /* lost: what rounding took, of double data */
    real *shift;
} column_scratch;

static inline size_t column_moments_size(size_t cols) { return 4 * cols * sizeof(acc); }
static inline size_t column_scratch_size(size_t cols) { return 9 * cols * sizeof(acc); }

static inline column_moments place_moments(void *memory, size_t cols)
{
    acc *a = memory;
    return (column_moments){0, a, a + cols, a + 2 * cols, a + 3 * cols};
}

static inline column_scratch place_scratch(void *memory, size_t cols)
{
    acc *a = memory;
    return (column_scratch){place_moments(a, cols), a + 4 * cols, a + 5 * cols,
                            a + 6 * cols,           a + 7 * cols, (real *)(a + 8 * cols)};
}

/* The part of the columns from `first` on. */
static inline column_moments moments_from(column_moments m, size_t first)
{
    return (column_moments){m.count, m.mean + first, m.mean_lo + first, m.m2 + first, m.m2_lo + first};
}

/* `far`: x comes from beyond this core's caches, and the next eight rows are fetched meanwhile. */
static void tile_sums(const column_scratch *w, size_t first, const real *x, size_t stride, size_t rows, size_t cols,
                      bool far)
{
    acc *s = w->sum + first, *q = w->square_sum + first, *s_lost = w->sum_lost + first,
        *q_lost = w->square_lost + first;
    const real *shift = w->shift + first;
    memset(s_lost, 0, cols * sizeof(acc));
    memset(q_lost, 0, cols * sizeof(acc));
    memset(s, 0, cols * sizeof(acc));
    memset(q, 0, cols * sizeof(acc));
    size_t r = 0;
    for (; r + 8 <= rows; r += 8) {
        const real *p = x + r * stride;
        for (size_t k = 0; far && k < 8; k++)
            fetch_far(p + k * stride, cols, 8 * stride);
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            real d0 = p[c] - shift[c], d1 = p[c + stride] - shift[c];
            real d2 = p[c + 2 * stride] - shift[c], d3 = p[c + 3 * stride] - shift[c];
            real d4 = p[c + 4 * stride] - shift[c], d5 = p[c + 5 * stride] - shift[c];
            real d6 = p[c + 6 * stride] - shift[c], d7 = p[c + 7 * stride] - shift[c];
            add_to(&s[c], &s_lost[c], (acc)(((d0 + d1) + (d2 + d3)) + ((d4 + d5) + (d6 + d7))));
            add_to(&q[c], &q_lost[c],
                   (acc)(((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)) + ((d4 * d4 + d5 * d5) + (d6 * d6 + d7 * d7))));
        }
    }
    for (; r < rows; r++) {
        const real *p = x + r * stride;
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            acc d = p[c] - shift[c];
            add_to(&s[c], &s_lost[c], d);
            add_to(&q[c], &q_lost[c], d * d);
        }
    }
    if (sizeof(real) == sizeof(acc))
        for (size_t c = 0; c < cols; c++)
            s[c] += s_lost[c], q[c] += q_lost[c];
}

/* In tiles of columns, so that eight rows of one and its sums stay in the first cache. */
static void column_sums(const column_scratch *w, const real *x, size_t stride, size_t rows, size_t cols, bool far)
{
    for (size_t c = 0; c < cols; c += TILE_COLUMNS) {
        size_t n = cols - c < TILE_COLUMNS ? cols - c : TILE_COLUMNS;
        tile_sums(w, c, x + c, stride, rows, n, far);
    }
}

/* The mean of each column of the first block, roughly: sums in `real`, eight rows at a time. */
static void guess_columns(const column_scratch *w, const real *x, size_t stride, size_t rows, size_t cols)
{
    real *shift = w->shift;
    memcpy(shift, x, cols * sizeof(real));
    if (rows < 8)
        return;
    memset(shift, 0, cols * sizeof(real));
    size_t r = 0;
    for (; r + 8 <= rows; r += 8) {
        const real *p = x + r * stride;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            shift[c] += ((p[c] + p[c + stride]) + (p[c + 2 * stride] + p[c + 3 * stride])) +
                        ((p[c + 4 * stride] + p[c + 5 * stride]) + (p[c + 6 * stride] + p[c + 7 * stride]));
    }
    for (size_t c = 0; c < cols; c++)
        shift[c] /= (real)r;
}

/* Moves the guess of each column that was too far off to the mean found; true if there was one. */
static bool correct_shifts(const column_scratch *w, size_t rows, size_t cols)
{
    const acc *s = w->sum, *q = w->square_sum;
    acc n = (acc)rows;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t c = 0; c < cols; c++)
        bad |= q[c] > SHIFT_LIMIT * (q[c] - s[c] * (s[c] / n));
    if (!bad)
        return false;
    for (size_t c = 0; c < cols; c++)
        if (q[c] > SHIFT_LIMIT * (q[c] - s[c] * (s[c] / n)))
            w->shift[c] = (real)(w->shift[c] + s[c] / n);
    return true;
}

/* The sums of one block, `rows` high, merged into the moments of the scratch (see merge in moments.h). */
static void merge_block(column_scratch *w, size_t rows, size_t cols)
{
    const acc *s = w->sum, *q = w->square_sum;
    const real *shift = w->shift;
    acc *mean = w->moments.mean, *mean_lo = w->moments.mean_lo, *m2 = w->moments.m2, *m2_lo = w->moments.m2_lo;
    acc n = (acc)rows, before = w->moments.count, share = n / (before + n);
    w->moments.count = before + n;
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        acc offset = s[c] / n, centred = q[c] - s[c] * offset, positive = centred < 0 ? 0 : centred;
        acc block_mean = shift[c], block_lo = two_sum(&block_mean, offset);
        acc old = before ? mean[c] : block_mean, old_lo = before ? mean_lo[c] : block_lo;
        acc sum2 = before ? m2[c] : 0, sum2_lo = before ? m2_lo[c] : 0;
        acc delta = (block_mean - old) + (block_lo - old_lo), step = delta * share;
        sum2_lo += two_sum(&sum2, positive);
        sum2_lo += two_sum(&sum2, delta * step * before);
        old_lo += two_sum(&old, step);
        mean[c] = old, mean_lo[c] = old_lo, m2[c] = sum2, m2_lo[c] = sum2_lo;
    }
}

static void merge_columns(column_moments *a, const column_moments *b, size_t cols)
{
    acc before = a->count, count = before + b->count, share = b->count / count;
    a->count = count;
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        acc mean = before ? a->mean[c] : b->mean[c], mean_lo = before ? a->mean_lo[c] : b->mean_lo[c];
        acc m2 = before ? a->m2[c] : 0, m2_lo = before ? a->m2_lo[c] : 0;
        acc delta = (b->mean[c] - mean) + (b->mean_lo[c] - mean_lo), step = delta * share;
        m2_lo += b->m2_lo[c];
        m2_lo += two_sum(&m2, b->m2[c]);
        m2_lo += two_sum(&m2, delta * step * before);
        mean_lo += two_sum(&mean, step);
        a->mean[c] = mean, a->mean_lo[c] = mean_lo, a->m2[c] = m2, a->m2_lo[c] = m2_lo;
    }
}

/* Moments of `rows` rows into w->moments. */
static void column_piece(column_scratch *w, const real *x, size_t stride, size_t rows, size_t cols, bool far)
{
    w->moments.count = 0;
    for (size_t r = 0; r < rows; r += COLUMN_BLOCK) {
        size_t n = rows - r < COLUMN_BLOCK ? rows - r : COLUMN_BLOCK;
        const real *block = x + r * stride;
        if (r == 0)
            guess_columns(w, block, stride, n, cols);
        else
            for (size_t c = 0; c < cols; c++)
                w->shift[c] = (real)w->moments.mean[c];
        column_sums(w, block, stride, n, cols, far);
        for (int round = 1; round < CENTRE_ROUNDS && correct_shifts(w, n, cols); round++)
            column_sums(w, block, stride, n, cols, false);
        merge_block(w, n, cols);
    }
}

#endif
