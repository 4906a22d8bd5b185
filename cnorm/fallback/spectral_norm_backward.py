"""Gradient of spectral norm in NumPy."""

from __future__ import annotations

import math

import numpy as np

from cnorm._numbers import Array, parts, row_sum
from cnorm.fallback.spectral_norm import scaled_whole


@np.errstate(all="ignore")
def spectral_norm_backward(
    dw: Array, weight: Array, u: Array, v: Array, sigma: float, dweight: Array
) -> None:
    """``(dw - sum(dw * weight) / sigma * u v^T) / sigma``; `dw` and `weight` (outer, rows, inner)."""
    outer, _, inner = weight.shape
    (d, k_dw), (scaled, k), (left, k_u), (right, k_v) = (scaled_whole(a) for a in (dw, weight, u, v))
    divisor = parts(np.asarray(math.inf if sigma == 0 else sigma))
    slope = row_sum((d * scaled).reshape(1, -1))[0, 0] / divisor.fraction
    if weight.size == 1:  # w is 1 or -1, whatever the weight: the gradient is exactly 0
        slope = d * (scaled / divisor.fraction)
    part = slope * left[:, np.newaxis] * right.reshape(outer, 1, inner)
    rest = d - np.ldexp(part, k + k_u + k_v - divisor.exponent)
    dweight[:] = np.ldexp(rest / divisor.fraction, k_dw - divisor.exponent)
