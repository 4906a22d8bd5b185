"""The timing behind ``python -m cnorm``: every op beside the same formula in plain NumPy.

Gradients: _speedtest_backward.py.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm

Array = NDArray[Any]

ROWS = (4096, 2048)
IMAGES = (16, 128, 64, 64)
GROUPS = 32
EPS = 1e-5
CALLS, SECONDS = 7, 0.2  # calls that are timed, and when to make do with fewer


def _standardise(x: Array, axes: tuple[int, ...]) -> Array:
    mean = x.mean(axes, keepdims=True)
    var = x.var(axes, keepdims=True)
    y: Array = (x - mean) / np.sqrt(var + EPS)
    return y


def _layer_norm(x: Array, w: Array, b: Array) -> Array:
    return _standardise(x, (1,)) * w + b


def _rms_norm(x: Array, w: Array, b: Array) -> Array:
    y: Array = x / np.sqrt(np.square(x).mean(1, keepdims=True) + EPS) * w + b
    return y


def _group_norm(x: Array, w: Array, b: Array) -> Array:
    grouped = x.reshape(x.shape[0], GROUPS, -1)
    return _standardise(grouped, (2,)).reshape(x.shape) * w[:, None, None] + b[:, None, None]


def _instance_norm(x: Array, w: Array, b: Array) -> Array:
    return _standardise(x, (2, 3)) * w[:, None, None] + b[:, None, None]


def _batch_norm(x: Array, w: Array, b: Array) -> Array:
    return _standardise(x, (0, 2, 3)) * w[:, None, None] + b[:, None, None]


def _batch_norm_inference(x: Array, w: Array, b: Array) -> Array:
    scale = w / np.sqrt(w * w + EPS)
    y: Array = x * scale[:, None, None] + (b - b * scale)[:, None, None]
    return y


def _ada_layer_norm(x: Array, w: Array, b: Array) -> Array:
    return _standardise(x, (1,)) * (1 + w) + b


def _ours_ada_layer_norm(x: Array, w: Array, b: Array) -> Array:
    return cnorm.ada_layer_norm(x[np.newaxis], w[np.newaxis], b[np.newaxis], EPS)[0]


def _adain(x: Array, w: Array, b: Array) -> Array:
    """Its own style: what that costs does not depend on the values."""
    y: Array = _standardise(x, (2, 3)) * np.sqrt(x.var((2, 3), keepdims=True) + EPS)
    return y + x.mean((2, 3), keepdims=True)


def _whiten(x: Array, w: Array, b: Array) -> Array:
    columns = np.moveaxis(x, 1, 0).reshape(GROUPS, x.shape[1] // GROUPS, -1)
    d = columns - columns.mean(2, keepdims=True)
    values, vectors = np.linalg.eigh(d @ d.transpose(0, 2, 1) / d.shape[2])
    matrix = vectors @ (vectors / np.sqrt(values + EPS)[:, None, :]).transpose(0, 2, 1)
    y: Array = np.moveaxis((matrix @ d).reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
    return y


PAIRS: tuple[tuple[str, tuple[int, ...], Callable[..., Array], Callable[..., Array]], ...] = (
    ("layer_norm", ROWS, lambda x, w, b: cnorm.layer_norm(x, None, w, b, EPS), _layer_norm),
    ("rms_norm", ROWS, lambda x, w, b: cnorm.rms_norm(x, None, w, EPS, bias=b), _rms_norm),
    ("group_norm", IMAGES, lambda x, w, b: cnorm.group_norm(x, GROUPS, w, b, EPS), _group_norm),
    ("instance_norm", IMAGES, lambda x, w, b: cnorm.instance_norm(x, weight=w, bias=b), _instance_norm),
    (
        "batch_norm, training",
        IMAGES,
        lambda x, w, b: cnorm.batch_norm(x, None, None, w, b, True),
        _batch_norm,
    ),
    (
        "batch_norm, inference",
        IMAGES,
        lambda x, w, b: cnorm.batch_norm(x, b, w * w, w, b),
        _batch_norm_inference,
    ),
    ("ada_layer_norm", ROWS, _ours_ada_layer_norm, _ada_layer_norm),
    ("adain", IMAGES, lambda x, w, b: cnorm.adain(x, x, EPS), _adain),
    (
        "spade, x for gamma and beta",
        IMAGES,
        lambda x, *_: cnorm.spade(x, x, x),
        lambda x, *_: _standardise(x, (0, 2, 3)) * (1 + x) + x,
    ),
    ("whiten", IMAGES, lambda x, w, b: cnorm.whiten(x, eps=EPS, groups=GROUPS), _whiten),
)


def seconds(call: Callable[..., Any], *arguments: Array) -> float:
    """Return the shortest time of some calls, after one that is not counted."""
    call(*arguments)
    times: list[float] = []
    while len(times) < CALLS and sum(times) < SECONDS:
        start = perf_counter()
        call(*arguments)
        times.append(perf_counter() - start)
    return min(times)


def report(name: str, shape: tuple[int, ...], traffic: float, ours: float, numpys: float) -> None:
    """Print GB/s of both, from the bytes of useful traffic and their seconds."""
    label = f"{name} {' x '.join(map(str, shape))}"
    print(f"{label:48}{1e-9 * traffic / ours:9.2f} {1e-9 * traffic / numpys:8.2f}")


def run() -> None:
    """Print GB/s of useful traffic, one read of x and one write of y, for cnorm and for NumPy."""
    rng = np.random.default_rng(2)
    print(f"GB/s of useful traffic, float32, {cnorm.get_num_threads()} threads:{'cnorm':>15} {'NumPy':>8}")
    for name, shape, ours, numpys in PAIRS:
        x = rng.standard_normal(shape, np.float32)
        w, b = rng.uniform(-3, 3, (2, shape[1])).astype(np.float32)
        report(name, shape, 2 * x.nbytes, seconds(ours, x, w, b), seconds(numpys, x, w, b))
