/* Moments of the columns of a contiguous matrix, all columns side by side: what channels-last data and (N, C) need.
 *
 * The same arithmetic as moments.h, with a column in each lane: around a guess of the mean, eight rows are added in a
 * tree before they join the sums in acc. A block is 128 rows of a tile of columns, which stays in the second cache; its
 * first guess is the mean so far (for the first block, the mean of some of its rows), and a column whose guess was far off
 * is summed again, alone in its decision, so no column's bits depend on another's. Blocks are merged into a piece, pieces
 * in order into the whole.
 */
#ifndef CN_COLUMNS_H
#define CN_COLUMNS_H

#include "column_plan.h"
#include "moments.h"
#include "stream.h"

#define TILE_COLUMNS 512

/* Moments of many columns with one count: mean, mean_lo, m2, m2_lo. */
typedef struct {
    acc count;
    acc *mean, *mean_lo, *m2, *m2_lo;
} column_moments;

static inline size_t column_moments_size(size_t cols) { return 4 * cols * sizeof(acc); }

static inline column_moments place_moments(void *memory, size_t cols)
{
    acc *a = memory;
    return (column_moments){0, a, a + cols, a + 2 * cols, a + 3 * cols};
}

/* The part of the columns from `first` on. */
static inline column_moments moments_from(column_moments m, size_t first)
{
    return (column_moments){m.count, m.mean + first, m.mean_lo + first, m.m2 + first, m.m2_lo + first};
}

/* Sums of one block of a tile around `shift`; lost: what rounding took, of double data. */
typedef struct {
    acc sum[TILE_COLUMNS], square_sum[TILE_COLUMNS], sum_lost[TILE_COLUMNS], square_lost[TILE_COLUMNS];
    real shift[TILE_COLUMNS];
} column_tile;

/* `far`: x comes from beyond this core's caches, and the next eight rows are fetched meanwhile. */
static void tile_sums(column_tile *w, const real *x, size_t stride, size_t rows, size_t cols, bool far)
{
    acc *s = w->sum, *q = w->square_sum, *s_lost = w->sum_lost, *q_lost = w->square_lost;
    const real *shift = w->shift;
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

/* Of so many rows the guess is made: few, but enough that of normal data one column in ten thousand has the guess too far
 * off for SHIFT_LIMIT. They are eights, spread over the block. */
static inline size_t guess_rows(size_t rows)
{
    size_t eights = divide_up(36 * rows, 8 * (36 + rows));
    return eights * 8 < rows ? eights * 8 : rows / 8 * 8;
}

/* The mean of each column of a block, roughly: sums in `real`. */
static void guess_columns(real *shift, const real *x, size_t stride, size_t rows, size_t cols)
{
    size_t used = guess_rows(rows);
    if (used == 0) {
        memcpy(shift, x, cols * sizeof(real));
        return;
    }
    memset(shift, 0, cols * sizeof(real));
    for (size_t r = 0; r < used; r += 8) {
        const real *p = x + r * rows / used * stride;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            shift[c] += ((p[c] + p[c + stride]) + (p[c + 2 * stride] + p[c + 3 * stride])) +
                        ((p[c + 4 * stride] + p[c + 5 * stride]) + (p[c + 6 * stride] + p[c + 7 * stride]));
    }
    for (size_t c = 0; c < cols; c++)
        shift[c] /= (real)used;
}

/* sum / n; of float data by the inverse, since acc has digits to spare. */
CN_INLINE acc over(acc sum, acc n, acc inverse) { return sizeof(real) < sizeof(acc) ? sum * inverse : sum / n; }

/* Moves the guess of each column that was too far off to the mean found; true if there was one. */
static bool correct_shifts(column_tile *w, size_t rows, size_t cols)
{
    const acc *s = w->sum, *q = w->square_sum;
    acc n = (acc)rows, inverse = 1 / n;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t c = 0; c < cols; c++)
        bad |= q[c] > SHIFT_LIMIT * (q[c] - s[c] * over(s[c], n, inverse));
    if (!bad)
        return false;
    for (size_t c = 0; c < cols; c++)
        if (q[c] > SHIFT_LIMIT * (q[c] - s[c] * over(s[c], n, inverse)))
            w->shift[c] = (real)(w->shift[c] + s[c] / n);
    return true;
}

/* The sums of one block, `rows` high, as moments; and merged into those of the rows before (see merge in moments.h). */
static void first_block(column_moments m, const column_tile *w, size_t rows, size_t cols)
{
    const acc *s = w->sum, *q = w->square_sum;
    acc n = (acc)rows, inverse = 1 / n;
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        acc offset = over(s[c], n, inverse), centred = q[c] - s[c] * offset, mean = w->shift[c];
        m.mean_lo[c] = two_sum(&mean, offset);
        m.mean[c] = mean;
        m.m2[c] = centred < 0 ? 0 : centred;
        m.m2_lo[c] = 0;
    }
}

static void next_block(column_moments m, const column_tile *w, size_t rows, size_t cols)
{
    const acc *s = w->sum, *q = w->square_sum;
    acc n = (acc)rows, inverse = 1 / n, before = m.count, share = n / (before + n);
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        acc offset = over(s[c], n, inverse), centred = q[c] - s[c] * offset;
        acc mean = w->shift[c], mean_lo = two_sum(&mean, offset);
        acc old = m.mean[c], old_lo = m.mean_lo[c], m2 = m.m2[c], m2_lo = m.m2_lo[c];
        acc delta = (mean - old) + (mean_lo - old_lo), step = delta * share;
        m2_lo += two_sum(&m2, centred < 0 ? 0 : centred);
        m2_lo += two_sum(&m2, delta * step * before);
        old_lo += two_sum(&old, step);
        m.mean[c] = old, m.mean_lo[c] = old_lo, m.m2[c] = m2, m.m2_lo[c] = m2_lo;
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

/* Moments of a block of a tile, merged into m. */
static void column_block(column_moments m, column_tile *w, const real *x, size_t stride, size_t rows, size_t cols,
                         bool far)
{
    if (m.count == 0)
        guess_columns(w->shift, x, stride, rows, cols);
    else
        for (size_t c = 0; c < cols; c++)
            w->shift[c] = (real)m.mean[c];
    tile_sums(w, x, stride, rows, cols, far);
    for (int round = 1; round < CENTRE_ROUNDS && correct_shifts(w, rows, cols); round++)
        tile_sums(w, x, stride, rows, cols, false);
    if (m.count == 0)
        first_block(m, w, rows, cols);
    else
        next_block(m, w, rows, cols);
}

/* Moments of `rows` rows into m. Not inlined: it needs a deep stack. */
CN_NOINLINE static void column_piece(column_moments *m, const real *x, size_t stride, size_t rows, size_t cols,
                                     bool far)
{
    column_tile tile;
    m->count = 0;
    for (size_t r = 0; r < rows; r += COLUMN_BLOCK) {
        size_t n = rows - r < COLUMN_BLOCK ? rows - r : COLUMN_BLOCK;
        for (size_t c = 0; c < cols; c += TILE_COLUMNS)
            column_block(moments_from(*m, c), &tile, x + r * stride + c, stride, n,
                         cols - c < TILE_COLUMNS ? cols - c : TILE_COLUMNS, far);
        m->count += (acc)n;
    }
}

#endif
