"""Exact gradients of the five norms, for the very numbers given.

Of ``sum(dy * y)`` to x, weight and bias, from x, dy, weight and eps alone: the statistics are those of x, not
the rounded ones a forward pass has saved (frozen batch norm has only given ones). Everything is computed in
``numpy.longdouble`` on the exact xhat of ``oracle.py``; ``test_gradient_oracle.py`` compares with finite
differences in arithmetic of 800 digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle
from oracle import Long

Array = NDArray[Any]

#: A gradient cancels where its largest magnitude is below this part of what its terms would give by chance.
CANCELLED = 1 / 2


@dataclass(frozen=True)
class ExactGradient:
    """An exact gradient and what its error is counted in.

    ``scale`` is a magnitude of the group (dx) or of the array (parameters), ``allowance`` what subnormal
    terms may add.
    """

    values: Array
    scale: Array
    allowance: Array


@dataclass(frozen=True)
class ExactGradients:
    """Exact gradients to x (x's shape), weight and bias (the parameters' shape)."""

    x: ExactGradient
    weight: ExactGradient
    bias: ExactGradient


@dataclass(frozen=True)
class _Split:
    """x's axes in another order, and the number of rows its elements then make."""

    order: tuple[int, ...]
    rows: int

    def split(self, values: Array) -> Array:
        """(rows, elements), contiguous: NumPy sums pairwise then."""
        elements = values.size // max(self.rows, 1)
        return np.ascontiguousarray(values.transpose(self.order)).reshape(self.rows, elements)

    def join(self, rows: Array, shape: tuple[int, ...]) -> Array:
        moved = rows.reshape([shape[axis] for axis in self.order])
        return moved.transpose(np.argsort(self.order))


def _leading(x: Array, axes: int) -> _Split:
    """A row for each index of all but the last ``axes`` axes."""
    return _Split(tuple(range(x.ndim)), int(np.prod(x.shape[: x.ndim - axes], dtype=np.int64)))


def _trailing(x: Array, axes: int) -> _Split:
    """A row for each index of the last ``axes`` axes."""
    first = x.ndim - axes
    order = (*range(first, x.ndim), *range(first))
    return _Split(order, int(np.prod(x.shape[first:], dtype=np.int64)))


def _channels(x: Array, axis: int) -> _Split:
    """A row for each channel."""
    axis %= x.ndim
    return _Split((axis, *(i for i in range(x.ndim) if i != axis)), x.shape[axis])


def _samples(x: Array, axis: int, groups: int) -> _Split:
    """A row for each group of neighbouring channels of each sample."""
    axis %= x.ndim
    return _Split((0, axis, *(i for i in range(1, x.ndim) if i != axis)), x.shape[0] * groups)


def _half_spacing(dtype: Any) -> Any:
    """Half the smallest subnormal of the compute type."""
    return Long(float(np.finfo(oracle.compute_dtype(dtype)).smallest_subnormal)) / 2


def _smallest(dtype: Any) -> float:
    return float(np.finfo(oracle.compute_dtype(dtype)).smallest_normal)


def _used(dy: Array, dtype: Any) -> Array:
    """The gradient to y as the compute type holds it."""
    return np.asarray(dy).astype(oracle.compute_dtype(dtype)).astype(Long)


def _average(rows: Array) -> Array:
    return (rows / Long(max(rows.shape[1], 1))).sum(axis=1, keepdims=True)


def _largest(rows: Array) -> Array:
    return np.abs(rows).max(axis=1, keepdims=True, initial=0)


def _to_x(g: Array, xhat: Array, rstd: Array, centred: bool, dtype: Any) -> tuple[Array, Array, Array]:
    """dx, its scale and its allowance; everything (groups, elements).

    The scale is the largest |dx| of the group. Where dx cancels, as for two elements, or g in the span of 1
    and xhat, an error of one unit in g is larger than dx itself, and the scale is rstd max|g|.
    """
    dx = rstd * (g - (_average(g) if centred else 0) - xhat * _average(g * xhat))
    largest, terms = _largest(dx), rstd * _largest(g)
    scale = np.where(largest < CANCELLED * terms, terms, largest)
    allowance = np.where(np.abs(dx) < _smallest(dtype), _half_spacing(dtype), Long(0))
    return dx, np.broadcast_to(scale, dx.shape), allowance


