"""Normalization layers on NumPy arrays: batch, layer, RMS, group and instance norm."""

from cnorm._backend import name as backend
from cnorm._config import cache_limit, isa, isa_levels, set_cache_limit, set_isa, show_config
from cnorm._gradients import CosineNormGradients, Gradients, NormalizeGradients, WeightNormGradients
from cnorm._threads import get_num_threads, num_threads, set_num_threads
from cnorm._version import __version__
from cnorm.layers import (
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
    WeightNorm,
)
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.batch_norm_backward import batch_norm_backward
from cnorm.ops.cosine_norm import cosine_norm
from cnorm.ops.cosine_norm_backward import cosine_norm_backward
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
from cnorm.ops.weight_norm import weight_norm
from cnorm.ops.weight_norm_backward import weight_norm_backward

__all__ = [
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
    "WeightNorm",
    "WeightNormGradients",
    "__version__",
    "backend",
    "batch_norm",
    "batch_norm_backward",
    "cache_limit",
    "cosine_norm",
    "cosine_norm_backward",
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
    "weight_norm",
    "weight_norm_backward",
]
