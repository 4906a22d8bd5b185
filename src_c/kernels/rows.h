/* Rows of channels-last output: y[r, c] = (x[r, c] - hi[c]) * scale[c] + shift[c], scale = rstd * weight and
 * shift = bias - lo * scale.
 *
 * Columns of a group that had to take the careful way (wide.h) are already written when a row is: they are kept.
 */
#ifndef CN_ROWS_H
#define CN_ROWS_H

#include "normaliser.h"
#include "stream.h"

typedef struct {
    real *hi, *lo, *scale, *shift;
    acc *rstd, *rstd_lo; /* of each column, unrounded */
    unsigned char *kept; /* 1: the column is written already */
} row_parameters;

static inline size_t row_parameters_size(size_t cols) { return 8 * cols * sizeof(acc); }

static inline row_parameters place_parameters(void *memory, size_t cols)
{
    acc *a = memory;
    real *r = (real *)(a + 2 * cols);
    return (row_parameters){r, r + cols, r + 2 * cols, r + 3 * cols, a, a + cols, (unsigned char *)(r + 4 * cols)};
}

static inline row_parameters parameters_from(row_parameters p, size_t first)
{
    return (row_parameters){p.hi + first,   p.lo + first,      p.scale + first, p.shift + first,
                            p.rstd + first, p.rstd_lo + first, p.kept + first};
}

static inline void set_columns(row_parameters *p, size_t first, size_t n, const normaliser *k)
{
    row_parameters q = parameters_from(*p, first);
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        q.hi[c] = k->hi, q.lo[c] = k->lo;
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        q.rstd[c] = k->rstd_acc, q.rstd_lo[c] = k->rstd_lo;
    memset(q.kept, !k->fast, n);
}

/* scale and shift of n columns from their rstd; a scale outside the normal range makes its column a kept one. */
static inline void set_affine(row_parameters *p, const real *weight, const real *bias, size_t n)
{
    for (size_t c = 0; c < n && !weight; c++)
        p->scale[c] = (real)(p->rstd[c] + p->rstd_lo[c]);
#pragma omp simd
    for (size_t c = 0; c < (weight ? n : 0); c++)
        p->kept[c] |= !scale_of(p->rstd[c], p->rstd_lo[c], weight[c], &p->scale[c]);
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        p->shift[c] = shift_of(p->lo[c], p->scale[c], bias ? bias[c] : 0);
}

static inline bool any_kept(const row_parameters *p, size_t n)
{
    unsigned char any = 0;
    for (size_t c = 0; c < n; c++)
        any |= p->kept[c];
    return any;
}

/* The parameters of the first n columns again for the columns up to `width`. */
static inline void repeat_parameters(row_parameters *p, size_t n, size_t width)
{
    for (size_t c = n; c < width; c += n) {
        memcpy(p->hi + c, p->hi, n * sizeof(real));
        memcpy(p->scale + c, p->scale, n * sizeof(real));
        memcpy(p->shift + c, p->shift, n * sizeof(real));
        memcpy(p->kept + c, p->kept, n);
    }
}

static inline void write_run(real *y, const real *x, size_t n, const real *hi, const real *scale, const real *shift)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        y[c] = (x[c] - hi[c]) * scale[c] + shift[c];
}

/* m elements from element i of some rows on, through a buffer. */
static inline void stream_part(real *y, const real *x, size_t i, size_t m, size_t cols, const row_parameters *p,
                               size_t ahead)
{
    real buffer[STREAM_RUN];
    fetch_far(x + i, m, ahead);
    for (size_t done = 0, c = i % cols, part; done < m; done += part, c = 0) {
        part = m - done < cols - c ? m - done : cols - c;
        write_run(buffer + done, x + i + done, part, p->hi + c, p->scale + c, p->shift + c);
    }
    stream_out(y + i, buffer, m);
}

/* Whole rows, one after the other in memory: cut by cache lines and not by rows, so that no line is written in parts; and
 * two pages in turns, since memory serves two streams faster than one. */
#define PAGE (PAGE_BYTES / sizeof(real))
#define PAGES_IN_TURNS (2 * PAGE)

CN_NOINLINE static void write_rows_past_caches(real *y, const real *x, size_t rows, size_t cols,
                                               const row_parameters *p, size_t ahead)
{
    size_t n = rows * cols, i = 0, head = (size_t)(-(uintptr_t)y & 4095) / sizeof(real);
    while (i < n) {
        if (i >= head && i + PAGES_IN_TURNS <= n) {
            for (size_t at = i; at < i + PAGE; at += STREAM_RUN)
                for (size_t page = 0; page < PAGES_IN_TURNS; page += PAGE)
                    stream_part(y, x, at + page, STREAM_RUN, cols, p, ahead ? PAGES_IN_TURNS : 0);
            i += PAGES_IN_TURNS;
        } else {
            size_t m = stream_run(y + i, n - i);
            stream_part(y, x, i, m, cols, p, ahead);
            i += m;
        }
    }
}

/* Rows of a matrix of which some columns are kept. */
CN_NOINLINE static void write_other_columns(real *y, const real *x, size_t stride, size_t rows, size_t cols,
                                            const row_parameters *p)
{
    for (size_t r = 0; r < rows; r++, y += stride, x += stride)
        for (size_t c = 0; c < cols; c++)
            y[c] = p->kept[c] ? y[c] : (x[c] - p->hi[c]) * p->scale[c] + p->shift[c];
}

/* In tiles of columns, so that the parameters stay in the first cache. The elements `ahead` of x are fetched meanwhile,
 * unless ahead is 0. Past the caches go whole rows, or parts of rows that are long. */
#define TILE_PARAMETERS 1024
#define LONG_PART (4096 / sizeof(real))

static inline void write_rows(real *y, const real *x, size_t stride, size_t rows, size_t cols, const row_parameters *p,
                              bool stream, size_t ahead)
{
    if (stream && stride == cols) {
        write_rows_past_caches(y, x, rows, cols, p, ahead ? ahead : FAR_STEP);
        return;
    }
    if (stream && cols >= LONG_PART) {
        for (size_t at = 0; at < rows * stride; at += stride)
            write_rows_past_caches(y + at, x + at, 1, cols, p, 0);
        return;
    }
    for (size_t c = 0; c < cols; c += TILE_PARAMETERS) {
        size_t n = cols - c < TILE_PARAMETERS ? cols - c : TILE_PARAMETERS;
        row_parameters q = parameters_from(*p, c);
        for (size_t r = 0; r < rows; r++) {
            const real *from = x + r * stride + c;
            fetch_near(from, n, ahead);
            write_run(y + r * stride + c, from, n, q.hi, q.scale, q.shift);
        }
    }
}

#endif
