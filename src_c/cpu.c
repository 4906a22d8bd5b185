/* Processor detection. On x86 CPUID tells what the CPU has and XGETBV what the operating system saves on a context
 * switch; Linux on ARM and RISC-V tells both at once. */
#include "cpu.h"

#include <stdatomic.h>
#include <stdint.h>

#if defined(__linux__) && (defined(__aarch64__) || defined(__riscv))
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64)
#define FMA (1u << 12) /* of leaf 1, ECX */
#define OSXSAVE (1u << 27)
#define AVX2 (1u << 5) /* of leaf 7, EBX */
#define AVX512F (1u << 16)
#define AVX512DQ (1u << 17)
#define AVX512BW (1u << 30)
#define AVX512VL (1u << 31)

typedef struct {
    unsigned a, b, c, d;
} cpuid_answer;

/* Zeros for a leaf that there is not. */
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static cpuid_answer ask(unsigned leaf, unsigned subleaf)
{
    int most[4], r[4];
    __cpuid(most, (int)(leaf & 0x80000000u));
    if ((unsigned)most[0] < leaf)
        return (cpuid_answer){0};
    __cpuidex(r, (int)leaf, (int)subleaf);
    return (cpuid_answer){(unsigned)r[0], (unsigned)r[1], (unsigned)r[2], (unsigned)r[3]};
}
static unsigned long long read_xcr0(void) { return _xgetbv(0); }
#else
#include <cpuid.h>
static cpuid_answer ask(unsigned leaf, unsigned subleaf)
{
    cpuid_answer r = {0};
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d))
        return (cpuid_answer){0};
    return r;
}
static unsigned long long read_xcr0(void)
{
    unsigned a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (unsigned long long)d << 32 | a;
}
#endif

static unsigned long long saved_state(void) { return ask(1, 0).c & OSXSAVE ? read_xcr0() : 0; }

bool cn_cpu_has_avx2(void)
{
    const unsigned long long ymm = 0x6; /* XMM and upper YMM halves */
    return (saved_state() & ymm) == ymm && (ask(7, 0).b & AVX2) && (ask(1, 0).c & FMA);
}

/* Bytes of the largest cache that CPUID's leaf 4 lists (Intel), or leaf 0x8000001d (AMD); 0 if neither does. */
static size_t last_level_cache(void)
{
    static const unsigned leaves[] = {4, 0x8000001d};
    size_t largest = 0;
    for (int l = 0; l < 2 && largest == 0; l++) {
        for (unsigned i = 0; i < 8; i++) {
            cpuid_answer r = ask(leaves[l], i);
            if (!(r.a & 31))
                break;
            size_t ways = (r.b >> 22) + 1, parts = (r.b >> 12 & 0x3ff) + 1, line = (r.b & 0xfff) + 1;
            size_t bytes = ways * parts * line * ((size_t)r.c + 1);
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

bool cn_cpu_has_avx512(void)
{
    const unsigned long long zmm = 0xe6; /* and the masks, the upper ZMM halves, ZMM16-31 */
    const unsigned need = AVX512F | AVX512DQ | AVX512BW | AVX512VL;
    return (saved_state() & zmm) == zmm && (ask(7, 0).b & need) == need && cn_cpu_has_avx2();
}
#else
bool cn_cpu_has_avx2(void) { return false; }
bool cn_cpu_has_avx512(void) { return false; }
static size_t last_level_cache(void) { return 0; }
#endif

#if defined(__linux__) && defined(__aarch64__)
bool cn_cpu_has_sve(void) { return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0; }
#else
bool cn_cpu_has_sve(void) { return false; }
#endif

/* Linux names an extension by its letter, and by V means version 1.0. */
#if defined(__linux__) && defined(__riscv)
bool cn_cpu_has_rvv(void) { return (getauxval(AT_HWCAP) & 1ul << ('V' - 'A')) != 0; }
#else
bool cn_cpu_has_rvv(void) { return false; }
#endif

/* Outputs of half the last-level cache, since the input passes through it too; at most 16 MiB, for a virtual machine is told
 * of a large cache that it shares with others. On one told of 260 MiB, with other data in use, a copy of 16 MiB and a plain
 * read of the result took as long with either kind of store, within 6 %; the copy alone 0.8 of the time. And what a call
 * writes that reads twice as much, a gradient, if all of it would take the cache but for an eighth: others use that too. */
bool cn_past_caches(size_t bytes, size_t output_bytes)
{
    const size_t most = (size_t)16 << 20, unknown = SIZE_MAX;
    static atomic_size_t known = 0; /* asked once: under a hypervisor each CPUID costs tens of microseconds */
    size_t cache = atomic_load_explicit(&known, memory_order_relaxed);
    if (cache == 0) {
        size_t told = last_level_cache();
        cache = told ? told : unknown;
        atomic_store_explicit(&known, cache, memory_order_relaxed);
    }
    const bool large = output_bytes >= (cache / 2 < most ? cache / 2 : most);
    const bool reads = bytes - output_bytes >= 2 * output_bytes;
    return output_bytes && (large || (reads && bytes >= cache - cache / 8));
}
