"""Gradient of vectors divided by their norm, in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import scaled
from cnorm.fallback.normalize import as_rows, from_rows
from cnorm.fallback.vectors import direction, slope, vectors


@np.errstate(all="ignore")
def normalize_backward(dy: Array, x: Array, p: float, eps: float, dx: Array) -> None:
    """``(dy - direction * slope) / norm`` by vector, or ``dy / eps`` for small norms; `dx` may be `dy`."""
    v = vectors(as_rows(x), p)
    g, k = scaled(as_rows(dy), 0.0)
    constant = np.ldexp(g / eps, k) if eps else g * 0
    values = np.ldexp((g - direction(v, p) * slope(g, v)) / v.norm, k - v.exponent)
    dx[:] = from_rows(np.where(v.below(eps), constant, values), x.shape)
