/* The gradients of weight and bias: sums over rows or samples, which are cut into blocks by their number alone. Each block
 * has its own sums in acc, added up in order; at the end the blocks are added in order. So the bits do not depend on who
 * computed which block. Of double data, what rounding took is carried along.
 */
#ifndef CN_PARAMETER_SUMS_H
#define CN_PARAMETER_SUMS_H

#include "../parallel.h"
#include "moments.h"

#define PARAMETER_BLOCKS_MAX 64

typedef struct {
    real *dweight, *dbias; /* (count,) each, or NULL */
    size_t blocks, count;
    acc *memory; /* (blocks, 2 or 4, count): of weight, of bias, and what rounding took from each */
} parameter_sums;

static inline size_t block_words(size_t count) { return (sizeof(real) == sizeof(acc) ? 4 : 2) * count; }

static inline size_t parameter_sums_size(size_t blocks, size_t count)
{
    return blocks * block_words(count) * sizeof(acc);
}

static inline bool wanted(const parameter_sums *p) { return p->dweight || p->dbias; }

/* The sums of weight of one block; those of bias follow. */
static inline acc *block_sums(const parameter_sums *p, size_t block)
{
    return p->memory + block * block_words(p->count);
}

/* Zero for the parameters [first, last) of one block. */
static inline void clear_sums(const parameter_sums *p, size_t block, size_t first, size_t last)
{
    acc *sums = block_sums(p, block);
    for (size_t part = 0; part < block_words(p->count); part += p->count)
        memset(sums + part + first, 0, (last - first) * sizeof(acc));
}

CN_INLINE void add_parameter(acc *sums, size_t count, size_t i, acc weight, acc bias)
{
    add_to(&sums[i], &sums[i + 2 * count], weight);
    add_to(&sums[i + count], &sums[i + 3 * count], bias);
}

/* What a channel adds to the sum of weight, from its sums of dy * t and dy (gradient.h). A sum of dy that has overflowed does
 * not matter where hat is t. */
CN_INLINE acc weight_sum(acc dy_t, acc dy, acc hat_lo) { return hat_lo != 0 ? dy_t - hat_lo * dy : dy_t; }

/* Of double data a value may also join what rounding took, for one operation in place of seven, if that is carried over to
 * the sum before many have. */
CN_INLINE void add_lightly(acc *sum, acc *lost, acc value) { *(sizeof(real) == sizeof(acc) ? lost : sum) += value; }

/* Whether there is something in `lost`: nothing of float data, no number where the sum has overflowed. */
CN_INLINE bool carried(acc sum) { return sizeof(real) == sizeof(acc) && fabs(sum) <= DBL_MAX; }

/* n sums of weight, and those of bias `count` further on. */
static inline void carry_over(acc *sums, size_t count, size_t n)
{
    for (size_t part = 0; part < 2 * count; part += count) {
        acc *sum = sums + part, *lost = sum + 2 * count;
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            acc both = sum[i], error = two_sum(&both, lost[i]);
            bool finite = carried(sum[i]);
            sum[i] = finite ? both : sum[i];
            lost[i] = finite ? error : lost[i];
        }
    }
}

#define MERGE_COUNT 1024
#define MERGE_BYTES (256 * 1024) /* more than this is worth sharing */

/* dweight and dbias of the parameters [first, last) from complete sums, of which `sums` has that of `first`. */
static inline void write_parameters(const parameter_sums *p, const acc *sums, size_t first, size_t last)
{
    for (size_t part = 0; part < 2; part++) {
        real *out = part ? p->dbias : p->dweight;
        const acc *sum = sums + part * p->count, *lost = sum + 2 * p->count;
        for (size_t i = first, k = 0; i < (out ? last : 0); i++, k++)
            out[i] = (real)(carried(sum[k]) ? sum[k] + lost[k] : sum[k]);
    }
}

/* The parameters [first, last): the sums of all blocks, in order. */
static inline void merge_blocks(const parameter_sums *p, size_t first, size_t last)
{
    const size_t count = p->count;
    acc *into = p->memory;
    for (size_t block = 1; block < p->blocks; block++) {
        const acc *from = block_sums(p, block);
#pragma omp simd
        for (size_t i = first; i < last; i++) {
            add_parameter(into, count, i, from[i], from[i + count]);
            if (sizeof(real) == sizeof(acc)) {
                into[i + 2 * count] += from[i + 2 * count];
                into[i + 3 * count] += from[i + 3 * count];
            }
        }
    }
    write_parameters(p, into + first, first, last);
}

static void merge_parameters(void *job, size_t task)
{
    const parameter_sums *p = job;
    size_t first = task * MERGE_COUNT;
    merge_blocks(p, first, first + MERGE_COUNT < p->count ? first + MERGE_COUNT : p->count);
}

/* Writes dweight and dbias; zeros if there is no block. */
static inline void finish_parameters(parameter_sums *p, cn_work work)
{
    if (p->blocks == 0) {
        for (size_t i = 0; i < (p->dweight ? p->count : 0); i++)
            p->dweight[i] = 0;
        for (size_t i = 0; i < (p->dbias ? p->count : 0); i++)
            p->dbias[i] = 0;
    } else if (wanted(p)) {
        if (parameter_sums_size(p->blocks, p->count) < MERGE_BYTES)
            work.threads = 1;
        cn_parallel_for((p->count + MERGE_COUNT - 1) / MERGE_COUNT, work, merge_parameters, p);
    }
}

#endif
