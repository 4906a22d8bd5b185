/* Memory for large outputs, on huge pages where the system gives them: fresh 4 KiB pages cost more than the norm, and
 * translating their addresses half as much as it. So it comes from the system and not from the heap, whose memory may be
 * in small pages already. */
#ifndef CN_PAGES_H
#define CN_PAGES_H

#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGES_UNIT ((size_t)64 << 10)

/* What is allocated for `size` bytes. */
static inline size_t pages_size(size_t size)
{
    size_t unit = size < HUGE_PAGE ? PAGES_UNIT : HUGE_PAGE;
    return (size + unit - 1) / unit * unit;
}

#if defined(_WIN32)
#include <malloc.h>
static inline void *pages_allocate(size_t size) { return _aligned_malloc(size, 4096); }
static inline void pages_free(void *pages, size_t size)
{
    (void)size;
    _aligned_free(pages);
}
#else
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

static inline void pages_free(void *pages, size_t size) { (void)munmap(pages, size); }

/* `size` is one of pages_size(). NULL without memory. */
static inline void *pages_allocate(size_t size)
{
    size_t spare = size < HUGE_PAGE ? 0 : HUGE_PAGE; /* for what lies before a huge page and behind the last one */
    unsigned char *mapped = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    size_t before = spare ? (size_t)(-(uintptr_t)mapped) % HUGE_PAGE : 0;
    if (before)
        pages_free(mapped, before);
    if (spare - before)
        pages_free(mapped + before + size, spare - before);
#ifdef MADV_HUGEPAGE
    if (spare)
        (void)madvise(mapped + before, size, MADV_HUGEPAGE); /* a hint: without huge pages all works, but slower */
#endif
    return mapped + before;
}
#endif

#endif
