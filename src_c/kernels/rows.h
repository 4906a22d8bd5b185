/* Rows of channels-last output: y[r, c] = ((x[r, c] - hi[c]) - lo[c]) * scale[c] + bias[c], scale = rstd * weight.
 *
 * Columns of a group that had to take the careful way (wide.h) are already written when a row is: they are kept.
 */
#ifndef CN_ROWS_H
#define CN_ROWS_H

#include "normaliser.h"
#include "stream.h"

typedef struct {
    real *hi, *lo, *scale, *bias;
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
    return (row_parameters){p.hi + first,   p.lo + first,      p.scale + first, p.bias + first,
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

/* scale and bias of n columns from their rstd; a scale outside the normal range makes its column a kept one. */
static inline void set_affine(row_parameters *p, const real *weight, const real *bias, size_t n)
{
    for (size_t c = 0; c < n && !weight; c++)
        p->scale[c] = (real)(p->rstd[c] + p->rstd_lo[c]);
#pragma omp simd
    for (size_t c = 0; c < (weight ? n : 0); c++)
        p->kept[c] |= !scale_of(p->rstd[c], p->rstd_lo[c], weight[c], &p->scale[c]);
    if (bias)
        memcpy(p->bias, bias, n * sizeof(real));
    else
        memset(p->bias, 0, n * sizeof(real));
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
        memcpy(p->lo + c, p->lo, n * sizeof(real));
        memcpy(p->scale + c, p->scale, n * sizeof(real));
        memcpy(p->bias + c, p->bias, n * sizeof(real));
        memcpy(p->kept + c, p->kept, n);
    }
}

static inline void write_run(real *y, const real *x, size_t n, const real *hi, const real *lo, const real *scale,
                             const real *bias)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        y[c] = ((x[c] - hi[c]) - lo[c]) * scale[c] + bias[c];
}

static inline void write_row_past_caches(real *y, const real *x, size_t n, const row_parameters *p)
{
    real buffer[STREAM_RUN];
    for (size_t c = 0, m; c < n; c += m) {
        m = stream_run(y + c, n - c);
        write_run(buffer, x + c, m, p->hi + c, p->lo + c, p->scale + c, p->bias + c);
        stream_out(y + c, buffer, m);
    }
}

/* Rows of a matrix of which some columns are kept. */
CN_NOINLINE static void write_other_columns(real *y, const real *x, size_t stride, size_t rows, size_t cols,
                                            const row_parameters *p)
{
    for (size_t r = 0; r < rows; r++, y += stride, x += stride)
        for (size_t c = 0; c < cols; c++)
            y[c] = p->kept[c] ? y[c] : ((x[c] - p->hi[c]) - p->lo[c]) * p->scale[c] + p->bias[c];
}

/* In tiles of columns, so that the parameters stay in the first cache. The elements `ahead` of x are fetched meanwhile,
 * unless ahead is 0. */
#define TILE_PARAMETERS 1024

static inline void write_rows(real *y, const real *x, size_t stride, size_t rows, size_t cols, const row_parameters *p,
                              bool stream, size_t ahead)
{
    for (size_t c = 0; c < cols; c += TILE_PARAMETERS) {
        size_t n = cols - c < TILE_PARAMETERS ? cols - c : TILE_PARAMETERS;
        row_parameters q = parameters_from(*p, c);
        for (size_t r = 0; r < rows; r++) {
            const real *from = x + r * stride + c;
            real *to = y + r * stride + c;
            fetch_ahead(from, n, ahead);
            if (stream)
                write_row_past_caches(to, from, n, &q);
            else
                write_run(to, from, n, q.hi, q.lo, q.scale, q.bias);
        }
    }
}

#endif
