"""The backend behind every op: compiled kernels when they are there, NumPy otherwise.

Chosen once, at import, by the environment variable ``CNORM_BACKEND``: ``native``, ``python`` or ``auto``,
which is also what unset and empty mean. This is the only module that knows both backends; ops see `active`,
the ``fast_<op>`` functions and `empty`.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


class Kernels(Protocol):
    """What a backend offers.

    All arrays are C-contiguous, aligned, in native byte order and of one compute dtype, float32 or float64;
    sizes may be 0; `y` may be the memory of `x`; parameters and statistics are 1-D or None. Arguments are
    already checked and results are written in place. ``rstd`` is ``1/sqrt(var + eps)``, or 0 where
    ``var + eps`` is 0. Backward functions take those statistics; `dx` may be the memory of `dy`, and outputs
    that are not wanted are None.
    """

    def layer_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        /,
    ) -> None:
        """Normalise the rows of `x` (rows, cols); weight, bias (cols,); mean, rstd (rows,)."""

    def rms_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        weight_offset: float,
        y: Array,
        rstd: Array | None,
        /,
    ) -> None:
        """``y = x * rstd * (weight_offset + weight) + bias`` by rows; without a weight the factor is 1."""

    def group_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        num_groups: int,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        /,
    ) -> None:
        """`x` (batch, channels, spatial) or (batch, spatial, channels); mean, rstd (batch * num_groups,)."""

    def instance_norm(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        /,
    ) -> None:
        """Group norm with a group per channel; running statistics take the average over the batch."""

    def batch_norm_training(
        self,
        x: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        mean: Array | None,
        rstd: Array | None,
        running_mean: Array | None,
        running_var: Array | None,
        momentum: float,
        unbiased: bool,
        /,
    ) -> None:
        """Normalise by the batch's statistics (channels,); running ones take these with weight `momentum`."""

    def batch_norm_inference(
        self,
        x: Array,
        running_mean: Array,
        running_var: Array,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        channels_last: bool,
        y: Array,
        /,
    ) -> None:
        """Normalise by the running statistics."""

    def layer_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `layer_norm` by rows; dweight, dbias (cols,)."""

    def rms_norm_backward(
        self,
        dy: Array,
        x: Array,
        rstd: Array,
        weight: Array | None,
        weight_offset: float,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `rms_norm` by rows; dweight, dbias (cols,)."""

    def group_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        num_groups: int,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `group_norm`; dweight, dbias (channels,)."""

    def instance_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Group norm's gradients with a group per channel."""

    def batch_norm_backward(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        training: bool,
        channels_last: bool,
        dx: Array | None,
        dweight: Array | None,
        dbias: Array | None,
        /,
    ) -> None:
        """Gradients of `batch_norm_training` or, without `training`, `batch_norm_inference`."""

    def normalize(self, x: Array, p: float, eps: float, y: Array, norm: Array | None, /) -> None:
        """``y = x / max(norm, eps)`` along the middle axis of three; norm (outer * inner,)."""

    def normalize_backward(self, dy: Array, x: Array, p: float, eps: float, dx: Array, /) -> None:
        """Gradient of `normalize`."""

    def weight_norm(self, v: Array, g: Array, w: Array, /) -> None:
        """``w = g * v / norm`` by channel of `v` (outer, channels, inner); `g` (channels,)."""

    def weight_norm_backward(self, dw: Array, v: Array, g: Array, dv: Array, dg: Array, /) -> None:
        """Gradients of `weight_norm`; dg (channels,)."""


def _load() -> tuple[Any, str]:
    """Return the native module, or None and the reason why the NumPy backend is in use."""
    wanted = os.environ.get("CNORM_BACKEND") or "auto"
    if wanted not in ("native", "python", "auto"):
        raise ValueError(f"CNORM_BACKEND must be 'native', 'python' or 'auto', not {wanted!r}")
    if wanted == "python":
        return None, "CNORM_BACKEND=python"
    try:
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

# Each does a plainly valid call on contiguous arrays and returns its result, and for any other returns None.
fast_layer_norm = _never if native is None else native.fast_layer_norm
fast_rms_norm = _never if native is None else native.fast_rms_norm
fast_group_norm = _never if native is None else native.fast_group_norm
fast_instance_norm = _never if native is None else native.fast_instance_norm
fast_batch_norm = _never if native is None else native.fast_batch_norm
fast_layer_norm_backward = _never if native is None else native.fast_layer_norm_backward
fast_rms_norm_backward = _never if native is None else native.fast_rms_norm_backward
fast_group_norm_backward = _never if native is None else native.fast_group_norm_backward
fast_instance_norm_backward = _never if native is None else native.fast_instance_norm_backward
fast_batch_norm_backward = _never if native is None else native.fast_batch_norm_backward
fast_normalize = _never if native is None else native.fast_normalize
fast_normalize_backward = _never if native is None else native.fast_normalize_backward
fast_weight_norm = _never if native is None else native.fast_weight_norm
fast_weight_norm_backward = _never if native is None else native.fast_weight_norm_backward

empty = _empty if native is None else native.empty
