/* The problems of a dtype, and what their checks have in common. Included where CN_REAL is f32 or f64.
 *
 * Inputs are integers over a power of two, times a power of two, so that a plain computation in a wider type, with a
 * corrected mean, is good to a small part of a unit. They and every number that goes into a kernel are the same on every
 * machine, so that hashes of results can be compared.
 */
#ifndef CN_CHECK_PROBLEM_H
#define CN_CHECK_PROBLEM_H

#include "check.h"
#include "cnorm.h"
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tgmath.h>

/* Where long double is no wider than double, no error of double data is measured: equal hashes tell as much. */
typedef double cn_wide_f32;
typedef long double cn_wide_f64;
typedef CN_DTYPE_NAME(cn_wide, CN_REAL) wide;
#define MEASURABLE (sizeof(real) == 4 || LDBL_MANT_DIG > DBL_MANT_DIG)

#define CN_API(name) CN_DTYPE_NAME(cnorm_##name, CN_REAL)
#define DTYPE (sizeof(real) == 4 ? "f32" : "f64")
#define UNIT_ROUNDOFF (sizeof(real) == 4 ? 0x1p-24 : 0x1p-53)
#define HASH_START 0xcbf29ce484222325u
#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

typedef enum { LAYER, RMS, GROUP, INSTANCE, BATCH, INFERENCE, OPS } op;
static const char *const op_names[] = {"layer_norm",    "rms_norm",   "group_norm",
                                       "instance_norm", "batch_norm", "batch_norm inference"};

typedef struct {
    op op;
    size_t batch, channels, spatial, groups;
    cnorm_layout layout;
    double offset, scale;
} problem;

/* Whether the error of n elements is worth its time. */
static inline bool is_measured(size_t n) { return MEASURABLE && !(check_is_quick && n > 30000); }

/* The line of an op: what its check measured, both ways, and the hash over all its outputs. */
static inline void report_op(const char *name, double forward, double backward, uint64_t hash)
{
    printf("%-3s %-20s worst %5.2f units, backward %5.2f  hash %016llx\n", DTYPE, name, MEASURABLE ? forward : NAN,
           MEASURABLE ? backward : NAN, (unsigned long long)hash);
}

static uint32_t random_state = 1;

/* Uniform in [-1, 1), 12 bits: a linear congruential generator. */
static inline double noise(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (double)(random_state >> 20) / 2048 - 1;
}

static inline void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        printf("FAIL out of memory\n");
        exit(1);
    }
    return memory;
}

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* Chooses the i-th pair of a level and a number of threads, the baseline with one thread first; false past the last. */
static inline bool choose_variant(int i)
{
    static const int thread_counts[] = {1, 3, 2, 7};
    static const char *names[8]; /* asked for once: virtual machines take their time to answer */
    static int levels = 0;
    const int counts = check_is_quick ? 2 : (int)COUNT_OF(thread_counts);
    if (levels == 0)
        while (cnorm_isa_level(levels))
            names[levels] = cnorm_isa_level(levels), levels++;
    if (i >= levels * counts)
        return false;
    if (i % counts == 0)
        cnorm_set_isa(names[levels - 1 - i / counts]);
    cnorm_set_num_threads(thread_counts[i % counts]);
    return true;
}

static inline void report_failure(const problem *p, const char *what, const char *remark)
{
    printf("FAIL %s %s%s (%zu, %zu, %zu) layout %d: %s, %d threads: %s\n", DTYPE, op_names[p->op], what, p->batch,
           p->channels, p->spatial, (int)p->layout, cnorm_isa(), cnorm_get_num_threads(), remark);
}

static inline size_t count_elements(const problem *p) { return p->batch * p->channels * p->spatial; }

/* The group and the parameter that element i belongs to. */
static inline void locate(const problem *p, size_t i, size_t *group, size_t *parameter)
{
    bool last = p->layout == CNORM_CHANNELS_LAST;
    size_t sample = i / (p->channels * p->spatial), within = i % (p->channels * p->spatial);
    size_t c = last ? within % p->channels : within / p->spatial;
    *parameter = c;
    if (p->op == LAYER || p->op == RMS)
        *group = sample;
    else if (p->op == GROUP)
        *group = sample * p->groups + c / (p->channels / p->groups);
    else
        *group = p->op == INSTANCE ? sample * p->channels + c : c;
}

static inline size_t count_groups(const problem *p)
{
    size_t counts[] = {p->batch, p->batch, p->batch * p->groups, p->batch * p->channels, p->channels, p->channels};
    return p->batch ? counts[p->op] : 0;
}

typedef struct {
    wide count, mean, correction, square;
} reference;

/* Of each group of x, in three passes; `square` is the sum of squared differences. */
static inline reference *reference_statistics(const problem *p, const real *x)
{
    size_t n = count_elements(p), groups = count_groups(p), g, c;
    reference *r = allocate(groups * sizeof *r);
    for (size_t k = 0; k < groups; k++)
        r[k] = (reference){0};
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < n; i++) {
            locate(p, i, &g, &c);
            wide d = ((wide)x[i] - (pass ? r[g].mean : 0)) - r[g].correction;
            r[g].count += pass == 0;
            *(pass == 0 ? &r[g].mean : &r[g].square) += pass == 2 ? d * d : d;
        }
        for (size_t k = 0; k < groups; k++) {
            if (r[k].count == 0)
                continue;
            if (pass == 0)
                r[k].mean = p->op == RMS ? 0 : r[k].mean / r[k].count;
            if (pass == 1)
                r[k].correction = p->op == RMS ? 0 : r[k].square / r[k].count, r[k].square = 0;
        }
    }
    return r;
}

#endif
