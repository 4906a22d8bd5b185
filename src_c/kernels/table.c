/* The table of this (dtype, ISA level). Without CN_WITHOUT_<op> (see the Makefile) it has every entry. */
#include "../table.h"
#include "kernels.h"

const CN_TABLE CN(table) = {
#ifndef CN_WITHOUT_layer_norm
    .layer_norm_workspace = CN(layer_norm_workspace),
    .layer_norm_forward = CN(layer_norm_forward),
#endif
#ifndef CN_WITHOUT_layer_norm_backward
    .layer_norm_backward_workspace = CN(layer_norm_backward_workspace),
    .layer_norm_backward = CN(layer_norm_backward),
#endif
#ifndef CN_WITHOUT_rms_norm
    .rms_norm_workspace = CN(rms_norm_workspace),
    .rms_norm_forward = CN(rms_norm_forward),
#endif
#ifndef CN_WITHOUT_rms_norm_backward
    .rms_norm_backward_workspace = CN(rms_norm_backward_workspace),
    .rms_norm_backward = CN(rms_norm_backward),
#endif
#ifndef CN_WITHOUT_group_norm
    .group_norm_workspace = CN(group_norm_workspace),
    .group_norm_forward = CN(group_norm_forward),
#endif
#ifndef CN_WITHOUT_group_norm_backward
    .group_norm_backward_workspace = CN(group_norm_backward_workspace),
    .group_norm_backward = CN(group_norm_backward),
#endif
#ifndef CN_WITHOUT_instance_norm
    .instance_norm_workspace = CN(instance_norm_workspace),
    .instance_norm_forward = CN(instance_norm_forward),
#endif
#ifndef CN_WITHOUT_instance_norm_backward
    .instance_norm_backward_workspace = CN(instance_norm_backward_workspace),
    .instance_norm_backward = CN(instance_norm_backward),
#endif
#ifndef CN_WITHOUT_batch_norm
    .batch_norm_workspace = CN(batch_norm_workspace),
    .batch_norm_forward = CN(batch_norm_forward),
    .batch_norm_inference_workspace = CN(batch_norm_inference_workspace),
    .batch_norm_inference = CN(batch_norm_inference),
#endif
#ifndef CN_WITHOUT_batch_norm_backward
    .batch_norm_backward_workspace = CN(batch_norm_backward_workspace),
    .batch_norm_backward = CN(batch_norm_backward),
#endif
#ifndef CN_WITHOUT_copy
    .copy = CN(copy),
#endif
};