def _to_parameter(terms: Array, error: Array, shape: tuple[int, ...], dtype: Any) -> ExactGradient:
    """The sum of each row of ``terms`` (parameters, elements), each up to ``error`` half spacings off.

    The scale is the largest sum of the array; where all of them cancel, what terms of random signs would
    give.
    """
    values = terms.sum(axis=1)
    largest = np.abs(values).max(initial=0)
    chance = np.sqrt((terms * terms).sum(axis=1)).max(initial=0)
    scale = chance if largest < CANCELLED * chance else largest
    allowance = _half_spacing(dtype) * error.sum(axis=1)  # of terms that are subnormal; nothing beside others
    return ExactGradient(values.reshape(shape), np.asarray(scale, Long), allowance.reshape(shape))


def _parameters(dy: Array, xhat: Array, split: _Split, shape: tuple[int, ...], dtype: Any) -> Any:
    """Gradients to weight and bias: the sums of dy xhat and of dy."""
    rows, ones = split.split(dy), np.ones((), Long)
    error = 1 + np.abs(rows)  # half a spacing of the product, and of xhat
    to_weight = _to_parameter(rows * split.split(xhat), error, shape, dtype)
    return to_weight, _to_parameter(rows, np.broadcast_to(ones, rows.shape), shape, dtype)


def _training(
    dy: Array,
    x: Array,
    forward: oracle.Exact,
    groups: _Split,
    parameters: _Split,
    shape: tuple[int, ...],
    centred: bool = True,
) -> ExactGradients:
    """The gradients where the statistics are x's own; ``forward`` is the exact result with its weight."""
    with np.errstate(invalid="ignore", over="ignore"):
        dy = _used(dy, x.dtype)
        xhat, rstd = groups.split(forward.xhat), forward.rstd.reshape(-1, 1)
        g = groups.split(dy * forward.weight)
        to_x = ExactGradient(*(groups.join(v, x.shape) for v in _to_x(g, xhat, rstd, centred, x.dtype)))
        return ExactGradients(to_x, *_parameters(dy, forward.xhat, parameters, shape, x.dtype))


def layer_norm(
    dy: Array, x: Array, weight: Any = None, eps: float = 1e-5, *, axes: int = 1
) -> ExactGradients:
    """Gradients of layer norm over the last ``axes`` axes."""
    forward = oracle.layer_norm(x, weight, None, eps, axes=axes)
    return _training(dy, x, forward, _leading(x, axes), _trailing(x, axes), x.shape[x.ndim - axes :])


def rms_norm(
    dy: Array, x: Array, weight: Any = None, eps: float = 1e-5, *, axes: int = 1, weight_offset: float = 0.0
) -> ExactGradients:
    """Gradients of RMS norm over the last ``axes`` axes."""
    forward = oracle.rms_norm(x, weight, None, eps, axes=axes, weight_offset=weight_offset)
    shape = x.shape[x.ndim - axes :]
    return _training(dy, x, forward, _leading(x, axes), _trailing(x, axes), shape, centred=False)


def group_norm(
    dy: Array, x: Array, num_groups: int, weight: Any = None, eps: float = 1e-5, *, axis: int = 1
) -> ExactGradients:
    """Gradients of group norm."""
    forward = oracle.group_norm(x, num_groups, weight, None, eps, axis=axis)
    groups, channels = _samples(x, axis, num_groups), _channels(x, axis)
    return _training(dy, x, forward, groups, channels, (x.shape[axis],))


def instance_norm(
    dy: Array, x: Array, weight: Any = None, eps: float = 1e-5, *, axis: int = 1
) -> ExactGradients:
    """Gradients of instance norm with the input's own statistics."""
    return group_norm(dy, x, x.shape[axis], weight, eps, axis=axis)


def batch_norm(
    dy: Array, x: Array, weight: Any = None, eps: float = 1e-5, *, axis: int = 1
) -> ExactGradients:
    """Gradients of batch norm in training."""
    forward = oracle.batch_norm(x, weight, None, eps, axis=axis)
    channels = _channels(x, axis)
    return _training(dy, x, forward, channels, channels, (x.shape[axis],))


