"""Exact results of the five norms, for the very numbers given.

Everything is computed in ``numpy.longdouble``. A 64-bit significand alone is not enough for float64 input:
with a mean of 1e4 spreads, a mean rounded to 64 bits is already wrong by 2**-51 spreads. So the mean is kept
in two parts: ``hi`` is a number of the input's own type, which makes ``x - hi`` correct to the last bit of a
longdouble, and ``lo``, the mean of those differences, is small. The longdouble's 15-bit exponent holds the
squares of the largest and of the subnormal float64 numbers. What is left is an error of some hundredths of a
float64 unit (``test_oracle.py`` compares with exact decimals), against a promise of six units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Long = np.longdouble

#: Extended precision is needed to judge float64 results; x86 and (emulated) aarch64 Linux have it.
EXTENDED = np.finfo(Long).nmant >= 63

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)

#: Significand bits and the exponent of the smallest subnormal.
_FORMATS = {
    FLOAT16: (11, -24, 65504.0),
    BFLOAT16: (8, -133, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    np.dtype(np.float32): (24, -149, float(np.finfo(np.float32).max)),
    np.dtype(np.float64): (53, -1074, float(np.finfo(np.float64).max)),
}


@dataclass(frozen=True)
class Exact:
    """An exact result: ``y = xhat * weight + bias``, all of one shape, and the statistics in theirs."""

    y: Array
    xhat: Array
    weight: Array
    bias: Array
    mean: Array
    var: Array
    rstd: Array

    def without_affine(self) -> Exact:
        """The result without weight and bias."""
        return replace(self, y=self.xhat, weight=np.ones((), Long), bias=np.zeros((), Long))


def compute_dtype(dtype: Any) -> np.dtype[Any]:
    """The type statistics and parameters are used in: float64 for float64, float32 for the others."""
    return np.dtype(np.float64) if np.dtype(dtype).newbyteorder("=") == np.float64 else np.dtype(np.float32)


def unit(dtype: Any) -> float:
    """The unit roundoff u of the compute type of ``dtype``."""
    return 2.0 ** -_FORMATS[compute_dtype(dtype)][0]


def round_to(values: Array, dtype: Any) -> Array:
    """Round longdouble values to nearest even in ``dtype``, in one step, and return them as longdouble."""
    bits, lowest, largest = _FORMATS[np.dtype(dtype)]
    values = np.asarray(values, Long)
    exponent = np.frexp(np.where(np.isfinite(values), values, 0))[1]
    spacing = np.ldexp(Long(1), np.maximum(exponent - bits, lowest))
    with np.errstate(invalid="ignore"):
        rounded = np.where(np.isfinite(values), np.rint(values / spacing) * spacing, values)
    return np.where(np.abs(rounded) > largest, np.copysign(Long(np.inf), rounded), rounded)


def _used(parameter: Any, dtype: Any, default: float, shape: tuple[int, ...]) -> Array:
    """A parameter as the compute type holds it, broadcast to ``shape``."""
    if parameter is None:
        return np.full((), default, Long)
    return np.asarray(parameter).astype(compute_dtype(dtype)).astype(Long).reshape(shape)


def _reciprocal_root(square: Array) -> Array:
    """1/sqrt, with 0 for 0: a group without any spread has xhat = 0."""
    root = np.sqrt(square)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(root == 0, Long(0), 1 / root)


def moments(groups: Array) -> tuple[Array, Array, Array, Array]:
    """hi, lo and biased variance of each row of ``groups`` (rows, elements), and the centred values."""
    wide = np.ascontiguousarray(groups).astype(Long)
    count = Long(max(wide.shape[1], 1))
    hi = (wide / count).sum(axis=1, keepdims=True).astype(compute_dtype(groups.dtype)).astype(Long)
    shifted = wide - hi
    lo = (shifted / count).sum(axis=1, keepdims=True)
    centred = shifted - lo
    var = (centred * centred / count).sum(axis=1, keepdims=True)
    return hi, lo, var, centred


def _standardise(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array, Array]:
    """xhat (x's shape), and mean, var, rstd with size 1 on ``axes``."""
    axes = tuple(sorted(axis % x.ndim for axis in axes))
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    order = kept + axes
    moved = x.transpose(order)
    rows = int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64))
    elements = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    stats_shape = tuple(1 if axis in axes else x.shape[axis] for axis in range(x.ndim))
    with np.errstate(invalid="ignore", over="ignore"):
        hi, lo, var, centred = moments(moved.reshape(rows, elements))
        rstd = _reciprocal_root(var + Long(eps))
        xhat = (centred * rstd).reshape(moved.shape).transpose(np.argsort(order))
    mean = (hi + lo).reshape(stats_shape)
    return xhat, mean, var.reshape(stats_shape), rstd.reshape(stats_shape)


