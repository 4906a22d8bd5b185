"""Vectors divided by their norm, in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.vectors import vectors


def as_rows(x: Array) -> Array:
    """Return the vectors along the middle axis of three as rows (outer * inner, length)."""
    return x.transpose(0, 2, 1).reshape(-1, x.shape[1])


def from_rows(rows: Array, shape: tuple[int, ...]) -> Array:
    """Inverse of `as_rows`."""
    outer, length, inner = shape
    return rows.reshape(outer, inner, length).transpose(0, 2, 1)


@np.errstate(all="ignore")
def normalize(x: Array, p: float, eps: float, y: Array | None, norm: Array | None) -> None:
    """``x / max(norm, eps)`` along the middle axis of `x` (outer, length, inner)."""
    v = vectors(as_rows(x), p)
    if y is not None:
        constant = np.ldexp(v.values / eps, v.exponent) if eps else np.zeros_like(v.values)
        y[:] = from_rows(np.where(v.below(eps), constant, v.values / v.norm), x.shape)
    if norm is not None:
        norm[:] = np.ldexp(v.norm, v.exponent)[:, 0]
