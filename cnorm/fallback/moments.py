"""Mean, variance and standardised values of rows, in float64, at any magnitude.

Everything happens on ``x * 2**-k``, with k chosen by row such that the largest of ``|x|`` and ``sqrt(eps)``
comes to lie between 1/2 and 1: exact for all that matters to the result, and squares can neither overflow
nor vanish. Sums run over the last, contiguous axis, where NumPy sums pairwise.
"""

from __future__ import annotations

import math

import numpy as np

from cnorm._numbers import Array, row_sum


def row_mean(x: Array) -> Array:
    """Mean of each row (rows, cols) -> (rows, 1)."""
    return row_sum(x) / x.shape[1]


def scaled(x: Array, eps: float) -> tuple[Array, Array]:
    """Return ``x * 2**-k`` as float64 and k (rows, 1); rows with a non-finite value become NaN."""
    x = np.array(x, dtype=np.float64, order="C")
    peak = np.max(np.abs(x), axis=1, keepdims=True, initial=0)
    finite = np.isfinite(peak)
    k = np.frexp(np.where(finite, np.maximum(peak, math.sqrt(eps)), 1.0))[1]
    return np.ldexp(np.where(finite, x, np.nan), -k), k


def deviation(mean_square: Array, eps: float, k: Array) -> Array:
    """``sqrt(mean_square + eps)`` in scaled units, infinite instead of 0: what it divides is then 0."""
    std: Array = np.sqrt(mean_square + np.ldexp(eps, -2 * k))
    std[std == 0] = np.inf
    return std


def standardize(x: Array, eps: float) -> tuple[Array, Array, Array, Array]:
    """Return ``(x - mean) / sqrt(var + eps)`` of rows, their mean, ``1/sqrt(var + eps)`` and variance.

    `x` is (rows, cols), the statistics are (rows, 1). The mean is taken in two parts: that of the rounded
    first differences is what the first one missed.
    """
    d, k = scaled(x, eps)
    mean = row_mean(d)
    d -= mean
    missed = row_mean(d)
    d -= missed
    var = row_mean(d * d)
    std = deviation(var, eps, k)
    # Scaled by the mean's magnitude, eps may have vanished, which matters only where it stands alone.
    rstd = np.where(var == 0, 1 / np.sqrt(eps) if eps else 0.0, np.ldexp(1 / std, -k))
    return d / std, np.ldexp(mean + missed, k), rstd, np.ldexp(var, 2 * k)


def affine(xhat: Array, weight: Array | None, bias: Array | None) -> Array:
    """``xhat * weight + bias`` in float64; the parameters broadcast against `xhat`."""
    if weight is not None:
        xhat = xhat * weight.astype(np.float64)
    return xhat if bias is None else xhat + bias


def update_running(running: Array | None, value: Array, momentum: float) -> None:
    """Move `running` towards `value` in place: ``(1 - momentum) * running + momentum * value``."""
    if running is not None:
        running[:] = (1 - momentum) * running.astype(np.float64) + momentum * value
