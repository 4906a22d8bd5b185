/* Memory for large outputs, on huge pages where the system gives them: fresh 4 KiB pages cost more than the norm. */
#ifndef CN_PAGES_H
#define CN_PAGES_H

#include <stdlib.h>

#if defined(_WIN32)
#include <malloc.h>
static inline void *pages_allocate(size_t size) { return _aligned_malloc(size, 4096); }
static inline void pages_free(void *pages) { _aligned_free(pages); }
#else
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

static inline void *pages_allocate(size_t size)
{
    void *pages = NULL;
    if (posix_memalign(&pages, size >= HUGE_PAGE ? HUGE_PAGE : 4096, size) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_PAGE)
        (void)madvise(pages, size, MADV_HUGEPAGE); /* a hint: without huge pages all works, with more page faults */
#endif
    return pages;
}
static inline void pages_free(void *pages) { free(pages); }
#endif

#endif
