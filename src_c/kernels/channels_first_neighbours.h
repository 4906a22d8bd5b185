/* Batch norm in training, channels first: a channel's runs lie whole images apart. Short ones, of 7 x 7 say, are a few lines
 * each, often whole pages apart, where they and the lines fetched ahead of them put one another out of the first cache; and at
 * each of the longer ones the processor's own prefetching begins anew. So some neighbouring channels are taken together: long
 * runs are summed image by image, short ones a channel after the other, and then all are written image by image. There their
 * runs lie next to one another.
 */
#ifndef CN_CHANNELS_FIRST_NEIGHBOURS_H
#define CN_CHANNELS_FIRST_NEIGHBOURS_H

#include "channels_first_finish.h"

#define NEIGHBOURS_MOST 8
#define NARROW_RUN 128
#define NARROW_RUN_PAGES 255               /* of runs whole pages apart; shorter than STREAM_RUN */
#define NEIGHBOURS_LENGTH (16 * 1024)      /* elements in their runs together: more have nothing to gain */
#define NEIGHBOURS_BYTES (2 * 1024 * 1024) /* x and dy of all: to be found again in the nearer caches */

/* How many channels to take together. */
static inline size_t neighbours_of(const channels_first_gradient *g)
{
    if (g->shape.runs == 1 || !g->dx || g->elements || g->frozen)
        return 1;
    if (g->plan.runs_per_block) {
        const size_t most = pages_apart(g->shape.stride) ? NARROW_RUN_PAGES : NARROW_RUN;
        return g->shape.length <= most && g->plan.blocks == 1 ? NEIGHBOURS_MOST : 1;
    }
    const size_t by_length = NEIGHBOURS_LENGTH / g->shape.length;
    const size_t by_bytes = NEIGHBOURS_BYTES / (elements_of_channel(g) * 2 * sizeof(real));
    const size_t n = by_length < by_bytes ? by_length : by_bytes;
    return n < 1 ? 1 : n < NEIGHBOURS_MOST ? n : NEIGHBOURS_MOST;
}

/* The sums of n channels, whose blocks are each of one image, or one block each. */
static void sum_neighbours(const channels_first_gradient *g, size_t first, size_t n, gradient_sums *sums)
{
    if (g->plan.blocks == 1) { /* straight: as a piece it takes an eighth longer */
        for (size_t i = 0; i < n; i++)
            sums[i] = moving_block(g, first + i, 0, NULL);
        return;
    }
    for (size_t i = 0; i < n; i++)
        sums[i] = (gradient_sums){0};
    for (size_t block = 0, end; block < g->plan.blocks; block = end) {
        gradient_sums piece[NEIGHBOURS_MOST] = {0};
        end = block + g->plan.blocks_per_piece < g->plan.blocks ? block + g->plan.blocks_per_piece : g->plan.blocks;
        for (; block < end; block++)
            for (size_t i = 0; i < n; i++) {
                gradient_sums s = moving_block(g, first + i, block, NULL);
                add_sums(&piece[i], &s);
            }
        for (size_t i = 0; i < n; i++)
            add_sums(&sums[i], &piece[i]);
    }
}

/* A run of one of them: a narrow one straight, without a buffer. */
static inline void write_neighbour(const channels_first_gradient *g, size_t channel, const gradient *k, size_t at,
                                   size_t n)
{
    if (g->plan.runs_per_block)
        gradient_runs(g->dx + at, g->dy + at, g->x + at, 1, n, 0, k, g->weight ? g->weight[channel] : 1);
    else
        write_part(g, channel, k, at, n);
}

/* The last blocks first: those the nearest caches still have. */
static void write_neighbours(const channels_first_gradient *g, size_t first, size_t n, const gradient *k)
{
    for (size_t block = g->plan.blocks; block-- > 0;) {
        const span_block b = block_of_span(g->shape, &g->plan, block);
        for (size_t run = 0, at = b.at; run < b.runs; run++, at += g->shape.stride)
            for (size_t i = 0, c = first; i < n; i++, c++)
                if (k[i].fast)
                    write_neighbour(g, c, &k[i], c * g->spatial + at, b.n);
    }
}

/* The channels [first, last), `together` at once; dy_t and dy take their sums. */
static void neighbour_channels(const channels_first_gradient *g, size_t first, size_t last, size_t together, acc *dy_t,
                               acc *dy)
{
    gradient_sums sums[NEIGHBOURS_MOST];
    gradient k[NEIGHBOURS_MOST];
    for (size_t n; first < last; first += n) {
        n = last - first < together ? last - first : together;
        sum_neighbours(g, first, n, sums);
        for (size_t i = 0, c = first; i < n; i++, c++) {
            gradient_sums weighted = {0};
            add_channel(g, &weighted, &sums[i], c, &dy_t[c], &dy[c]);
            k[i] = finish_channels(g, c, &weighted, &dy_t[c], &dy[c]);
        }
        write_neighbours(g, first, n, k);
    }
}

#endif
