/* Processor detection: CPUID for what the CPU has, XGETBV for what the operating system saves on a context switch. */
#include "cpu.h"

#include <stdatomic.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define CN_X86 1

static unsigned long long saved_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (unsigned long long)d << 32 | a;
}

static unsigned leaf7_ebx(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) ? b : 0;
}

bool cn_cpu_has_avx2(void)
{
    const unsigned long long ymm = 0x6; /* XMM and upper YMM halves */
    return (saved_state() & ymm) == ymm && (leaf7_ebx() & bit_AVX2);
}

/* Bytes of the largest cache that CPUID's leaf 4 lists (Intel), or leaf 0x8000001d (AMD); 0 if neither does. */
static size_t last_level_cache(void)
{
    static const unsigned leaves[] = {4, 0x8000001d};
    size_t largest = 0;
    for (int l = 0; l < 2 && largest == 0; l++) {
        unsigned a, b, c, d;
        for (unsigned i = 0; i < 8 && __get_cpuid_count(leaves[l], i, &a, &b, &c, &d) && (a & 31); i++) {
            size_t ways = (b >> 22) + 1, parts = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1;
            size_t bytes = ways * parts * line * ((size_t)c + 1);
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

bool cn_cpu_has_avx512(void)
{
    const unsigned long long zmm = 0xe6; /* and the masks, the upper ZMM halves, ZMM16-31 */
    const unsigned need = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return (saved_state() & zmm) == zmm && (leaf7_ebx() & need) == need && cn_cpu_has_avx2();
}
#else
bool cn_cpu_has_avx2(void) { return false; }
bool cn_cpu_has_avx512(void) { return false; }
static size_t last_level_cache(void) { return 0; }
#endif

/* Half of the last-level cache, since the input passes through it too. At most 16 MiB: a virtual machine is told of a
 * large cache that it shares with others. On one told of 260 MiB, with other data in use, a copy of 16 MiB and a plain
 * read of the result took as long with either kind of store, within 6 %; the copy alone 0.8 of the time. */
size_t cn_stream_bytes(void)
{
    const size_t most = (size_t)16 << 20;
    static atomic_size_t known = 0; /* asked once: under a hypervisor each CPUID costs tens of microseconds */
    size_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes == 0) {
        size_t half = last_level_cache() / 2;
        bytes = half && half < most ? half : most;
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes;
}
