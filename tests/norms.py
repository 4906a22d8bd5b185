"""One table of the norms under test: how rows become an input, how the op is called, and its exact result.

The tests of accuracy, reproducibility, layouts, arguments and threads go through this table, so that a
promise is tested for every op or for none. Inputs are arranged with the channel axis 1; ``axis`` tells where
a layout has moved it to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
import oracle

Array = NDArray[Any]

#: Groups of group norm; the number of rows given to ``arrange`` is a multiple of it.
GROUPS = 5


@dataclass
class Parameters:
    """Weights far from 1, of both signs and over six decades, zero among them; biases of mixed size."""

    weight: Array | None = None
    bias: Array | None = None
    running_mean: Array | None = None
    running_var: Array | None = None

    def copy(self) -> Parameters:
        return Parameters(*(None if v is None else v.copy() for v in vars(self).values()))


def far_from_one(rng: np.random.Generator, shape: int | tuple[int, ...], dtype: Any) -> Array:
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    values.reshape(-1)[3::11] = 0
    return np.asarray(values).astype(oracle.compute_dtype(dtype))


def _first_divisor(number: int) -> int:
    """3 or 2 where it divides, else 1: to spread the elements of a group over channels or samples."""
    return next(d for d in (3, 2, 1) if number % d == 0)


@dataclass(frozen=True)
class Norm:
    """One op in one mode.

    ``arrange`` takes rows (groups, elements) to an input whose groups are those rows, ``call(x, p, eps, axis,
    **options)`` is cnorm's function and ``exact`` the oracle's. ``op`` is the function's name in cnorm.
    """

    name: str
    op: str
    arrange: Callable[[Array], Array]
    call: Callable[..., Any]
    exact: Callable[..., oracle.Exact]
    channels: bool = True
    running: bool = False
    groups_cross_samples: bool = False

    def parameters(self, x: Array, seed: int = 0, axis: int = 1) -> Parameters:
        rng = np.random.default_rng([seed, x.size])
        size = x.shape[axis if self.channels else -1]
        weight, bias = far_from_one(rng, size, x.dtype), far_from_one(rng, size, x.dtype)
        if not self.running:
            return Parameters(weight, bias)
        return Parameters(weight, bias, *self._statistics(x, axis))

    def _statistics(self, x: Array, axis: int) -> tuple[Array, Array]:
        """Running statistics close to the data's own, as the compute type can hold them."""
        compute = oracle.compute_dtype(x.dtype)
        with np.errstate(all="ignore"):
            exact = oracle.batch_norm(x, axis=axis)
            mean = np.nan_to_num(exact.mean.astype(compute))
            var = np.minimum(exact.var, np.finfo(compute).max).astype(compute)
        return mean, np.nan_to_num(var)


def _rows(rows: Array) -> Array:
    return rows


def _grouped(rows: Array) -> Array:
    """(batch, channels, spatial), GROUPS groups to a sample; a group is some neighbouring channels of it."""
    per_group = _first_divisor(rows.shape[1])
    return rows.reshape(len(rows) // GROUPS, GROUPS * per_group, rows.shape[1] // per_group)


def _instances(rows: Array) -> Array:
    batch = _first_divisor(len(rows))
    return rows.reshape(batch, len(rows) // batch, rows.shape[1])


def _batch(rows: Array) -> Array:
    """(batch, channels, spatial); a group is one channel over the whole batch."""
    batch = _first_divisor(rows.shape[1])
    return np.ascontiguousarray(rows.reshape(len(rows), batch, -1).transpose(1, 0, 2))


def _layer_norm(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.layer_norm(x, x.shape[-1], p.weight, p.bias, eps, **options)


def _rms_norm(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.rms_norm(x, x.shape[-1], p.weight, eps, bias=p.bias, **options)


def _group_norm(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.group_norm(x, GROUPS, p.weight, p.bias, eps, axis=axis, **options)


def _instance_norm(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.instance_norm(x, None, None, p.weight, p.bias, eps=eps, axis=axis, **options)


def _batch_norm_training(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.batch_norm(
        x, p.running_mean, p.running_var, p.weight, p.bias, True, 0.1, eps, axis=axis, **options
    )


def _batch_norm_inference(x: Array, p: Parameters, eps: float, axis: int = 1, **options: Any) -> Any:
    return cnorm.batch_norm(
        x, p.running_mean, p.running_var, p.weight, p.bias, False, 0.1, eps, axis=axis, **options
    )


NORMS = [
    Norm(
        "layer_norm",
        "layer_norm",
        _rows,
        _layer_norm,
        lambda x, p, eps, axis=1: oracle.layer_norm(x, p.weight, p.bias, eps),
        channels=False,
    ),
    Norm(
        "rms_norm",
        "rms_norm",
        _rows,
        _rms_norm,
        lambda x, p, eps, axis=1: oracle.rms_norm(x, p.weight, p.bias, eps),
        channels=False,
    ),
    Norm(
        "group_norm",
        "group_norm",
        _grouped,
        _group_norm,
        lambda x, p, eps, axis=1: oracle.group_norm(x, GROUPS, p.weight, p.bias, eps, axis=axis),
    ),
    Norm(
        "instance_norm",
        "instance_norm",
        _instances,
        _instance_norm,
        lambda x, p, eps, axis=1: oracle.instance_norm(x, p.weight, p.bias, eps, axis=axis),
    ),
    Norm(
        "batch_norm training",
        "batch_norm",
        _batch,
        _batch_norm_training,
        lambda x, p, eps, axis=1: oracle.batch_norm(x, p.weight, p.bias, eps, axis=axis),
        groups_cross_samples=True,
    ),
    Norm(
        "batch_norm inference",
        "batch_norm",
        _batch,
        _batch_norm_inference,
        lambda x, p, eps, axis=1: oracle.batch_norm_inference(
            x, p.running_mean, p.running_var, p.weight, p.bias, eps, axis=axis
        ),
        running=True,
    ),
]
