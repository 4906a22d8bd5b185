"""The backend behind every op: compiled kernels when they are there, NumPy otherwise.

Chosen once, at import, by the environment variable ``CNORM_BACKEND``: ``native``, ``python`` or ``auto``,
which is also what unset and empty mean. This is the only module that knows both backends; ops see `active`,
the ``fast_<op>`` functions and `empty`.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cnorm._openmp import short_spin
from cnorm._protocol import Kernels

Array = NDArray[Any]


def _load() -> tuple[Any, str]:
    """Return the native module, or None and the reason why the NumPy backend is in use."""
    wanted = os.environ.get("CNORM_BACKEND") or "auto"
    if wanted not in ("native", "python", "auto"):
        raise ValueError(f"CNORM_BACKEND must be 'native', 'python' or 'auto', not {wanted!r}")
    if wanted == "python":
        return None, "CNORM_BACKEND=python"
    try:
        with short_spin():
            return import_module("cnorm.native._cnorm"), ""
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name in (
            "cnorm.native",
            "cnorm.native._cnorm",
        )
        folder = os.path.join(os.path.dirname(__file__), "native")
        reason = f"no compiled module in {folder}" if absent else str(error)
        if wanted == "native":
            raise ImportError(
                f"CNORM_BACKEND=native, but the native backend is not available: {reason}"
            ) from error
        if not absent:
            warnings.warn(
                f"cnorm's native backend is installed but cannot be loaded, using NumPy: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        return None, reason


def _never(*_: object) -> None:
    """Stand in for a ``fast_<op>`` of the NumPy backend: recognises no call."""


def _empty(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Allocate an output."""
    return np.empty(shape, dtype)


native, why_not_native = _load()
name: str = "python" if native is None else "native"
active = cast(Kernels, import_module("cnorm.fallback") if native is None else native)


def _door(op: str) -> Any:
    """Return the native module's short way to an op, or what recognises no call."""
    return _never if native is None else getattr(native, f"fast_{op}")


# Each does a plainly valid call on contiguous arrays and returns its result, and for any other returns None.
fast_layer_norm = _door("layer_norm")
fast_rms_norm = _door("rms_norm")
fast_group_norm = _door("group_norm")
fast_instance_norm = _door("instance_norm")
fast_batch_norm = _door("batch_norm")
fast_layer_norm_backward = _door("layer_norm_backward")
fast_rms_norm_backward = _door("rms_norm_backward")
fast_group_norm_backward = _door("group_norm_backward")
fast_instance_norm_backward = _door("instance_norm_backward")
fast_batch_norm_backward = _door("batch_norm_backward")
fast_adain = _door("adain")
fast_adain_backward = _door("adain_backward")
fast_ada_layer_norm = _door("ada_layer_norm")
fast_ada_layer_norm_backward = _door("ada_layer_norm_backward")
fast_spade = _door("spade")
fast_spade_backward = _door("spade_backward")
fast_sync_batch_norm = _door("sync_batch_norm")
fast_sync_batch_norm_backward = _door("sync_batch_norm_backward")
fast_normalize = _door("normalize")
fast_normalize_backward = _door("normalize_backward")
fast_weight_norm = _door("weight_norm")
fast_weight_norm_backward = _door("weight_norm_backward")
fast_spectral_norm = _door("spectral_norm")
fast_spectral_norm_backward = _door("spectral_norm_backward")

empty = _empty if native is None else native.empty
