/* Any backward function of a dtype, called by its op, and the forward function before it. */
#ifndef CN_CHECK_BACKWARD_H
#define CN_CHECK_BACKWARD_H

#include "check_problem.h"

typedef struct {
    real *dx, *dweight, *dbias;
    const real *dy, *x, *mean, *rstd, *weight;
    size_t batch, channels, spatial, groups;
    double weight_offset;
    cnorm_layout layout;
    void *workspace;
    size_t workspace_size;
} backward_call;

static inline size_t backward_workspace(op op, const backward_call *c)
{
    switch (op) {
    case LAYER:
        return CN_API(layer_norm_backward_workspace)(c->batch, c->channels);
    case RMS:
        return CN_API(rms_norm_backward_workspace)(c->batch, c->channels);
    case GROUP:
        return CN_API(group_norm_backward_workspace)(c->batch, c->channels, c->spatial, c->groups, c->layout);
    case INSTANCE:
        return CN_API(instance_norm_backward_workspace)(c->batch, c->channels, c->spatial, c->layout);
    default:
        return CN_API(batch_norm_backward_workspace)(c->batch, c->channels, c->spatial, c->layout);
    }
}

static inline cnorm_status run_backward(op op, const backward_call *c)
{
    switch (op) {
    case LAYER:
        return CN_API(layer_norm_backward)(c->dx, c->dweight, c->dbias, c->dy, c->x, c->mean, c->rstd, c->weight,
                                           c->batch, c->channels, c->workspace, c->workspace_size);
    case RMS:
        return CN_API(rms_norm_backward)(c->dx, c->dweight, c->dbias, c->dy, c->x, c->rstd, c->weight, c->batch,
                                         c->channels, c->weight_offset, c->workspace, c->workspace_size);
    case GROUP:
        return CN_API(group_norm_backward)(c->dx, c->dweight, c->dbias, c->dy, c->x, c->mean, c->rstd, c->weight,
                                           c->batch, c->channels, c->spatial, c->groups, c->layout, c->workspace,
                                           c->workspace_size);
    case INSTANCE:
        return CN_API(instance_norm_backward)(c->dx, c->dweight, c->dbias, c->dy, c->x, c->mean, c->rstd, c->weight,
                                              c->batch, c->channels, c->spatial, c->layout, c->workspace,
                                              c->workspace_size);
    default:
        return CN_API(batch_norm_backward)(c->dx, c->dweight, c->dbias, c->dy, c->x, c->mean, c->rstd, c->weight,
                                           c->batch, c->channels, c->spatial, op == BATCH, c->layout, c->workspace,
                                           c->workspace_size);
    }
}

static inline size_t forward_workspace(op op, const backward_call *c)
{
    switch (op) {
    case LAYER:
        return CN_API(layer_norm_forward_workspace)(c->batch, c->channels);
    case RMS:
        return CN_API(rms_norm_forward_workspace)(c->batch, c->channels);
    case GROUP:
        return CN_API(group_norm_forward_workspace)(c->batch, c->channels, c->spatial, c->groups, c->layout);
    case INSTANCE:
        return CN_API(instance_norm_forward_workspace)(c->batch, c->channels, c->spatial, c->layout);
    default:
        return CN_API(batch_norm_forward_workspace)(c->batch, c->channels, c->spatial, c->layout);
    }
}

/* The statistics of c->x. */
static inline cnorm_status run_forward(op op, const backward_call *c, real *y, real *mean, real *rstd, double eps)
{
    size_t size = forward_workspace(op, c);
    void *workspace = allocate(size);
    cnorm_status status = CNORM_OK;
    if (op == LAYER)
        status =
            CN_API(layer_norm_forward)(y, mean, rstd, c->x, NULL, NULL, c->batch, c->channels, eps, workspace, size);
    else if (op == RMS)
        status = CN_API(rms_norm_forward)(y, rstd, c->x, NULL, NULL, c->batch, c->channels, eps, 0, workspace, size);
    else if (op == GROUP)
        status = CN_API(group_norm_forward)(y, mean, rstd, c->x, NULL, NULL, c->batch, c->channels, c->spatial,
                                            c->groups, eps, c->layout, workspace, size);
    else if (op == INSTANCE)
        status = CN_API(instance_norm_forward)(y, mean, rstd, NULL, NULL, c->x, NULL, NULL, c->batch, c->channels,
                                               c->spatial, eps, 0, c->layout, workspace, size);
    else
        status = CN_API(batch_norm_forward)(y, mean, rstd, NULL, NULL, c->x, NULL, NULL, c->batch, c->channels,
                                            c->spatial, eps, 0, 0, c->layout, workspace, size);
    free(workspace);
    return status;
}

#endif
