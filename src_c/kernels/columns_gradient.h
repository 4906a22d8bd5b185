/* The two passes over a matrix of gradients, all columns side by side.
 *
 * Sums:   of each column, t = (x - mean) * rstd, dy and dy * t, together: eight rows are added in a tree in `real`, and
 *         eight such sums, before they join the sums in acc (compensated, of double data). See gradient.h.
 * Output: dx = ((dy * weight - offset) - (x - mean) * x_slope) * rstd, or where mean and rstd are constants
 *         dx = dy * weight, the weight then times rstd already.
 *
 * Each column is added up by itself, by eights of rows, or fours, whatever the instruction set: the same bits everywhere.
 */
#ifndef CN_COLUMNS_GRADIENT_H
#define CN_COLUMNS_GRADIENT_H

#include "column_plan.h"
#include "gradient.h"
#include "stream.h"

#define TILE_GRADIENTS 512

typedef struct {
    acc *t, *g, *gt;
} column_sums;

static inline size_t column_sums_size(size_t cols) { return 3 * cols * sizeof(acc); }

static inline column_sums place_sums(void *memory, size_t cols)
{
    acc *a = memory;
    return (column_sums){a, a + cols, a + 2 * cols};
}

static inline column_sums sums_from(column_sums s, size_t first)
{
    return (column_sums){s.t + first, s.g + first, s.gt + first};
}

/* What the output needs of each column. Kept: 1 where the careful way has written it already. */
typedef struct {
    real *mean, *rstd, *weight, *x_slope, *offset, *hat_lo;
    unsigned char *kept;
} gradient_columns;

static inline size_t gradient_columns_size(size_t cols)
{
    return divide_up(cols * (6 * sizeof(real) + 1), sizeof(acc)) * sizeof(acc);
}

static inline gradient_columns place_columns(void *memory, size_t cols)
{
    real *r = memory;
    return (gradient_columns){
        r, r + cols, r + 2 * cols, r + 3 * cols, r + 4 * cols, r + 5 * cols, (unsigned char *)(r + 6 * cols)};
}

static inline gradient_columns columns_from(gradient_columns p, size_t first)
{
    return (gradient_columns){p.mean + first,   p.rstd + first,   p.weight + first, p.x_slope + first,
                              p.offset + first, p.hat_lo + first, p.kept + first};
}

/* Four rows of one column. */
CN_INLINE void four_rows(const real *dy, size_t dy_stride, const real *x, size_t stride, real mean, real rstd, real *t,
                         real *g, real *gt)
{
    real d0 = dy[0], d1 = dy[dy_stride], d2 = dy[2 * dy_stride], d3 = dy[3 * dy_stride];
    real t0 = (x[0] - mean) * rstd, t1 = (x[stride] - mean) * rstd;
    real t2 = (x[2 * stride] - mean) * rstd, t3 = (x[3 * stride] - mean) * rstd;
    *t = (t0 + t1) + (t2 + t3);
    *g = (d0 + d1) + (d2 + d3);
    *gt = (d0 * t0 + d1 * t1) + (d2 * t2 + d3 * t3);
}

/* Sums of some rows of a tile, in `real`. */
typedef struct {
    real t[TILE_GRADIENTS], g[TILE_GRADIENTS], gt[TILE_GRADIENTS];
} tile_terms;

/* Eight rows, or four, join the sums of the columns [first, first + cols) of a tile, or begin them, if these are `fresh`;
 * both are constants. */
CN_INLINE void put_rows(tile_terms *to, size_t first, const real *dy, size_t dy_stride, const real *x, size_t stride,
                        size_t cols, const gradient_columns *p, const bool eight, const bool fresh)
{
    const real *mean = p->mean + first, *rstd = p->rstd + first;
    real *t = to->t + first, *g = to->g + first, *gt = to->gt + first;
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        real t0, g0, gt0, t4 = 0, g4 = 0, gt4 = 0;
        four_rows(dy + c, dy_stride, x + c, stride, mean[c], rstd[c], &t0, &g0, &gt0);
        if (eight) {
            four_rows(dy + 4 * dy_stride + c, dy_stride, x + 4 * stride + c, stride, mean[c], rstd[c], &t4, &g4, &gt4);
            t0 += t4, g0 += g4, gt0 += gt4;
        }
        t[c] = fresh ? t0 : t[c] + t0;
        g[c] = fresh ? g0 : g[c] + g0;
        gt[c] = fresh ? gt0 : gt[c] + gt0;
    }
}

/* Rows that are left over, one by one. */
static inline void add_left_rows(column_sums s, column_sums lost, const real *dy, size_t dy_stride, const real *x,
                                 size_t stride, size_t rows, size_t cols, const gradient_columns *p)
{
    const real *mean = p->mean, *rstd = p->rstd;
    for (; rows > 0; rows--, dy += dy_stride, x += stride) {
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            real t = (x[c] - mean[c]) * rstd[c];
            add_to(&s.t[c], &lost.t[c], (acc)t);
            add_to(&s.g[c], &lost.g[c], (acc)dy[c]);
            add_to(&s.gt[c], &lost.gt[c], (acc)(dy[c] * t));
        }
    }
}

