"""Running statistics: normalising by them, and keeping them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _backend, _layouts

Array = NDArray[Any]
Pair = tuple[Array, Array]


def normalize(
    x: Array, y: Array, axis: int, statistics: Pair, weight: Array | None, bias: Array | None, eps: float
) -> None:
    """Write ``(x - mean) / sqrt(var + eps) * weight + bias`` to `y`; the parameters are ready and 1-D."""
    mean, var = statistics
    form = _layouts.channel_form(x, axis, pooled=True)

    def kernel(xt: Array, yt: Array, _: slice, some: slice) -> None:
        scale, shift = _layouts.part(weight, some), _layouts.part(bias, some)
        _backend.active.batch_norm_inference(
            xt, mean[some], var[some], scale, shift, eps, form.channels_last, yt
        )

    _layouts.run_channels((x,), y, form, mean.dtype, kernel, "elements")


def rstd(var: Array, eps: float) -> Array:
    """``1 / sqrt(var + eps)`` in the dtype of `var`, 0 where ``var + eps`` is 0."""
    with np.errstate(all="ignore"):
        std = np.sqrt(var.astype(np.float64) + eps)
        std[std == 0] = np.inf
        return (1 / std).astype(var.dtype)


def compact(statistics: Pair, dtype: np.dtype[Any]) -> Pair:
    """Return them as kernels take them: the arrays themselves where possible, else copies."""
    return _layouts.compact(statistics[0], dtype), _layouts.compact(statistics[1], dtype)


def store(statistics: Pair, updated: Pair) -> None:
    """Write back what `compact` returned."""
    for target, source in zip(statistics, updated, strict=True):
        _layouts.convert(target, source)
