"""The spectral norm's part of the timing behind ``python -m cnorm``, beside its formulas in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._speedtest import report, seconds

Array = NDArray[Any]

WEIGHT = (512, 512, 3, 3)
READS_AND_WRITES = 4  # two products, and one pass that divides; backward: dw twice, the weight, the gradient


def _forward(weight: Array, u: Array, v: Array) -> Array:
    matrix = weight.reshape(len(weight), -1)
    v[:] = matrix.T @ u
    v /= np.linalg.norm(v)
    u[:] = matrix @ v
    u /= np.linalg.norm(u)
    w: Array = weight / (u @ (matrix @ v))
    return w


def _backward(dw: Array, weight: Array, u: Array, v: Array, sigma: Any) -> Array:
    pattern = np.outer(u, v).reshape(weight.shape)
    gradient: Array = dw / sigma - np.vdot(dw, weight) / sigma**2 * pattern
    return gradient


def run() -> None:
    """Print GB/s of traffic for cnorm and for NumPy."""
    rng = np.random.default_rng(6)
    weight, dw = (rng.standard_normal(WEIGHT, np.float32) for _ in range(2))
    u, v = (rng.standard_normal(n, np.float32) for n in (len(weight), weight[0].size))
    traffic = READS_AND_WRITES * weight.nbytes
    ours, numpys = seconds(cnorm.spectral_norm, weight, u, v), seconds(_forward, weight, u, v)
    report("spectral_norm", WEIGHT, traffic, ours, numpys)
    sigma = np.float32(cnorm.spectral_norm(weight, u, v)[1])
    ours = seconds(lambda: cnorm.spectral_norm_backward(dw, weight, u, v, float(sigma)))
    numpys = seconds(lambda: _backward(dw, weight, u, v, sigma))
    report("spectral_norm_backward", WEIGHT, traffic, ours, numpys)
