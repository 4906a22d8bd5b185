"""The timing of gradients behind ``python -m cnorm``, beside the same formulas in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._speedtest import EPS, GROUPS, IMAGES, ROWS, report, seconds

Array = NDArray[Any]
Arrays = tuple[Array, ...]


def _to_x(g: Array, hat: Array, rstd: Array, axes: tuple[int, ...], centred: bool = True) -> Array:
    average = g.mean(axes, keepdims=True) if centred else 0
    dx: Array = rstd * (g - average - hat * (g * hat).mean(axes, keepdims=True))
    return dx


def _layer_norm(dy: Array, x: Array, w: Array, mean: Array, rstd: Array) -> Arrays:
    hat = (x - mean) * rstd
    return _to_x(dy * w, hat, rstd, (1,)), (dy * hat).sum(0), dy.sum(0)


def _rms_norm(dy: Array, x: Array, w: Array, rstd: Array) -> Arrays:
    hat = x * rstd
    return _to_x(dy * w, hat, rstd, (1,), centred=False), (dy * hat).sum(0), dy.sum(0)


def _group_norm(dy: Array, x: Array, w: Array, mean: Array, rstd: Array) -> Arrays:
    grouped = (len(x), GROUPS, -1)
    hat = (x.reshape(grouped) - mean[..., None]) * rstd[..., None]
    dx = _to_x((dy * w[:, None, None]).reshape(grouped), hat, rstd[..., None], (2,)).reshape(x.shape)
    return dx, (dy * hat.reshape(x.shape)).sum((0, 2, 3)), dy.sum((0, 2, 3))


def _channel_norm(axes: tuple[int, ...]) -> Callable[..., Arrays]:
    def gradients(dy: Array, x: Array, w: Array, mean: Array, rstd: Array) -> Arrays:
        mean, rstd = (s[..., None, None] for s in (mean, rstd))
        hat = (x - mean) * rstd
        dx = _to_x(dy * w[:, None, None], hat, rstd, axes)
        return dx, (dy * hat).sum((0, 2, 3)), dy.sum((0, 2, 3))

    return gradients


def _batch_norm_frozen(dy: Array, x: Array, w: Array, mean: Array, rstd: Array) -> Arrays:
    mean, rstd = (s[:, None, None] for s in (mean, rstd))
    dx = dy * (w[:, None, None] * rstd)
    return dx, (dy * (x - mean) * rstd).sum((0, 2, 3)), dy.sum((0, 2, 3))


def _spade(dy: Array, x: Array, w: Array, mean: Array, rstd: Array) -> Arrays:
    mean, rstd = (s[:, None, None] for s in (mean, rstd))
    hat = (x - mean) * rstd
    return _to_x(dy * (1 + x), hat, rstd, (0, 2, 3)), dy * hat, dy


class Pair(NamedTuple):
    """Ours and NumPy's functions of (dy, x, weight, mean, rstd); `statistics` gives the last two of x."""

    name: str
    shape: tuple[int, ...]
    statistics: Callable[[Array], Arrays]
    ours: Callable[..., cnorm.Gradients | cnorm.SpadeGradients]
    numpys: Callable[..., Arrays]


PAIRS = (
    Pair(
        "layer_norm_backward",
        ROWS,
        lambda x: cnorm.layer_norm(x, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.layer_norm_backward(dy, x, mean, rstd, w),
        _layer_norm,
    ),
    Pair(
        "rms_norm_backward",
        ROWS,
        lambda x: cnorm.rms_norm(x, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, rstd: cnorm.rms_norm_backward(dy, x, rstd, w),
        _rms_norm,
    ),
    Pair(
        "group_norm_backward",
        IMAGES,
        lambda x: cnorm.group_norm(x, GROUPS, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.group_norm_backward(dy, x, mean, rstd, GROUPS, w),
        _group_norm,
    ),
    Pair(
        "instance_norm_backward",
        IMAGES,
        lambda x: cnorm.instance_norm(x, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.instance_norm_backward(dy, x, mean, rstd, w),
        _channel_norm((2, 3)),
    ),
    Pair(
        "batch_norm_backward",
        IMAGES,
        lambda x: cnorm.batch_norm(x, training=True, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.batch_norm_backward(dy, x, mean, rstd, w),
        _channel_norm((0, 2, 3)),
    ),
    Pair(
        "batch_norm_backward, frozen",
        IMAGES,
        lambda x: cnorm.batch_norm(x, training=True, eps=EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.batch_norm_backward(dy, x, mean, rstd, w, training=False),
        _batch_norm_frozen,
    ),
    Pair(
        "spade_backward, x for gamma",
        IMAGES,
        lambda x: cnorm.spade(x, x, x, EPS, return_stats=True)[1:],
        lambda dy, x, w, mean, rstd: cnorm.spade_backward(dy, x, mean, rstd, x),
        _spade,
    ),
)


def run() -> None:
    """Print GB/s of useful traffic, one read of dy and x and one write of dx, for cnorm and for NumPy."""
    rng = np.random.default_rng(4)
    for name, shape, statistics, ours, numpys in PAIRS:
        x, dy = (rng.standard_normal(shape, np.float32) for _ in range(2))
        w = rng.uniform(-3, 3, shape[1]).astype(np.float32)
        arguments = (dy, x, w, *statistics(x))
        report(name, shape, 3 * x.nbytes, seconds(ours, *arguments), seconds(numpys, *arguments))
