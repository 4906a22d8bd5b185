"""Layers: parameters, running statistics and gradients around the functions of `cnorm.ops`."""

from cnorm.layers.adain import AdaIN
from cnorm.layers.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from cnorm.layers.cosine_linear import CosineLinear
from cnorm.layers.group_norm import GroupNorm
from cnorm.layers.instance_norm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from cnorm.layers.layer_norm import LayerNorm
from cnorm.layers.rms_norm import RMSNorm
from cnorm.layers.spade import SPADE
from cnorm.layers.spectral_norm import SpectralNorm
from cnorm.layers.sync_batch_norm import SyncBatchNorm
from cnorm.layers.weight_norm import WeightNorm
from cnorm.layers.whitening import Whitening

__all__ = [
    "SPADE",
    "AdaIN",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CosineLinear",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
    "SpectralNorm",
    "SyncBatchNorm",
    "WeightNorm",
    "Whitening",
]
