"""Spectral norm in extended precision, and the weights that its tests share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Long = np.longdouble

#: Shapes and the axis of their rows: one and several slabs, one and several blocks of rows and chunks of
#: columns, short and long runs, no inner axis.
SHAPES = [((1, 1), 0), ((5,), 0), ((1, 5), 0), ((5, 1), 0), ((7, 9), 0), ((7, 9), 1), ((64, 3, 3, 3), 0),
          ((33, 5, 3), -2), ((20, 12, 4, 4), 1), ((3, 5, 130), 1), ((2, 3, 5, 7), 3), ((600, 70), 0),
          ((600, 70), 1), ((3, 5000), 0), ((300, 2500), 0), ((40, 300, 9), 1)]  # fmt: skip

#: Name, multiplier, offset and eps. Squares of these leave the range of their type.
TRAPS = {
    "float32": [("normal", 1.0, 0.0, 1e-12), ("mean 1e4", 1.0, 1e4, 1e-12), ("1e30", 1e30, 0.0, 1e-12),
                ("3e37", 3e37, 0.0, 1e-12), ("1e-30", 1e-30, 0.0, 0.0), ("subnormal", 1e-41, 0.0, 0.0),
                ("constant", 0.0, 0.1, 1e-12)],
    "float64": [("normal", 1.0, 0.0, 1e-12), ("mean 1e8", 1.0, 1e8, 1e-12), ("1e200", 1e200, 0.0, 1e-12),
                ("3e306", 3e306, 0.0, 1e-12), ("1e-200", 1e-200, 0.0, 0.0), ("subnormal", 1e-310, 0.0, 0.0),
                ("constant", 0.0, 0.1, 1e-12)],
}  # fmt: skip


class Problem(NamedTuple):
    weight: Array
    u: Array
    v: Array
    dim: int


def matrix(weight: Array, dim: int) -> Array:
    """PyTorch's: the rows' axis first, the others in order."""
    return np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def problem(shape: tuple[int, ...], dim: int, dtype: Any, scale: float = 1.0, offset: float = 0.0) -> Problem:
    """A weight and unit vectors that know nothing of it; always the same ones."""
    rng = np.random.default_rng([*shape, dim % len(shape)])
    weight = (offset + scale * rng.standard_normal(shape)).astype(dtype)
    u, v = (rng.standard_normal(n) for n in matrix(weight, dim).shape)
    return Problem(weight, *((x / np.linalg.norm(x)).astype(dtype) for x in (u, v)), dim)


def normalised(t: Array, eps: float) -> Array:
    norm = np.sqrt((t * t).sum())
    return t / max(norm, Long(eps)) if max(norm, eps) > 0 else t


def next_v(weight: Array, u: Array, dim: int, eps: float) -> Array:
    return normalised(matrix(weight, dim).astype(Long).T @ u.astype(Long), eps)


def next_u(weight: Array, v: Array, dim: int, eps: float) -> Array:
    return normalised(matrix(weight, dim).astype(Long) @ v.astype(Long), eps)


def sigma_of(p: Problem) -> Any:
    return p.u.astype(Long) @ (matrix(p.weight, p.dim).astype(Long) @ p.v.astype(Long))


def gradient(dw: Array, p: Problem, sigma: Any) -> tuple[Array, Any]:
    """The gradient, and the magnitude that its errors are counted in: its largest, or that of its terms."""
    weight, dw = p.weight.astype(Long), dw.astype(Long)
    others = [size for axis, size in enumerate(weight.shape) if axis != p.dim % weight.ndim]
    pattern = p.u.astype(Long)[:, np.newaxis] * p.v.astype(Long)
    pattern = np.moveaxis(pattern.reshape(len(p.u), *others), 0, p.dim)
    part = (dw * weight).sum() / sigma * pattern
    result = (dw - part) / sigma
    terms = max(abs(dw).max(), abs(part).max()) / abs(sigma) / 2
    return result, max(abs(result).max(), terms)


def units(value: Array, exact: Array, scale: Any | None = None) -> float:
    """Worst error in roundings of the largest magnitude."""
    scale = abs(exact).max() if scale is None else scale
    error = abs(value - exact).max()
    return float(error / (scale * np.finfo(value.dtype).eps / 2)) if error else 0.0
