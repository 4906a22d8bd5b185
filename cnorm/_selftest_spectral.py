"""The spectral norm's part of the check behind ``python -m cnorm``, against extended precision.

One power iteration from random vectors, and the gradient. The error is counted in units of the largest
magnitude of the result; every instruction-set level and number of threads must give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._selftest import UNITS, Verdict, variants
from cnorm._selftest_backward import UNITS as UNITS_BACKWARD

Array = NDArray[Any]

WEIGHTS = (((1, 1), 0), ((7, 70), 0), ((70, 7), 1), ((64, 3, 3, 3), 0), ((20, 33, 4, 4), 1), ((300, 2100), 0))
SCALES = {"float32": (1.0, 1e30, 1e-30), "float64": (1.0, 1e200, 1e-200)}


def _matrix(weight: Array, dim: int) -> Array:
    return np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1).astype(np.longdouble)


def _unit_vector(x: Any) -> Array:
    unit: Array = x / np.sqrt(np.square(x).sum())
    return unit


def _units(value: Array, exact: Array, scale: Any, dtype: str) -> Array:
    error = abs(value - exact)
    return np.divide(
        error, scale * float(np.finfo(dtype).eps) / 2, out=np.zeros_like(error), where=error != 0
    )


def _see(
    forward: Verdict, backward: Verdict, weight: Array, dim: int, vectors: tuple[Array, Array], dw: Array
) -> None:
    """Compare one call and its gradient; each vector with what follows from the other as rounded."""
    dtype, matrix = forward.dtype, _matrix(weight, dim)
    u, v = (vector.copy() for vector in vectors)
    w, sigma = cnorm.spectral_norm(weight, u, v, dim=dim, eps=0.0)
    gradient = cnorm.spectral_norm_backward(dw, weight, u, v, sigma, dim=dim)
    for vector, exact in ((v, matrix.T @ vectors[0]), (u, matrix @ v)):
        unit = _unit_vector(exact)
        forward.see(_units(vector, unit, abs(unit).max(), dtype))
    true_sigma = u @ (matrix @ v)
    exact = weight / true_sigma
    forward.see(_units(w, exact, abs(exact).max(), dtype))

    part = (dw * weight.astype(np.longdouble)).sum() / true_sigma
    exact = (_matrix(dw, dim) - part * u[:, np.newaxis] * v) / true_sigma
    scale = max(abs(exact).max(), abs(dw).max() / true_sigma / 2)
    backward.see(_units(_matrix(gradient, dim), exact, scale, dtype))

    for _ in variants():
        again = [vector.copy() for vector in vectors]
        w_again, sigma_again = cnorm.spectral_norm(weight, *again, dim=dim, eps=0.0)
        same = [a.tobytes() for a in (w_again, *again)] == [a.tobytes() for a in (w, u, v)]
        forward.same_bits &= same and sigma_again == sigma
        gradient_again = cnorm.spectral_norm_backward(dw, weight, u, v, sigma, dim=dim)
        backward.same_bits &= gradient_again.tobytes() == gradient.tobytes()


def judge(dtype: str) -> tuple[Verdict, Verdict]:
    """Run forward and backward on every weight."""
    forward = Verdict("spectral_norm", dtype, UNITS)
    backward = Verdict("spectral_norm_backward", dtype, UNITS_BACKWARD)
    rng = np.random.default_rng(5)
    for shape, dim in WEIGHTS:
        for scale in SCALES[dtype]:
            weight = (scale * rng.standard_normal(shape)).astype(dtype)
            rows = weight.shape[dim]
            u, v = (_unit_vector(rng.standard_normal(n)).astype(dtype) for n in (rows, weight.size // rows))
            dw = rng.standard_normal(shape).astype(dtype)
            _see(forward, backward, weight, dim, (u, v), dw)
    return forward, backward


def run() -> bool:
    """Print a line for forward and backward in each dtype; return whether all passed."""
    print(f"Weights; at most {UNITS:g} and {UNITS_BACKWARD:g} units of the largest are promised:")
    passed = True
    for dtype in ("float32", "float64"):
        for verdict in judge(dtype):
            print(verdict)
            passed &= verdict.passed
    return passed
