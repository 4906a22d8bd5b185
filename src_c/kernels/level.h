/* The vocabulary of a kernel file. Each kernel is an ordinary C file, compiled once per (dtype, ISA level) with
 * -DCN_REAL=f32 -DCN_ISA=avx2 and that level's flags; this header turns the two words into names and types.
 *
 *   real   the type of the arrays          acc   the type in which sums and statistics are carried
 *   CN(layer_norm_forward)  ->  cn_layer_norm_forward_f32_avx2
 */
#ifndef CN_LEVEL_H
#define CN_LEVEL_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "../dtype.h"

#define CN_LEVEL_NAME_(name, dtype, isa) cn_##name##_##dtype##_##isa
#define CN_LEVEL_NAME(name, dtype, isa) CN_LEVEL_NAME_(name, dtype, isa)
#define CN(name) CN_LEVEL_NAME(name, CN_REAL, CN_ISA)

/* Sums run in this many independent lanes, folded in a written order: the same bits from 4-wide and 16-wide
 * vectors. 16 lanes of double are two accumulators' worth of AVX2 registers. */
#define LANES 16

/* Squares of differences are safe between these bounds: no term that matters was flushed and none overflowed. */
#define VARIANCE_MIN (sizeof(real) == 4 ? 0x1p-100 : 0x1p-900)
#define VARIANCE_MAX (sizeof(real) == 4 ? 0x1p+120 : 0x1p+990)
#define REAL_MAX (sizeof(real) == 4 ? (acc)FLT_MAX : (acc)DBL_MAX)
#define REAL_MIN (sizeof(real) == 4 ? (acc)FLT_MIN : (acc)DBL_MIN)

#if defined(_MSC_VER) && !defined(__clang__)
#pragma fp_contract(off) /* what -ffp-contract=off says elsewhere */
#endif

#if defined(__GNUC__)
#define CN_NOINLINE __attribute__((noinline))
#define CN_INLINE static inline __attribute__((always_inline))
#define CN_PREFETCH_NEAR(address) __builtin_prefetch(address, 0, 3)
#define CN_PREFETCH_FAR(address) __builtin_prefetch(address, 0, 2)
#else
#define CN_NOINLINE
#define CN_INLINE static inline
#define CN_PREFETCH_NEAR(address) ((void)(address))
#define CN_PREFETCH_FAR(address) ((void)(address))
#endif

#endif
