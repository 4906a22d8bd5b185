/* Checks of arrays that are broadcast against x. */
#ifndef CN_MODULATION_CHECK_H
#define CN_MODULATION_CHECK_H

#include "check.h"

typedef struct {
    size_t batch, channels, spatial;
    bool last;
} extent;

static inline cnorm_status check_modulation(const real *data, cnorm_strides s, extent shape)
{
    bool any = shape.batch && shape.channels && shape.spatial;
    size_t innermost = shape.last ? shape.channels : shape.spatial, step = shape.last ? s.channel : s.spatial;
    if (any && !data)
        return CNORM_ERROR_NULL;
    return innermost > 1 && step > 1 ? CNORM_ERROR_VALUE : CNORM_OK;
}

/* All the memory from the first element to the last. */
static inline region modulation_region(const real *data, cnorm_strides s, extent shape)
{
    if (shape.batch == 0 || shape.channels == 0 || shape.spatial == 0)
        return (region){data, 0};
    return (region){data, 1 + (shape.batch - 1) * s.batch + (shape.channels - 1) * s.channel +
                              (shape.spatial - 1) * s.spatial};
}

#endif
