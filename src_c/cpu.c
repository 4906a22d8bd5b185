/* Processor detection: CPUID for what the CPU has, XGETBV for what the operating system saves on a context switch. */
#include "cpu.h"

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

bool cn_cpu_has_avx512(void)
{
    const unsigned long long zmm = 0xe6; /* and the masks, the upper ZMM halves, ZMM16-31 */
    const unsigned need = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return (saved_state() & zmm) == zmm && (leaf7_ebx() & need) == need && cn_cpu_has_avx2();
}
#else
bool cn_cpu_has_avx2(void) { return false; }
bool cn_cpu_has_avx512(void) { return false; }
#endif

size_t cn_stream_bytes(void) { return (size_t)4 << 20; }
