/* Stores that go past the caches, for outputs that no cache could keep: they save the read of each line that an
 * ordinary store begins with. A kernel computes a short run of its output into a buffer on the stack and hands it on;
 * on machines without such stores this is a memcpy. x86's stores are weakly ordered: call stream_fence() at the end.
 */
#ifndef CN_STREAM_H
#define CN_STREAM_H

#include "../parallel.h"
#include "level.h"

#include <stdint.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#endif

#define STREAM_RUN 256

#if defined(__AVX512F__)
#define STREAM_BYTES 64
static inline void stream_vector(void *to, const void *from) { _mm512_stream_si512(to, _mm512_loadu_si512(from)); }
#elif defined(__AVX2__)
#define STREAM_BYTES 32
static inline void stream_vector(void *to, const void *from) { _mm256_stream_si256(to, _mm256_loadu_si256(from)); }
#elif defined(__SSE2__) || defined(_M_X64)
#define STREAM_BYTES 16
static inline void stream_vector(void *to, const void *from) { _mm_stream_si128(to, _mm_loadu_si128(from)); }
#endif

/* Elements of the next run of at most n for the buffer: runs end at multiples of their size in memory, so that all but
 * the first and the last are made of whole lines. */
static inline size_t stream_run(const real *to, size_t n)
{
    size_t m = STREAM_RUN - (uintptr_t)to / sizeof(real) % STREAM_RUN;
    return m < n ? m : n;
}

/* A group is fetched while the one before it is written, if it has at most this many bytes: what the first cache has
 * room for beside the present group; or past the caches, where x comes from memory, a part of the second cache. Longer
 * groups are left to the processor's own prefetching. */
#define NEAR_BYTES (8 * 1024)
#define FAR_BYTES (256 * 1024)

#define PAGE_BYTES 4096

/* Where there is no next group: this far ahead in the same array, across the pages at which processors stop. */
#define FAR_STEP (PAGE_BYTES / sizeof(real))

/* Whether what lies `stride` elements apart is whole pages apart: it shares the few lines that a cache has for each place in
 * a page. */
static inline bool pages_apart(size_t stride) { return stride * sizeof(real) % PAGE_BYTES == 0; }

/* Fetches the n elements that lie `ahead` elements beyond x, unless ahead is 0. Always inlined: gcc takes a function
 * that only prefetches for one without effects, and drops calls of it. */
CN_INLINE void fetch_near(const real *x, size_t n, size_t ahead)
{
    if (ahead)
        for (size_t i = 0; i < n; i += 64 / sizeof(real))
            CN_PREFETCH_NEAR(x + ahead + i);
}

/* The same, not into the first cache: its few line buffers are busy with the stores that go past it. */
CN_INLINE void fetch_far(const real *x, size_t n, size_t ahead)
{
    if (ahead)
        for (size_t i = 0; i < n; i += 64 / sizeof(real))
            CN_PREFETCH_FAR(x + ahead + i);
}

/* Whether to fetch ahead groups of this many bytes. */
static inline bool worth_fetching(cn_work work, size_t bytes)
{
    return work.far && bytes <= (work.stream ? FAR_BYTES : NEAR_BYTES);
}

/* Elements before the first whole line. */
static inline size_t before_line(const real *x) { return (size_t)(-(uintptr_t)x & 63) / sizeof(real); }

/* The next of the runs in which n elements are written through the caches. Where x is fetched ahead, between two fetches;
 * else all, from the first whole line of y on if there are many: a store across two lines takes twice as long. */
static inline size_t next_run(const real *y, size_t n, size_t ahead)
{
    if (ahead && n > STREAM_RUN)
        return stream_run(y, n);
    size_t head = before_line(y);
    return head && n > NEAR_BYTES / sizeof(real) ? head : n;
}

#ifdef STREAM_BYTES
/* Whole cache lines are streamed; the ends of a run that share a line with a neighbour are stored as usual, since a
 * partly written line costs a read and a write of memory. */
static inline void stream_out(real *to, const real *from, size_t n)
{
    unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    size_t bytes = n * sizeof(real), head = (size_t)(-(uintptr_t)t & 63);
    head = head < bytes ? head : bytes;
    memcpy(t, f, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64)
        for (size_t v = 0; v < 64; v += STREAM_BYTES)
            stream_vector(t + i + v, f + i + v);
    memcpy(t + i, f + i, bytes - i);
}
static inline void stream_fence(void) { _mm_sfence(); }
#else
static inline void stream_out(real *to, const real *from, size_t n) { memcpy(to, from, n * sizeof(real)); }
static inline void stream_fence(void) {}
#endif

#endif