static inline void join_terms(column_sums s, column_sums lost, const tile_terms *a, size_t cols)
{
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        add_to(&s.t[c], &lost.t[c], (acc)a->t[c]);
        add_to(&s.g[c], &lost.g[c], (acc)a->g[c]);
        add_to(&s.gt[c], &lost.gt[c], (acc)a->gt[c]);
    }
}

#define TERMS_JOINED 8
#define PART_COLUMNS 64
#define ROWS_AHEAD 8

/* Rows are taken by eights: many streams at once hide what it takes to fetch each. Where they are whole pages apart, by
 * fours: sixteen lines would put one another out of the first cache. From the first whole line of x on: reads across two
 * lines take a tenth longer.
 * `far`: dy and x come from beyond this core's caches, and rows that follow are fetched meanwhile, a part at a time: all of
 * a tile at once would keep the present ones waiting. */
static inline void tile_gradients(column_sums s, column_sums lost, const real *dy, size_t dy_stride, const real *x,
                                  size_t stride, size_t rows, size_t cols, const gradient_columns *p, bool far)
{
    const bool eight = !pages_apart(stride);
    const size_t step = eight ? 8 : 4, part = far ? PART_COLUMNS : cols, steps = rows / step;
    const size_t head = cols > PART_COLUMNS ? before_line(x) : 0;
    tile_terms terms;
    for (size_t i = 0; i < steps; i++, dy += step * dy_stride, x += step * stride) {
        for (size_t c = 0, n; c < cols; c += n) {
            n = c == 0 && head ? head : cols - c < part ? cols - c : part;
            for (size_t k = 0; far && k < step; k++) {
                fetch_far(dy + k * dy_stride + c, n, ROWS_AHEAD * dy_stride);
                fetch_far(x + k * stride + c, n, ROWS_AHEAD * stride);
            }
            if (eight && i % TERMS_JOINED == 0)
                put_rows(&terms, c, dy + c, dy_stride, x + c, stride, n, p, true, true);
            else if (eight)
                put_rows(&terms, c, dy + c, dy_stride, x + c, stride, n, p, true, false);
            else if (i % TERMS_JOINED == 0)
                put_rows(&terms, c, dy + c, dy_stride, x + c, stride, n, p, false, true);
            else
                put_rows(&terms, c, dy + c, dy_stride, x + c, stride, n, p, false, false);
        }
        if ((i + 1) % TERMS_JOINED == 0 || i + 1 == steps)
            join_terms(s, lost, &terms, cols);
    }
    add_left_rows(s, lost, dy, dy_stride, x, stride, rows - steps * step, cols, p);
}

/* Sums below this, or of terms below this, may have lost digits of their terms. */
#define TERM_MIN (REAL_MIN * 0x1p+30)

static inline void clear_columns(column_sums s, size_t cols)
{
    memset(s.t, 0, cols * sizeof(acc));
    memset(s.g, 0, cols * sizeof(acc));
    memset(s.gt, 0, cols * sizeof(acc));
}

static inline void settle_columns(column_sums s, column_sums lost, size_t cols)
{
#pragma omp simd
    for (size_t c = 0; c < cols; c++) {
        s.t[c] = settled(s.t[c], lost.t[c]);
        s.g[c] = settled(s.g[c], lost.g[c]);
        s.gt[c] = settled(s.gt[c], lost.gt[c]);
    }
}

/* A column of which both sums are 0: is dy, or is it only too small? Then a NaN sends the column the careful way. */
static inline void check_silent_columns(column_sums s, const real *dy, size_t stride, size_t rows, size_t cols)
{
    real most[TILE_GRADIENTS] = {0};
    int silent = 0;
#pragma omp simd reduction(| : silent)
    for (size_t c = 0; c < cols; c++)
        silent |= (s.g[c] == 0) & (s.gt[c] == 0);
    if (!silent)
        return;
    for (size_t at = 0; at < rows * stride; at += stride)
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            real a = dy[at + c] < 0 ? -dy[at + c] : dy[at + c];
            most[c] = a > most[c] ? a : most[c];
        }
    for (size_t c = 0; c < cols; c++)
        if (s.g[c] == 0 && s.gt[c] == 0 && most[c] > 0 && most[c] < TERM_MIN)
            s.gt[c] = NAN;
}

/* Sums of `rows` rows, tile by tile, so that eight rows and their sums stay in the first cache. Not inlined: it needs a
 * deep stack. */
