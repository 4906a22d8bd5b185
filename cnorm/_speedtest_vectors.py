"""The timing of vector norms behind ``python -m cnorm``, beside the same formulas in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._speedtest import report, seconds

Array = NDArray[Any]

EMBEDDINGS = (4096, 768)
EPS = 1e-12


def _norm(x: Array) -> Array:
    result: Array = np.sqrt(np.square(x).sum(1, keepdims=True))
    return result


def _normalize(x: Array) -> Array:
    result: Array = x / np.maximum(_norm(x), EPS)
    return result


def _normalize_backward(dy: Array, x: Array, g: Array) -> Array:
    n = _norm(x)
    dx: Array = g / n * (dy - x / n * (dy * (x / n)).sum(1, keepdims=True))
    return dx


def _weight_norm(v: Array, g: Array) -> Array:
    w: Array = v * (g / _norm(v))
    return w


def _weight_norm_backward(dw: Array, v: Array, g: Array) -> tuple[Array, Array]:
    return _normalize_backward(dw, v, g), (dw * v).sum(1, keepdims=True) / _norm(v)


def run() -> None:
    """Print GB/s of useful traffic: one read of each array and one write, for cnorm and for NumPy."""
    rng = np.random.default_rng(7)
    x, dy = rng.standard_normal((2, *EMBEDDINGS), np.float32)
    g = rng.uniform(-3, 3, (len(x), 1)).astype(np.float32)
    one = np.ones(1, np.float32)
    times = {
        "normalize": (seconds(cnorm.normalize, x), seconds(_normalize, x)),
        "weight_norm": (seconds(cnorm.weight_norm, x, g), seconds(_weight_norm, x, g)),
        "normalize_backward": (
            seconds(cnorm.normalize_backward, dy, x),
            seconds(_normalize_backward, dy, x, one),
        ),
        "weight_norm_backward": (
            seconds(cnorm.weight_norm_backward, dy, x, g),
            seconds(_weight_norm_backward, dy, x, g),
        ),
    }
    for name, (ours, numpys) in times.items():
        report(name, EMBEDDINGS, (3 if name.endswith("_backward") else 2) * x.nbytes, ours, numpys)
