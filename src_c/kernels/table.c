/* The table of this (dtype, ISA level). Without CN_WITHOUT_<op> (see the Makefile) it has every entry. */
#include "../table.h"
#include "kernels.h"

#ifndef CN_TABLE_LINKAGE
#define CN_TABLE_LINKAGE /* external; static where api/check.h has the one level there is */
#endif

CN_TABLE_LINKAGE const CN_TABLE CN(table) = {
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
#ifndef CN_WITHOUT_adain
    .adain_workspace = CN(adain_workspace),
    .adain_forward = CN(adain_forward),
#endif
#ifndef CN_WITHOUT_adain_backward
    .adain_backward_workspace = CN(adain_backward_workspace),
    .adain_backward = CN(adain_backward),
#endif
#ifndef CN_WITHOUT_ada_layer_norm
    .ada_layer_norm_workspace = CN(ada_layer_norm_workspace),
    .ada_layer_norm_forward = CN(ada_layer_norm_forward),
#endif
#ifndef CN_WITHOUT_ada_layer_norm_backward
    .ada_layer_norm_backward_workspace = CN(ada_layer_norm_backward_workspace),
    .ada_layer_norm_backward = CN(ada_layer_norm_backward),
#endif
#ifndef CN_WITHOUT_spade
    .spade_workspace = CN(spade_workspace),
    .spade_forward = CN(spade_forward),
    .spade_inference_workspace = CN(spade_inference_workspace),
    .spade_inference = CN(spade_inference),
#endif
#ifndef CN_WITHOUT_spade_backward
    .spade_backward_workspace = CN(spade_backward_workspace),
    .spade_backward = CN(spade_backward),
#endif
#ifndef CN_WITHOUT_spade
    .spade_inference_backward = CN(spade_inference_backward),
#endif
#ifndef CN_WITHOUT_sync_batch_norm
    .sync_batch_norm_moments_workspace = CN(sync_batch_norm_moments_workspace),
    .sync_batch_norm_moments = CN(sync_batch_norm_moments),
    .sync_batch_norm_merge = CN(sync_batch_norm_merge),
    .sync_batch_norm_apply_workspace = CN(sync_batch_norm_apply_workspace),
    .sync_batch_norm_apply = CN(sync_batch_norm_apply),
#endif
#ifndef CN_WITHOUT_sync_batch_norm_backward
    .sync_batch_norm_backward_sums_workspace = CN(sync_batch_norm_backward_sums_workspace),
    .sync_batch_norm_backward_sums = CN(sync_batch_norm_backward_sums),
    .sync_batch_norm_backward_apply_workspace = CN(sync_batch_norm_backward_apply_workspace),
    .sync_batch_norm_backward_apply = CN(sync_batch_norm_backward_apply),
#endif
#ifndef CN_WITHOUT_whiten
    .whiten_covariance_workspace = CN(whiten_covariance_workspace),
    .whiten_covariance = CN(whiten_covariance),
    .whiten_apply_workspace = CN(whiten_apply_workspace),
    .whiten_apply = CN(whiten_apply),
#endif
#ifndef CN_WITHOUT_spectral_norm
    .spectral_norm_workspace = CN(spectral_norm_workspace),
    .spectral_norm_forward = CN(spectral_norm_forward),
#endif
#ifndef CN_WITHOUT_spectral_norm_backward
    .spectral_norm_backward_workspace = CN(spectral_norm_backward_workspace),
    .spectral_norm_backward = CN(spectral_norm_backward),
#endif
#ifndef CN_WITHOUT_normalize
    .normalize_workspace = CN(normalize_workspace),
    .normalize_forward = CN(normalize_forward),
#endif
#ifndef CN_WITHOUT_normalize_backward
    .normalize_backward = CN(normalize_backward),
#endif
#ifndef CN_WITHOUT_cosine_norm
    .cosine_norm_forward = CN(cosine_norm_forward),
#endif
#ifndef CN_WITHOUT_weight_norm
    .weight_norm_workspace = CN(weight_norm_workspace),
    .weight_norm_forward = CN(weight_norm_forward),
#endif
#ifndef CN_WITHOUT_weight_norm_backward
    .weight_norm_backward = CN(weight_norm_backward),
#endif
};