CN_NOINLINE static void sum_columns(column_sums s, const real *dy, const real *x, size_t stride, size_t rows,
                                    size_t cols, const gradient_columns *p, bool far)
{
    acc memory[3 * (sizeof(real) == sizeof(acc) ? TILE_GRADIENTS : 1)]; /* what rounding took, of double data */
    column_sums lost = place_sums(memory, sizeof memory / sizeof(acc) / 3);
    clear_columns(s, cols);
    for (size_t c = 0; c < cols; c += TILE_GRADIENTS) {
        size_t n = cols - c < TILE_GRADIENTS ? cols - c : TILE_GRADIENTS;
        gradient_columns q = columns_from(*p, c);
        if (sizeof(real) == sizeof(acc))
            clear_columns(lost, n);
        tile_gradients(sums_from(s, c), lost, dy + c, stride, x + c, stride, rows, n, &q, far);
        if (sizeof(real) == sizeof(acc))
            settle_columns(sums_from(s, c), lost, n);
        check_silent_columns(sums_from(s, c), dy + c, stride, rows, n);
    }
}

/* n elements of a row of dx, the columns `p` on. */
static inline void columns_run(real *dx, const real *dy, const real *x, size_t n, const gradient_columns *p,
                               bool frozen)
{
    const real *mean = p->mean, *rstd = p->rstd, *weight = p->weight, *x_slope = p->x_slope, *offset = p->offset;
    if (frozen) {
#pragma omp simd
        for (size_t c = 0; c < n; c++)
            dx[c] = dy[c] * weight[c];
        return;
    }
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        dx[c] = ((dy[c] * weight[c] - offset[c]) - (x[c] - mean[c]) * x_slope[c]) * rstd[c];
}

/* Whole rows, one after the other in memory: cut by cache lines and not by rows (see write_rows_past_caches). The elements
 * `ahead` are fetched meanwhile, unless ahead is 0. */
CN_NOINLINE static void stream_columns(real *dx, const real *dy, const real *x, size_t rows, size_t cols,
                                       const gradient_columns *p, bool frozen, size_t ahead)
{
    real buffer[STREAM_RUN];
    for (size_t i = 0, c = 0, m, part; i < rows * cols; i += m) {
        m = stream_run(dx + i, rows * cols - i);
        fetch_far(dy + i, m, ahead);
        fetch_far(x + i, frozen ? 0 : m, ahead);
        for (size_t done = 0; done < m; done += part) {
            part = m - done < cols - c ? m - done : cols - c;
            gradient_columns q = columns_from(*p, c);
            columns_run(buffer + done, dy + i + done, x + i + done, part, &q, frozen);
            c = c + part < cols ? c + part : 0;
        }
        stream_out(dx + i, buffer, m);
    }
}

/* Rows of which some columns are kept. */
CN_NOINLINE static void write_unkept_columns(real *dx, const real *dy, const real *x, size_t stride, size_t rows,
                                             size_t cols, const gradient_columns *p, bool frozen)
{
    real buffer[STREAM_RUN];
    for (size_t c = 0; c < cols; c += STREAM_RUN) {
        size_t n = cols - c < STREAM_RUN ? cols - c : STREAM_RUN;
        gradient_columns q = columns_from(*p, c);
        for (size_t at = c; at < rows * stride; at += stride) {
            columns_run(buffer, dy + at, x + at, n, &q, frozen);
            for (size_t i = 0; i < n; i++)
                dx[at + i] = q.kept[i] ? dx[at + i] : buffer[i];
        }
    }
}

static inline bool keeps_any(const gradient_columns *p, size_t cols)
{
    unsigned char any = 0;
    for (size_t c = 0; c < cols; c++)
        any |= p->kept[c];
    return any;
}

/* dx of `rows` rows. Past the caches go whole rows, or parts of rows that are long. */
static inline void write_columns(real *dx, const real *dy, const real *x, size_t stride, size_t rows, size_t cols,
                                 const gradient_columns *p, bool frozen, bool stream)
{
    if (keeps_any(p, cols)) {
        write_unkept_columns(dx, dy, x, stride, rows, cols, p, frozen);
    } else if (stream && stride == cols) {
        stream_columns(dx, dy, x, rows, cols, p, frozen, FAR_STEP);
    } else if (stream && 2 * cols >= CHUNK_COLUMNS) {
        for (size_t at = 0; at < rows * stride; at += stride)
            stream_columns(dx + at, dy + at, x + at, 1, cols, p, frozen, 0);
    } else {
        for (size_t c = 0; c < cols; c += TILE_GRADIENTS) {
            size_t n = cols - c < TILE_GRADIENTS ? cols - c : TILE_GRADIENTS;
            gradient_columns q = columns_from(*p, c);
            for (size_t at = c; at < rows * stride; at += stride)
                columns_run(dx + at, dy + at, x + at, n, &q, frozen);
        }
    }
}

#endif