def batch_norm_frozen(
    dy: Array, x: Array, mean: Array, rstd: Array, weight: Any = None, *, axis: int = 1
) -> ExactGradients:
    """Gradients of batch norm with given statistics, which are constants: dx is counted by element."""
    channels = _channels(x, axis)
    shape = tuple(x.shape[axis] if i == axis % x.ndim else 1 for i in range(x.ndim))
    used = oracle.compute_dtype(x.dtype)
    factor = (
        np.ones((), Long) if weight is None else np.asarray(weight).astype(used).astype(Long).reshape(shape)
    )
    mean, rstd = (np.asarray(v).astype(used).astype(Long).reshape(shape) for v in (mean, rstd))
    with np.errstate(invalid="ignore", over="ignore"):
        dy = _used(dy, x.dtype)
        dx = dy * factor * rstd
        allowance = np.where(np.abs(dx) < _smallest(x.dtype), _half_spacing(x.dtype), Long(0))
        xhat = (x.astype(Long) - mean) * rstd
        to_x = ExactGradient(dx, np.abs(dx), allowance)
        return ExactGradients(to_x, *_parameters(dy, xhat, channels, (x.shape[axis],), x.dtype))


def units(value: Array, exact: ExactGradient) -> float:
    """The largest error of a gradient in units of u times its scale; infinite for a NaN or wrong infinity."""
    assert value.shape == exact.values.shape, (value.shape, exact.values.shape)
    if value.size == 0:
        return 0.0
    one = Long(oracle.unit(value.dtype)) * exact.scale
    wide = value.astype(Long)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.maximum(np.abs(wide - exact.values) - exact.allowance, 0)
        infinite = np.isinf(wide)
        if infinite.any():  # right where the exact value, or one some units from it, rounds to infinity
            near = np.copysign(np.abs(exact.values) + 4 * one, exact.values)
            error[infinite & (wide == oracle.round_to(near, value.dtype))] = 0
        result = np.where(error == 0, Long(0), error / one)
    return float(np.where(np.isnan(result), Long(np.inf), result).max())


def rounded_range(exact: ExactGradient, dtype: Any, bound: float) -> tuple[Array, Array]:
    """The least and the largest result that rounding a float32 value within ``bound`` units can give."""
    slack = bound * Long(oracle.unit(np.float32)) * exact.scale + exact.allowance
    return oracle.round_to(exact.values - slack, dtype), oracle.round_to(exact.values + slack, dtype)


def _broadcast_sum(terms: Array, error: Array, shape: tuple[int, ...], dtype: Any) -> ExactGradient:
    """Terms like x summed over the axes along which an array of this shape was broadcast."""
    padded = (1,) * (terms.ndim - len(shape)) + shape
    kept = tuple(axis for axis in range(terms.ndim) if padded[axis] == terms.shape[axis])
    order = kept + tuple(axis for axis in range(terms.ndim) if axis not in kept)
    rows = int(np.prod([terms.shape[axis] for axis in kept], dtype=np.int64))
    split = _Split(order, rows)
    return _to_parameter(split.split(terms), split.split(error), shape, dtype)


def spade(
    dy: Array,
    x: Array,
    gamma: Array,
    beta_shape: tuple[int, ...],
    eps: float = 1e-5,
    *,
    norm: str = "batch",
    num_groups: int | None = None,
    gamma_offset: float = 1.0,
    axis: int = 1,
) -> ExactGradients:
    """Gradients of SPADE with statistics of its own; those of gamma and beta stand for weight and bias."""
    options: dict[str, Any] = {"norm": norm, "num_groups": num_groups, "gamma_offset": gamma_offset}
    forward = oracle.spade(x, gamma, np.zeros(()), eps, axis=axis, **options)
    counts = {"instance": x.shape[axis], "layer": 1}
    groups = _channels(x, axis) if norm == "batch" else _samples(x, axis, counts.get(norm, num_groups or 1))
    with np.errstate(invalid="ignore", over="ignore"):
        dy = _used(dy, x.dtype)
        xhat, rstd = groups.split(forward.xhat), forward.rstd.reshape(-1, 1)
        g = groups.split(dy * forward.weight)
        to_x = ExactGradient(*(groups.join(v, x.shape) for v in _to_x(g, xhat, rstd, True, x.dtype)))
        to_gamma = _broadcast_sum(dy * forward.xhat, 1 + np.abs(dy), np.shape(gamma), x.dtype)
        return ExactGradients(to_x, to_gamma, _broadcast_sum(dy, np.ones_like(dy), beta_shape, x.dtype))
