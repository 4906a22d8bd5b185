/* What this processor, and its operating system, can do. */
#ifndef CN_CPU_H
#define CN_CPU_H

#include <stdbool.h>
#include <stddef.h>

bool cn_cpu_has_avx2(void);
bool cn_cpu_has_avx512(void); /* F, DQ, BW and VL */
bool cn_cpu_has_sve(void);
bool cn_cpu_has_rvv(void); /* version 1.0 */

/* Whether a call that reads and writes `bytes` in all stores its outputs past the caches. */
bool cn_past_caches(size_t bytes, size_t output_bytes);

#endif
