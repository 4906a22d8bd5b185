"""Inputs for the tests of SPADE: the norms, the ways in which gamma and beta broadcast, and calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm

Array = NDArray[Any]

GROUPS = 2
NORMS = ("batch", "instance", "layer", "group")

#: Of arrays with channels first: which axes of x gamma has, and which beta has; 1 where it is broadcast.
BROADCASTS = {
    "each element": ("NCHW", "NCHW"),
    "each channel of a sample": ("NC11", "NC11"),
    "each channel": ("C11", "C11"),
    "each position": ("N1HW", "N1HW"),
    "one map for all samples": ("1CHW", "CHW"),
    "gamma by element, beta by channel": ("NCHW", "C11"),
    "gamma by channel, beta by element": ("1C11", "NCHW"),
    "by rows and columns": ("11H1", "W"),
    "one number a sample": ("N111", "1"),
}


def shape_of(letters: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    sizes = dict(zip("NCHW", shape, strict=True)) | {"1": 1}
    return tuple(sizes[letter] for letter in letters)


def options(norm: str, axis: int = 1, **more: Any) -> dict[str, Any]:
    """Return the keyword arguments of both functions."""
    return {"norm": norm, "num_groups": GROUPS if norm == "group" else None, "axis": axis, **more}


def last(array: Array) -> Array:
    """Channels last: of x, and of what broadcasts against it."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


SHAPES = [(2, 4, 3, 5), (3, 2, 1, 1), (9, 70, 2, 2), (2, 300, 3, 1), (1, 2, 70, 130)]


def arranged(arrays: tuple[Array, ...], is_last: bool) -> tuple[Any, ...]:
    """Return the arrays with channels first or last, and the channel axis."""
    return (*(last(array) for array in arrays), -1) if is_last else (*arrays, 1)


def draw(
    shape: tuple[int, ...], broadcast: str, dtype: Any, seed: int = 0, mean: float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Return x, gamma, beta and dy."""
    rng = np.random.default_rng([seed, *shape])
    gamma, beta = (shape_of(letters, shape) for letters in BROADCASTS[broadcast])
    x = mean + 2 * rng.standard_normal(shape)
    arrays = (x, *(rng.standard_normal(s) for s in (gamma, beta, shape)))
    return tuple(array.astype(dtype) for array in arrays)  # type: ignore[return-value]


def gradients(
    dy: Array, x: Array, gamma: Array, beta: Array, eps: float = 1e-5, **given: Any
) -> cnorm.SpadeGradients:
    """Forward for the statistics, then backward."""
    _, mean, rstd = cnorm.spade(x, gamma, beta, eps, return_stats=True, **given)
    return cnorm.spade_backward(dy, x, mean, rstd, gamma, beta_shape=beta.shape, **given)


def arrange(rows: Array, norm: str) -> Array:
    """Shape (4, elements) such that the norm's groups are these rows; elements are even."""
    half = rows.shape[1] // 2
    if norm == "batch":
        return np.ascontiguousarray(rows.reshape(4, 2, 1, half).transpose(1, 0, 2, 3))
    return rows.reshape(
        {"instance": (2, 2, 2, half), "layer": (4, 2, 1, half), "group": (2, 4, 1, half)}[norm]
    )
