"""Weight norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.vectors import vectors


def by_channel(v: Array) -> Array:
    """Return (outer, channels, inner) with a row for each channel (channels, outer * inner)."""
    return v.transpose(1, 0, 2).reshape(v.shape[1], -1)


def from_channels(rows: Array, shape: tuple[int, ...]) -> Array:
    """Inverse of `by_channel`."""
    outer, channels, inner = shape
    return rows.reshape(channels, outer, inner).transpose(1, 0, 2)


def factors(g: Array) -> Array:
    """`g` as a column of float64, NaN where it is not finite."""
    return np.where(np.isfinite(g), g, np.nan).astype(np.float64)[:, np.newaxis]


@np.errstate(all="ignore")
def weight_norm(v: Array, g: Array, w: Array) -> None:
    """``w = g * v / norm`` by channel of `v` (outer, channels, inner); `g` (channels,)."""
    rows, factor = vectors(by_channel(v), 2), factors(g)
    hat = np.where(rows.norm == 0, 0, rows.values / rows.norm)
    w[:] = from_channels(hat * factor, v.shape)
