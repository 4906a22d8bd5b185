/* The table of this (dtype, ISA level). */
#include "../table.h"
#include "kernels.h"

#ifndef CN_TABLE_LINKAGE
#define CN_TABLE_LINKAGE /* external; static where api/check.h has the one level there is */
#endif

CN_TABLE_LINKAGE const CN_TABLE CN(table) = {
    .layer_norm_workspace = CN(layer_norm_workspace),
    .layer_norm_forward = CN(layer_norm_forward),
    .layer_norm_backward_workspace = CN(layer_norm_backward_workspace),
    .layer_norm_backward = CN(layer_norm_backward),
    .rms_norm_workspace = CN(rms_norm_workspace),
    .rms_norm_forward = CN(rms_norm_forward),
    .rms_norm_backward_workspace = CN(rms_norm_backward_workspace),
    .rms_norm_backward = CN(rms_norm_backward),
    .group_norm_workspace = CN(group_norm_workspace),
    .group_norm_forward = CN(group_norm_forward),
    .group_norm_backward_workspace = CN(group_norm_backward_workspace),
    .group_norm_backward = CN(group_norm_backward),
    .instance_norm_workspace = CN(instance_norm_workspace),
    .instance_norm_forward = CN(instance_norm_forward),
    .instance_norm_backward_workspace = CN(instance_norm_backward_workspace),
    .instance_norm_backward = CN(instance_norm_backward),
    .batch_norm_workspace = CN(batch_norm_workspace),
    .batch_norm_forward = CN(batch_norm_forward),
    .batch_norm_inference_workspace = CN(batch_norm_inference_workspace),
    .batch_norm_inference = CN(batch_norm_inference),
    .batch_norm_backward_workspace = CN(batch_norm_backward_workspace),
    .batch_norm_backward = CN(batch_norm_backward),
    .copy = CN(copy),
};
