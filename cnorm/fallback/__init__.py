"""The NumPy backend: readable, float64 inside, and the specification of what the kernels compute."""

from cnorm.fallback.batch_norm import batch_norm_inference, batch_norm_training
from cnorm.fallback.group_norm import group_norm
from cnorm.fallback.instance_norm import instance_norm
from cnorm.fallback.layer_norm import layer_norm
from cnorm.fallback.rms_norm import rms_norm

__all__ = [
    "batch_norm_inference",
    "batch_norm_training",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
]
