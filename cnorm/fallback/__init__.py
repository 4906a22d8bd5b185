"""The NumPy backend: readable, float64 inside, and the specification of what the kernels compute."""

from cnorm.fallback.ada_layer_norm import ada_layer_norm
from cnorm.fallback.ada_layer_norm_backward import ada_layer_norm_backward
from cnorm.fallback.adain import adain
from cnorm.fallback.adain_backward import adain_backward
from cnorm.fallback.batch_norm import batch_norm_inference, batch_norm_training
from cnorm.fallback.batch_norm_backward import batch_norm_backward
from cnorm.fallback.cosine_norm import cosine_norm
from cnorm.fallback.group_norm import group_norm
from cnorm.fallback.group_norm_backward import group_norm_backward
from cnorm.fallback.instance_norm import instance_norm
from cnorm.fallback.instance_norm_backward import instance_norm_backward
from cnorm.fallback.layer_norm import layer_norm
from cnorm.fallback.layer_norm_backward import layer_norm_backward
from cnorm.fallback.normalize import normalize
from cnorm.fallback.normalize_backward import normalize_backward
from cnorm.fallback.rms_norm import rms_norm
from cnorm.fallback.rms_norm_backward import rms_norm_backward
from cnorm.fallback.spade import spade, spade_inference
from cnorm.fallback.spade_backward import spade_backward
from cnorm.fallback.spectral_norm import spectral_norm
from cnorm.fallback.spectral_norm_backward import spectral_norm_backward
from cnorm.fallback.sync_batch_norm import (
    sync_batch_norm_apply,
    sync_batch_norm_merge,
    sync_batch_norm_moments,
)
from cnorm.fallback.sync_batch_norm_backward import (
    sync_batch_norm_backward_apply,
    sync_batch_norm_backward_sums,
)
from cnorm.fallback.weight_norm import weight_norm
from cnorm.fallback.weight_norm_backward import weight_norm_backward
from cnorm.fallback.whiten import whiten_apply, whiten_covariance

__all__ = [
    "ada_layer_norm",
    "ada_layer_norm_backward",
    "adain",
    "adain_backward",
    "batch_norm_backward",
    "batch_norm_inference",
    "batch_norm_training",
    "cosine_norm",
    "group_norm",
    "group_norm_backward",
    "instance_norm",
    "instance_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "normalize",
    "normalize_backward",
    "rms_norm",
    "rms_norm_backward",
    "spade",
    "spade_backward",
    "spade_inference",
    "spectral_norm",
    "spectral_norm_backward",
    "sync_batch_norm_apply",
    "sync_batch_norm_backward_apply",
    "sync_batch_norm_backward_sums",
    "sync_batch_norm_merge",
    "sync_batch_norm_moments",
    "weight_norm",
    "weight_norm_backward",
    "whiten_apply",
    "whiten_covariance",
]
