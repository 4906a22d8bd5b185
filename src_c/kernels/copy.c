/* A plain copy with the stores and the sharing of the norms: the yardstick that their speed is given against. */
#include "../parallel.h"
#include "kernels.h"
#include "stream.h"

#define COPY_ELEMENTS 65536

typedef struct {
    real *y;
    const real *x;
    size_t n;
    bool stream;
} copy_job;

static void copy_part(void *job, size_t task)
{
    const copy_job *g = job;
    size_t first = task * COPY_ELEMENTS, n = g->n - first < COPY_ELEMENTS ? g->n - first : COPY_ELEMENTS;
    if (g->stream)
        stream_out(g->y + first, g->x + first, n);
    else
        memcpy(g->y + first, g->x + first, n * sizeof(real));
    stream_fence();
}

void CN(copy)(real *y, const real *x, size_t n, cn_work work)
{
    copy_job job = {y, x, n, work.stream};
    cn_parallel_for(n / COPY_ELEMENTS + (n % COPY_ELEMENTS != 0), work, copy_part, &job);
}
