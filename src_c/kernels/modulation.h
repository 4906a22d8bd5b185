/* A scale or shift for each element of x, which may be broadcast: x is `samples` x `rows` x `length` in memory (channels
 * first a row is a channel, channels last a position), and along each of these the array has a stride of its own, 0 where it
 * is broadcast. Along a row it is 1 or 0.
 *
 *     y = xhat * (offset + gamma) + beta
 *
 * A kernel asks for the values of a short run of x. They are handed out where they lie if they are contiguous there, and are
 * gathered into a buffer otherwise.
 */
#ifndef CN_MODULATION_H
#define CN_MODULATION_H

#include "../cnorm.h"
#include "stream.h"

typedef struct {
    const real *data;
    size_t sample, row, inner; /* strides */
    size_t rows, length;       /* rows of a sample, elements of a row */
} modulation;

/* Rows that follow one another, in the array as in x, are one long row; and so are samples. */
static inline modulation make_modulation(const real *data, cnorm_strides s, size_t batch, size_t channels,
                                         size_t spatial, bool last)
{
    size_t rows = last ? spatial : channels, length = last ? channels : spatial;
    size_t row = last ? s.spatial : s.channel, inner = length == 1 ? row == 1 : last ? s.channel : s.spatial;
    modulation m = {data, s.batch, row, inner, rows, length};
    if (rows == 1 || row == inner * length)
        m = (modulation){data, s.batch, 0, inner, 1, rows * length};
    if (m.rows == 1 && (batch == 1 || s.batch == inner * m.length))
        m.length *= batch;
    return m;
}

static inline const real *modulation_of(const modulation *m, size_t at)
{
    size_t row = at / m->length, column = at % m->length;
    return m->data + row / m->rows * m->sample + row % m->rows * m->row + column * m->inner;
}

/* The values of the elements [at, at + n) of x; `buffer` has room for n. */
static inline const real *modulation_run(const modulation *m, size_t at, size_t n, real *buffer)
{
    size_t left = m->length - at % m->length;
    if (m->inner && n <= left)
        return modulation_of(m, at);
    for (size_t done = 0, part; done < n; done += part, left = m->length) {
        part = n - done < left ? n - done : left;
        const real *from = modulation_of(m, at + done);
        if (m->inner) {
            memcpy(buffer + done, from, part * sizeof(real));
        } else {
            const real value = *from;
            for (size_t i = done; i < done + part; i++)
                buffer[i] = value;
        }
    }
    return buffer;
}

/* Gamma with its offset, and where the gradients of gamma and beta go: arrays like x, or NULL. */
typedef struct {
    modulation gamma;
    real offset;
    real *dgamma, *dbeta;
} element_weights;

static inline bool wants_elements(const element_weights *e) { return e && (e->dgamma || e->dbeta); }

static inline acc element_weight(const element_weights *e, size_t at)
{
    return (acc)(real)(e->offset + *modulation_of(&e->gamma, at));
}

/* dbeta, if there is one, of the elements [at, at + n). */
static inline void copy_run(real *dbeta, const real *dy, size_t at, size_t n, cn_work work)
{
    if (dbeta && work.stream)
        stream_out(dbeta + at, dy + at, n);
    else if (dbeta)
        memcpy(dbeta + at, dy + at, n * sizeof(real));
}

#endif
