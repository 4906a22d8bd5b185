"""Exact vectors over their norms, weight norm and cosines, with gradients, in extended precision.

Longdouble has the exponents for squares of any float64 where it is wider than that; the tests of the largest
and smallest float64 ask for it. Errors are counted in units u of the largest magnitude of a vector.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Long = np.longdouble

#: Units that are promised: forward, and backward with the scale of the terms where these cancel.
FORWARD, BACKWARD = 6.0, 16.0


def norms(x: Array, p: float, axis: Any) -> Array:
    """Norms with kept axes."""
    sizes = np.abs(x.astype(Long))
    most = sizes.max(axis, keepdims=True, initial=0)
    if math.isinf(p):
        return most
    ratio = sizes / np.where(most == 0, 1, most)
    return most * (ratio**p).sum(axis, keepdims=True) ** (1 / Long(p))


def normalize(x: Array, p: float = 2.0, axis: Any = -1, eps: float = 1e-12) -> Array:
    n = np.maximum(norms(x, p, axis), Long(eps))
    return np.divide(x.astype(Long), n, out=np.zeros(x.shape, Long), where=n > 0)


def normalize_backward(
    dy: Array, x: Array, p: float = 2.0, axis: Any = -1, eps: float = 1e-12
) -> tuple[Array, Array]:
    """Return dx, and the largest magnitude of its two terms in each vector."""
    dy, x, n = dy.astype(Long), x.astype(Long), norms(x, p, axis)
    small = (n < eps) | (n == 0)
    safe = np.where(small, 1, n)
    if math.isinf(p):
        most = np.abs(x) == n
        direction = np.sign(x) * most / most.sum(axis, keepdims=True)
    else:
        direction = np.sign(x) * np.where(x == 0, 0, np.where(x == 0, 1, np.abs(x) / safe) ** Long(p - 1))
    part = direction * (dy * x / safe).sum(axis, keepdims=True)
    constant = dy / Long(eps) if eps else np.zeros_like(dy)
    dx = np.where(small, constant, (dy - part) / safe)
    terms = np.where(small, np.abs(constant), np.maximum(np.abs(dy), np.abs(part)) / safe)
    return dx, terms.max(axis, keepdims=True, initial=0)


def others(v: Array, dim: int | None) -> tuple[int, ...]:
    """The axes a norm runs over."""
    return tuple(i for i in range(v.ndim) if dim is None or i != dim % v.ndim)


def weight_norm(v: Array, g: Array, dim: int | None = 0) -> Array:
    return normalize(v, 2.0, others(v, dim), 0.0) * g.astype(Long)


def weight_norm_backward(
    dw: Array, v: Array, g: Array, dim: int | None = 0
) -> tuple[Array, Array, Array, Array]:
    """Return dv and dg, each followed by what its error is counted in."""
    axes, g = others(v, dim), g.astype(Long)
    hat = normalize(v, 2.0, axes, 0.0)
    dv, scale = normalize_backward(dw, v, 2.0, axes, 0.0)
    terms = dw.astype(Long) * hat
    dg = terms.sum(axes, keepdims=True)
    size = np.sqrt(np.square(terms).sum(axes, keepdims=True))
    return dv * g, scale * np.abs(g), dg.reshape(g.shape), np.maximum(size, np.abs(dg)).reshape(g.shape)


def cosine(x: Array, weight: Array, eps: float = 1e-8) -> Array:
    """Cosines of all pairs of rows (rows, in) and (out, in)."""
    products = norms(x, 2.0, -1) * norms(weight, 2.0, -1).T
    factor = np.minimum(products / Long(eps), 1) if eps else Long(1)
    return normalize(x, eps=0.0) @ normalize(weight, eps=0.0).T * factor


def units(result: Array, exact: Array, scale: Array, dtype: Any) -> float:
    """Worst error in units of `scale`; the spacing of subnormal numbers is allowed for. NaN is infinite."""
    info = np.finfo(dtype)
    error = np.abs(result.astype(Long) - exact)
    one = Long(info.eps) / 2 * scale + Long(info.smallest_subnormal) / 2
    worst = np.max(np.where(error == 0, 0, error / one), initial=0)
    return float(worst) if np.isfinite(worst) else math.inf


def row_scale(exact: Array, axis: Any = -1) -> Array:
    """Largest magnitude of each vector."""
    return np.abs(exact).max(axis, keepdims=True, initial=0)
