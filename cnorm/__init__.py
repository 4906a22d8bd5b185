"""Normalization layers on NumPy arrays: batch, layer, RMS, group and instance norm."""

from cnorm._backend import name as backend
from cnorm._config import cache_limit, isa, isa_levels, set_cache_limit, set_isa, show_config
from cnorm._threads import get_num_threads, num_threads, set_num_threads
from cnorm._version import __version__
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.group_norm import group_norm
from cnorm.ops.instance_norm import instance_norm
from cnorm.ops.layer_norm import layer_norm
from cnorm.ops.rms_norm import rms_norm

__all__ = [
    "__version__",
    "backend",
    "batch_norm",
    "cache_limit",
    "get_num_threads",
    "group_norm",
    "instance_norm",
    "isa",
    "isa_levels",
    "layer_norm",
    "num_threads",
    "rms_norm",
    "set_cache_limit",
    "set_isa",
    "set_num_threads",
    "show_config",
]
