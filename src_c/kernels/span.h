/* The elements of one group that lies in memory as equal contiguous runs: a row of layer norm, a group of channels of
 * one sample (one run), a channel of a batch (one run a sample). Groups of every kernel but the channels-last ones are
 * spans, so they share their blocks and their bits.
 *
 * A span is cut into blocks by its own size alone: pieces of long runs, or several short runs gathered into a small
 * buffer. Sixteen or more blocks in order make a piece, at most 64 pieces a span: moments are merged within each piece,
 * then over the pieces. Who computes a piece does not matter, so one long row can use every core.
 */
#ifndef CN_SPAN_H
#define CN_SPAN_H

#include "moments.h"

#define BLOCK 4096
#define GATHER_BELOW 1024
#define PIECE_BLOCKS 16
#define PIECES_MAX 64

typedef struct {
    size_t runs, length; /* number of runs, elements in each */
    size_t stride;       /* elements from the start of one run to the next */
    bool centred;        /* false: moments about 0 (only spans of one run) */
} span;

typedef struct {
    size_t runs_per_block; /* short runs are gathered; 0 when runs are long or there is only one */
    size_t blocks_per_run; /* of long runs */
    size_t blocks, pieces, blocks_per_piece;
} span_plan;

static inline size_t divide_up(size_t a, size_t b) { return a / b + (a % b != 0); }

static inline span_plan plan_span(span s)
{
    span_plan p = {0};
    if (s.length == 0 || s.runs == 0)
        return p;
    if (s.length < GATHER_BELOW && s.runs > 1) {
        p.runs_per_block = BLOCK / s.length;
        p.blocks = divide_up(s.runs, p.runs_per_block);
    } else {
        p.blocks_per_run = divide_up(s.length, BLOCK);
        p.blocks = s.runs * p.blocks_per_run;
    }
    p.blocks_per_piece = divide_up(p.blocks, PIECES_MAX);
    if (p.blocks_per_piece < PIECE_BLOCKS)
        p.blocks_per_piece = PIECE_BLOCKS;
    p.pieces = divide_up(p.blocks, p.blocks_per_piece);
    return p;
}

/* The elements of a block: `runs` runs of n elements, the first from element `at` on. */
typedef struct {
    size_t at, runs, n;
} span_block;

static inline span_block block_of_span(span s, const span_plan *p, size_t block)
{
    if (p->runs_per_block) {
        size_t run = block * p->runs_per_block, left = s.runs - run;
        return (span_block){run * s.stride, left < p->runs_per_block ? left : p->runs_per_block, s.length};
    }
    size_t run = block / p->blocks_per_run, start = block % p->blocks_per_run * BLOCK, left = s.length - start;
    return (span_block){run * s.stride + start, 1, left < BLOCK ? left : BLOCK};
}

static inline moments run_moments(const real *x, size_t n, bool centred)
{
    return centred ? block_moments(x, n) : block_squares(x, n);
}

/* Not inlined: its buffer is the one thing here that needs a deep stack, and most kernels never call it. */
CN_NOINLINE static moments gathered_moments(const real *x, span_block b, size_t stride)
{
    real buffer[BLOCK];
    for (size_t run = 0; run < b.runs; run++)
        memcpy(buffer + run * b.n, x + run * stride, b.n * sizeof(real));
    return block_moments(buffer, b.runs * b.n);
}

static inline moments span_block_moments(const real *x, span s, const span_plan *p, size_t block)
{
    span_block b = block_of_span(s, p, block);
    return p->runs_per_block ? gathered_moments(x + b.at, b, s.stride) : run_moments(x + b.at, b.n, s.centred);
}

static inline moments piece_moments(const real *x, span s, const span_plan *p, size_t piece)
{
    size_t block = piece * p->blocks_per_piece, end = block + p->blocks_per_piece;
    moments m = {0};
    for (; block < end && block < p->blocks; block++) {
        moments b = span_block_moments(x, s, p, block);
        merge(&m, &b);
    }
    return m;
}

static inline moments span_moments(const real *x, span s, const span_plan *p)
{
    moments m = {0};
    for (size_t piece = 0; piece < p->pieces; piece++) {
        moments b = piece_moments(x, s, p, piece);
        merge(&m, &b);
    }
    return m;
}

#endif
