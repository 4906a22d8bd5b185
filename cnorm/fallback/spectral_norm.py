"""Spectral norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, Parts, parts, row_sum


def matrix_of(weight: Array) -> Array:
    """Return the matrix (rows, outer * inner) of a weight (outer, rows, inner)."""
    return np.moveaxis(weight, 1, 0).reshape(weight.shape[1], -1)


def scaled_whole(x: Array) -> tuple[Array, int]:
    """Return ``x * 2**-k`` as float64, the largest magnitude near 1, and k; NaN if one is not finite."""
    x = x.astype(np.float64)
    peak = float(np.max(np.abs(x), initial=0))
    k = int(np.frexp(peak)[1]) if np.isfinite(peak) else 0
    return np.ldexp(x if np.isfinite(peak) else np.full_like(x, np.nan), -k), k


def split(x: Array) -> tuple[Array, Array]:
    """Return the leading half of the digits of numbers up to 1, and the rest: their products are exact."""
    leading: Array = (x + 2.0**27) - 2.0**27
    return leading, x - leading


def product(matrix: Array, k: int, x: Array) -> Parts:
    """Return ``2**k * matrix @ x`` as fractions and one exponent."""
    vector, exponent = scaled_whole(x)
    (large, small), (left, right) = split(matrix), split(vector)
    total = row_sum(large * left) + row_sum(large * right + small * left + small * right)
    return Parts(total[:, 0], np.asarray(k + exponent))


def normalised(t: Parts, eps: float) -> Array:
    """``t / max(||t||, eps)``, and 0 for 0 / 0."""
    norm = np.sqrt(row_sum(np.square(t.fraction)[np.newaxis]))[0, 0]
    if norm <= np.ldexp(eps, -t.exponent) and eps > 0:
        small = parts(np.asarray(eps))
        return np.ldexp(t.fraction / small.fraction, t.exponent - small.exponent)
    return np.zeros_like(t.fraction) if norm == 0 else t.fraction / norm


@np.errstate(all="ignore")
def spectral_norm(weight: Array, u: Array, v: Array, iterations: int, eps: float, w: Array) -> float:
    """Divide `weight` (outer, rows, inner) by ``sigma = u^T W v``, after that many power iterations."""
    if weight.size == 0:
        return 0.0
    scaled, k = scaled_whole(weight)
    matrix = matrix_of(scaled)
    for _ in range(iterations):
        v[:] = normalised(product(np.ascontiguousarray(matrix.T), k, u), eps)
        u[:] = normalised(product(matrix, k, v), eps)
    left, exponent = scaled_whole(u)
    right = product(matrix, k, v)
    total = float(row_sum((left * right.fraction)[np.newaxis])[0, 0])
    exponent += int(right.exponent)
    w[:] = np.zeros_like(scaled) if total == 0 else np.ldexp(scaled / total, k - exponent)
    return float(np.ldexp(total, exponent))
