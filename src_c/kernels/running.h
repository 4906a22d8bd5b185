/* Running statistics: running = (1 - momentum) * running + momentum * new, in acc, rounded once. */
#ifndef CN_RUNNING_H
#define CN_RUNNING_H

#include "level.h"

static inline real moved(real running, acc momentum, acc value)
{
    if (momentum == 0)
        return running;
    return (real)(momentum == 1 ? value : (1 - momentum) * (acc)running + momentum * value);
}

/* Of n values a channel. */
static inline void move_running(real *running_mean, real *running_var, const acc *mean, const acc *variance,
                                size_t channels, size_t n, acc momentum, bool unbiased)
{
    acc factor = unbiased ? (acc)n / ((acc)n - 1) : 1;
    for (size_t c = 0; c < channels; c++) {
        running_mean[c] = moved(running_mean[c], momentum, mean[c]);
        running_var[c] = moved(running_var[c], momentum, variance[c] * factor);
    }
}

#endif