def _affine(xhat: Array, weight: Array, bias: Array, mean: Array, var: Array, rstd: Array) -> Exact:
    weight, bias = np.broadcast_to(weight, xhat.shape), np.broadcast_to(bias, xhat.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        y = xhat * weight + bias
    return Exact(y, xhat, weight, bias, mean, var, rstd)


def _channel_shape(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(x.shape[axis] if i == axis % x.ndim else 1 for i in range(x.ndim))


def layer_norm(x: Array, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, axes: int = 1) -> Exact:
    """Layer norm over the last ``axes`` axes."""
    trailing = x.shape[x.ndim - axes :]
    xhat, mean, var, rstd = _standardise(x, tuple(range(x.ndim - axes, x.ndim)), eps)
    return _affine(
        xhat, _used(weight, x.dtype, 1, trailing), _used(bias, x.dtype, 0, trailing), mean, var, rstd
    )


def rms_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    axes: int = 1,
    weight_offset: float = 0.0,
) -> Exact:
    """RMS norm over the last ``axes`` axes; the offset is added to the weight in the compute type."""
    trailing = x.shape[x.ndim - axes :]
    elements = int(np.prod(trailing, dtype=np.int64))
    wide = np.ascontiguousarray(x).astype(Long).reshape((*x.shape[: x.ndim - axes], elements))
    with np.errstate(invalid="ignore", over="ignore"):
        square = (wide * wide / Long(max(elements, 1))).sum(axis=-1, keepdims=True)
        rstd = _reciprocal_root(square + Long(eps))
        xhat = (wide * rstd).reshape(x.shape)
    stats_shape = x.shape[: x.ndim - axes] + (1,) * axes
    square, rstd = square.reshape(stats_shape), rstd.reshape(stats_shape)
    factor = _used(weight, x.dtype, 1, trailing)
    if weight is not None:
        compute = compute_dtype(x.dtype)
        factor = (factor.astype(compute) + compute.type(weight_offset)).astype(Long)
    return _affine(xhat, factor, _used(bias, x.dtype, 0, trailing), np.zeros_like(square), square, rstd)


def group_norm(
    x: Array, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, axis: int = 1
) -> Exact:
    """Group norm; ``mean``, ``var`` and ``rstd`` have shape (N, num_groups)."""
    first = np.moveaxis(x, axis, 1)
    elements = int(np.prod(first.shape[1:], dtype=np.int64)) // num_groups
    grouped = first.reshape(first.shape[0], num_groups, elements)
    xhat, mean, var, rstd = _standardise(grouped, (2,), eps)
    stats = tuple(s.reshape(first.shape[0], num_groups) for s in (mean, var, rstd))
    shape = _channel_shape(x, axis)
    xhat = np.moveaxis(xhat.reshape(first.shape), 1, axis)
    return _affine(xhat, _used(weight, x.dtype, 1, shape), _used(bias, x.dtype, 0, shape), *stats)


def instance_norm(
    x: Array, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, axis: int = 1
) -> Exact:
    """Instance norm with the input's own statistics, of shape (N, C)."""
    return group_norm(x, x.shape[axis], weight, bias, eps, axis=axis)


def batch_norm(x: Array, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, axis: int = 1) -> Exact:
    """Batch norm in training; statistics of shape (C,)."""
    shape = _channel_shape(x, axis)
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    xhat, mean, var, rstd = _standardise(x, others, eps)
    return _affine(
        xhat,
        _used(weight, x.dtype, 1, shape),
        _used(bias, x.dtype, 0, shape),
        mean.reshape(-1),
        var.reshape(-1),
        rstd.reshape(-1),
    )


def batch_norm_inference(
    x: Array,
    running_mean: Array,
    running_var: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    axis: int = 1,
) -> Exact:
    """Batch norm with given statistics, used in the compute type."""
    shape = _channel_shape(x, axis)
    mean = _used(running_mean, x.dtype, 0, shape)
    var = _used(running_var, x.dtype, 1, shape)
    with np.errstate(invalid="ignore"):
        rstd = _reciprocal_root(var + Long(eps))
        xhat = (x.astype(Long) - mean) * rstd
    return _affine(
        xhat,
        _used(weight, x.dtype, 1, shape),
        _used(bias, x.dtype, 0, shape),
        mean.reshape(-1),
        var.reshape(-1),
        rstd.reshape(-1),
    )


def running(old: Array, new: Array, momentum: float) -> Array:
    """The exact running statistic after one step."""
    return (1 - Long(momentum)) * old.astype(Long) + Long(momentum) * new


def tolerance(exact: Array, xhat: Array, weight: Array, bias: Array, dtype: Any) -> tuple[Array, Array]:
    """One unit of N1, and the allowance of half a spacing where the exact result is subnormal."""
    compute = compute_dtype(dtype)
    one = Long(unit(compute)) * (np.maximum(1, np.abs(xhat)) * np.abs(weight) + np.abs(bias))
    half_spacing = np.ldexp(Long(1), _FORMATS[compute][1] - 1)
    return one, np.where(np.abs(exact) < float(np.finfo(compute).smallest_normal), half_spacing, Long(0))


def units(y: Array, exact: Array, xhat: Array, weight: Array, bias: Array, dtype: Any) -> Array:
    """The error of ``y`` in units of N1; infinite for a NaN or a wrong infinity.

    For float16 and bfloat16 the promise is about the float32 value before the one rounding to the output: see
    :func:`rounded_range`.
    """
    one, allowance = tolerance(exact, xhat, weight, bias, dtype)
    overflows = np.isinf(round_to(exact, compute_dtype(dtype)))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.maximum(np.abs(y.astype(Long) - exact) - allowance, 0)
        error = np.where(overflows & (y.astype(Long) == np.copysign(Long(np.inf), exact)), 0, error)
        result = np.where(error == 0, Long(0), error / one)
    return np.where(np.isnan(result), Long(np.inf), result)


def worst_units(y: Array, exact: Exact) -> float:
    """The largest error of ``y`` in units of N1 (0 for an empty result)."""
    assert y.shape == exact.y.shape, (y.shape, exact.y.shape)
    if y.size == 0:
        return 0.0
    return float(units(y, exact.y, exact.xhat, exact.weight, exact.bias, y.dtype).max())


def rounded_range(exact: Exact, dtype: Any, bound: float) -> tuple[Array, Array]:
    """The least and the largest result that rounding a float32 value within ``bound`` units can give."""
    one, allowance = tolerance(exact.y, exact.xhat, exact.weight, exact.bias, dtype)
    slack = bound * one + allowance
    return round_to(exact.y - slack, dtype), round_to(exact.y + slack, dtype)


def spade(
    x: Array,
    gamma: Any,
    beta: Any,
    eps: float = 1e-5,
    *,
    norm: str = "batch",
    num_groups: int | None = None,
    gamma_offset: float = 1.0,
    axis: int = 1,
    running: tuple[Array, Array] | None = None,
) -> Exact:
    """SPADE; the offset is added to gamma in the compute type. With `running` as batch norm in inference."""
    if running is not None:
        plain = batch_norm_inference(x, *running, eps=eps, axis=axis)
    elif norm == "batch":
        plain = batch_norm(x, eps=eps, axis=axis)
    else:
        groups = {"instance": x.shape[axis], "layer": 1}.get(norm, num_groups)
        assert groups is not None
        plain = group_norm(x, groups, eps=eps, axis=axis)
    compute = compute_dtype(x.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        weight = (np.asarray(gamma).astype(compute) + compute.type(gamma_offset)).astype(Long)
    bias = np.asarray(beta).astype(compute).astype(Long)
    return _affine(plain.xhat, weight, bias, plain.mean, plain.var, plain.rstd)
