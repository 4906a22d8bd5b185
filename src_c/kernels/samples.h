/* Gradients whose parameters belong to one sample: a job of its own for each sample of a batch, with workspace of its own.
 *
 * Many samples, or as many as there is a whole number of for each thread: a task is a slot of the workspace and takes the
 * samples of that slot in turn, each on its one thread. Few samples: one after the other, shared out inside. The kernels'
 * bits depend on neither.
 */
#ifndef CN_SAMPLES_H
#define CN_SAMPLES_H

#include "column_plan.h"

typedef struct sample_jobs sample_jobs;
struct sample_jobs {
    const void *job;
    void (*sample)(const void *job, size_t sample, cn_work work, void *workspace);
    size_t samples, slot_size; /* workspace of one sample */
    cn_work work;
    size_t slots;
    unsigned char *memory;
};

static inline size_t samples_workspace(size_t samples, size_t slot_size)
{
    return samples && slot_size ? slots_for(samples, slot_size) * slot_size : 0;
}

static void samples_of_slot(void *jobs, size_t task)
{
    const sample_jobs *j = jobs;
    cn_work alone = j->work;
    alone.threads = 1;
    for (size_t sample = task; sample < j->samples; sample += j->slots)
        j->sample(j->job, sample, alone, j->memory + task * j->slot_size);
}

static inline void run_samples(sample_jobs *j, void *workspace)
{
    j->memory = workspace;
    j->slots = j->samples ? slots_for(j->samples, j->slot_size ? j->slot_size : 1) : 0;
    if (j->samples >= CN_FEW_GROUPS || !leaves_idle(j->samples, j->work.threads))
        cn_parallel_for(j->slots, j->work, samples_of_slot, j);
    else
        for (size_t sample = 0; sample < j->samples; sample++)
            j->sample(j->job, sample, j->work, j->memory);
}

#endif
