"""The normalizations of neural networks on NumPy arrays, forward and backward, for CPUs."""

from cnorm._backend import name as backend
from cnorm._config import cache_limit, isa, isa_levels, set_cache_limit, set_isa, show_config
from cnorm._gradients import (
    AdaINGradients,
    AdaLayerNormGradients,
    CosineNormGradients,
    Gradients,
    NormalizeGradients,
    SpadeGradients,
    WeightNormGradients,
    WhitenGradients,
)
from cnorm._threads import get_num_threads, num_threads, set_num_threads
from cnorm._version import __version__
from cnorm._whitening import WhitenFactors
from cnorm.layers import (
    SPADE,
    AdaIN,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    CosineLinear,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
    SpectralNorm,
    SyncBatchNorm,
    WeightNorm,
    Whitening,
)
from cnorm.ops.ada_layer_norm import ada_layer_norm
from cnorm.ops.ada_layer_norm_backward import ada_layer_norm_backward
from cnorm.ops.adain import adain
from cnorm.ops.adain_backward import adain_backward
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.batch_norm_backward import batch_norm_backward
from cnorm.ops.cosine_norm import cosine_norm
from cnorm.ops.cosine_norm_backward import cosine_norm_backward
from cnorm.ops.fold_batch_norm import fold_batch_norm
from cnorm.ops.group_norm import group_norm
from cnorm.ops.group_norm_backward import group_norm_backward
from cnorm.ops.instance_norm import instance_norm
from cnorm.ops.instance_norm_backward import instance_norm_backward
from cnorm.ops.layer_norm import layer_norm
from cnorm.ops.layer_norm_backward import layer_norm_backward
from cnorm.ops.normalize import normalize
from cnorm.ops.normalize_backward import normalize_backward
from cnorm.ops.rms_norm import rms_norm
from cnorm.ops.rms_norm_backward import rms_norm_backward
from cnorm.ops.spade import spade
from cnorm.ops.spade_backward import spade_backward
from cnorm.ops.spectral_norm import spectral_norm
from cnorm.ops.spectral_norm_backward import spectral_norm_backward
from cnorm.ops.sync_batch_norm import sync_batch_norm
from cnorm.ops.sync_batch_norm_backward import sync_batch_norm_backward
from cnorm.ops.weight_norm import weight_norm
from cnorm.ops.weight_norm_backward import weight_norm_backward
from cnorm.ops.whiten import whiten
from cnorm.ops.whiten_backward import whiten_backward

__all__ = [
    "SPADE",
    "AdaIN",
    "AdaINGradients",
    "AdaLayerNormGradients",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CosineLinear",
    "CosineNormGradients",
    "Gradients",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "NormalizeGradients",
    "RMSNorm",
    "SpadeGradients",
    "SpectralNorm",
    "SyncBatchNorm",
    "WeightNorm",
    "WeightNormGradients",
    "WhitenFactors",
    "WhitenGradients",
    "Whitening",
    "__version__",
    "ada_layer_norm",
    "ada_layer_norm_backward",
    "adain",
    "adain_backward",
    "backend",
    "batch_norm",
    "batch_norm_backward",
    "cache_limit",
    "cosine_norm",
    "cosine_norm_backward",
    "fold_batch_norm",
    "get_num_threads",
    "group_norm",
    "group_norm_backward",
    "instance_norm",
    "instance_norm_backward",
    "isa",
    "isa_levels",
    "layer_norm",
    "layer_norm_backward",
    "normalize",
    "normalize_backward",
    "num_threads",
    "rms_norm",
    "rms_norm_backward",
    "set_cache_limit",
    "set_isa",
    "set_num_threads",
    "show_config",
    "spade",
    "spade_backward",
    "spectral_norm",
    "spectral_norm_backward",
    "sync_batch_norm",
    "sync_batch_norm_backward",
    "weight_norm",
    "weight_norm_backward",
    "whiten",
    "whiten_backward",
]
