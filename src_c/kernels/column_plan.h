/* How the channels-last kernels cut a sample, a matrix of `rows` x `channels`: by its size alone, so that every number of
 * threads adds up the same parts in the same order.
 *
 * A narrow matrix is folded: `fold` rows side by side make one wide row, so the inner loops are long for three channels
 * too. So a sample is `wide_rows` rows of `width` columns, and `left` elements more at its end. Wide rows are cut into
 * pieces, at most 64 of them, and a piece is summed in blocks of rows.
 */
#ifndef CN_COLUMN_PLAN_H
#define CN_COLUMN_PLAN_H

#include "../parallel.h"
#include "span.h"

#define COLUMN_BLOCK 128
#define COLUMN_PIECE 131072
#define FOLD_WIDTH 256
/* A page: the prefetching of one core then stays out of the lines that another writes. */
#define CHUNK_COLUMNS (4096 / sizeof(real))
#define LINE_COLUMNS (64 / sizeof(real))
#define CHUNK_BYTES (1024 * 1024)

typedef struct {
    size_t rows, channels;
    size_t fold, width, wide_rows, left, piece_rows, pieces;
} column_plan;

static inline column_plan plan_columns(size_t rows, size_t channels)
{
    column_plan p = {.rows = rows, .channels = channels, .fold = 1};
    size_t tall = rows / COLUMN_BLOCK; /* a fold costs merges: worth it for many rows only */
    if (channels < FOLD_WIDTH && tall)
        p.fold = divide_up(FOLD_WIDTH, channels) < tall ? divide_up(FOLD_WIDTH, channels) : tall;
    p.width = p.fold * channels;
    p.wide_rows = rows / p.fold;
    p.left = rows % p.fold * channels;
    p.piece_rows = COLUMN_BLOCK * divide_up(COLUMN_PIECE / COLUMN_BLOCK, p.width);
    size_t least = COLUMN_BLOCK * divide_up(divide_up(p.wide_rows, PIECES_MAX), COLUMN_BLOCK);
    if (p.piece_rows < least)
        p.piece_rows = least;
    p.pieces = divide_up(p.wide_rows, p.piece_rows);
    return p;
}

/* Rows of one piece. */
static inline size_t piece_height(const column_plan *p, size_t piece)
{
    size_t left = p->wide_rows - piece * p->piece_rows;
    return left < p->piece_rows ? left : p->piece_rows;
}

/* Of tasks shared out once already, a second round in the opposite order: each thread begins with what it read last, which
 * its cache still has. */
static inline size_t last_first(size_t task, size_t tasks, cn_work work)
{
    size_t threads = work.stream ? 1 : (size_t)work.threads, share = tasks / threads, larger = tasks % threads;
    size_t border = larger * (share + 1); /* the first threads have a task more */
    size_t n = task < border ? share + 1 : share, base = task < border ? 0 : border;
    size_t start = base + (task - base) / n * n;
    return start + (n - 1 - (task - start));
}

/* Samples in progress at once, each in a slot of the workspace; fewer where their columns would take much of it. */
#define SLOTS_MAX 64
#define SLOTS_BYTES ((size_t)64 << 20)

static inline size_t slots_for(size_t samples, size_t slot_size)
{
    size_t slots = SLOTS_BYTES / slot_size;
    slots = slots < 8 ? 8 : slots > SLOTS_MAX ? SLOTS_MAX : slots;
    return slots < samples ? slots : samples;
}

/* Whether tasks of one sample each would leave threads without work. */
static inline bool leaves_idle(size_t samples, int threads) { return samples % (size_t)threads != 0; }

/* Whether a single sample of independent channels is better shared out by columns than by rows. */
static inline bool share_columns(const column_plan *p, size_t bytes_per_element)
{
    return p->fold == 1 && (p->pieces == 1 || p->rows * CHUNK_COLUMNS * bytes_per_element <= CHUNK_BYTES);
}

#endif
