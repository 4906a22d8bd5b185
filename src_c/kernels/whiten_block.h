/* Blocks of columns: what whitening reads of x at a time, all channels of one group, so many that they stay in the
 * cache. A column is one position of one sample; the columns of (batch, channels, spatial) or (batch, spatial, channels)
 * are numbered sample by sample.
 */
#ifndef CN_WHITEN_BLOCK_H
#define CN_WHITEN_BLOCK_H

#include "tile.h"

#define BLOCK_LEAST 64
#define BLOCK_MOST 256

typedef struct {
    size_t batch, channels, spatial, groups;
    bool last;
    size_t block; /* elements a block should have; columns are at least BLOCK_LEAST, at most BLOCK_MOST */
} whiten_shape;

static inline size_t group_channels(const whiten_shape *s) { return s->groups ? s->channels / s->groups : 0; }
static inline size_t column_count(const whiten_shape *s) { return s->batch * s->spatial; }
static inline size_t padded_channels(const whiten_shape *s) { return padded(group_channels(s), PANEL); }

/* A multiple of DEPTH, chosen by the number of channels alone. */
static inline size_t block_columns(const whiten_shape *s)
{
    size_t width = padded_channels(s), n = width ? s->block / width / DEPTH * DEPTH : BLOCK_LEAST;
    return n < BLOCK_LEAST ? BLOCK_LEAST : n < BLOCK_MOST ? n : BLOCK_MOST;
}

static inline size_t block_count(const whiten_shape *s)
{
    return (column_count(s) + block_columns(s) - 1) / block_columns(s);
}

/* Column j of what is packed in panels of `height` rows; and from there on, with the next tile's. */
static inline const real *panel_column(const real *panels, size_t height, size_t j)
{
    return panels + j / PANEL * PANEL * height + j % PANEL;
}

static inline operand panel_operand(const real *panels, size_t height, size_t j)
{
    const real *first = panel_column(panels, height, j), *next = panel_column(panels, height, j + TILE_COLS);
    return (operand){first, PANEL, (size_t)(next - first)};
}

/* Neighbouring columns of one sample: element (c, k) is data[c * channel + k * column]. */
typedef struct {
    size_t at, columns, channel, column;
} stretch;

/* The stretch that begins with column `first` of a group, at most n columns of it. */
static inline stretch next_stretch(const whiten_shape *s, size_t group, size_t first, size_t n)
{
    size_t c = group * group_channels(s);
    if (s->last)
        return (stretch){first * s->channels + c, n, 1, s->channels};
    size_t sample = first / s->spatial, at = first % s->spatial, rest = s->spatial - at;
    return (stretch){(sample * s->channels + c) * s->spatial + at, n < rest ? n : rest, s->spatial, 1};
}

#endif
