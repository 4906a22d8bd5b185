/* What this processor, and its operating system, can do. */
#ifndef CN_CPU_H
#define CN_CPU_H

#include <stdbool.h>
#include <stddef.h>

bool cn_cpu_has_avx2(void);
bool cn_cpu_has_avx512(void); /* F, DQ, BW and VL */
bool cn_cpu_has_sve(void);
bool cn_cpu_has_rvv(void); /* version 1.0 */

/* Outputs of this many bytes and more are stored past the caches. */
size_t cn_stream_bytes(void);

#endif
