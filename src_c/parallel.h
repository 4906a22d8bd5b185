/* Sharing work among threads: how many, whether at all, and how outputs are stored. Nothing here depends on the dtype
 * or the ISA level, and nothing here may change the bits of a result.
 */
#ifndef CN_PARALLEL_H
#define CN_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int threads; /* 1: no parallel region is entered */
    bool far;    /* the data exceed a core's own caches: worth fetching ahead */
    bool stream; /* outputs go past the caches: cn_past_caches() in cpu.h */
} cn_work;

/* For a call that reads and writes `bytes` in all, `output_bytes` of them written. */
cn_work cn_plan_work(size_t bytes, size_t output_bytes);

/* task(job, i) for i in 0 .. tasks-1, in any order, on at most work.threads threads. */
void cn_parallel_for(size_t tasks, cn_work work, void (*task)(void *job, size_t i), void *job);

/* Groups that a task takes: enough work to be worth a hand-over, few enough tasks' worth to balance. */
size_t cn_groups_per_task(size_t groups, size_t group_bytes, int threads);

/* Fewer groups than this can be too few to share. */
#define CN_FEW_GROUPS 8

/* True where whole groups would leave cores idle and each group has pieces enough to share. */
bool cn_few_groups(size_t groups, size_t pieces);

#endif
