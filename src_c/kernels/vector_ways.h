/* Which way an array of vectors is gone through; by its shape alone. */
#ifndef CN_VECTOR_WAYS_H
#define CN_VECTOR_WAYS_H

#include "vector_pieces.h"
#include "vector_rows.h"
#include "vector_tiles.h"

/* Vectors of one run are rows, wherever they are; and so are those of runs too long for a tile. */
static inline bool are_rows(const vector_shape *s) { return s->runs == 1 || s->length > TILE_MOST; }

/* (outer, length, inner), vectors along the middle axis. */
static inline vector_shape vectors_along(size_t outer, size_t length, size_t inner)
{
    return inner == 1 ? (vector_shape){1, 1, outer, length} : (vector_shape){outer, length, inner, 1};
}

/* (outer, channels, inner), a vector for each channel. */
static inline vector_shape vectors_of_channels(size_t outer, size_t channels, size_t inner)
{
    return (vector_shape){1, outer, channels, inner};
}

static inline size_t vectors_workspace(vector_shape s)
{
    if (count_of(&s) * s.runs * s.length == 0)
        return 0;
    return are_rows(&s) ? rows_workspace(&s) : are_pieces(&s, true) ? pieces_workspace(&s) : 0;
}

static inline void do_vectors(const vectors *v, void *workspace)
{
    const vector_shape *s = &v->shape;
    if (s->runs * s->length == 0)
        for (size_t i = 0; v->noted && i < count_of(s); i++)
            v->noted[i] = 0;
    if (count_of(s) * s->runs * s->length == 0)
        return;
    if (!are_rows(s) && are_pieces(s, v->dy != NULL))
        vectors_by_pieces(v, workspace);
    else if (!are_rows(s))
        vectors_by_tiles(v);
    else if (s->runs == 1 && s->length <= SHORT_ROW)
        vectors_by_short_rows(v);
    else
        vectors_by_rows(v, workspace);
}

#endif
