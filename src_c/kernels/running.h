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

#endif
