"""Gradients of weight norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import scaled
from cnorm.fallback.vectors import slope, vectors
from cnorm.fallback.weight_norm import by_channel, factors, from_channels


@np.errstate(all="ignore")
def weight_norm_backward(dw: Array, v: Array, g: Array, dv: Array, dg: Array) -> None:
    """``dg = sum(dw * vhat)``, ``dv = (dw - vhat * dg) * g / norm``, by channel; `dv` may be `dw`."""
    rows, (factor, exponent) = vectors(by_channel(v), 2), np.frexp(factors(g))
    d, k = scaled(by_channel(dw), 0.0)
    hat = rows.values / rows.norm
    along = slope(d, rows)
    nothing = d * 0 + factor * 0  # NaN if one is not finite
    values = np.ldexp((d - hat * along) / rows.norm * factor, k - rows.exponent + exponent)
    dv[:] = from_channels(np.where(rows.norm == 0, nothing, values), v.shape)
    finite = np.where(np.isnan(factor), np.nan, np.ldexp(along, k))
    dg[:] = np.where(rows.norm == 0, nothing.sum(axis=1, keepdims=True), finite)[:, 0]
