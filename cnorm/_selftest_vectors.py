"""The vector norms' part of the check behind ``python -m cnorm``, against extended precision.

The error is counted in units of u times the largest magnitude of a vector, backward of the larger of its two
terms; 6 and 16 are promised. Every instruction-set level and number of threads must give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._selftest import UNITS, Verdict, variants
from cnorm._selftest_backward import UNITS as UNITS_BACKWARD

Array = NDArray[Any]

LAYOUTS = (((17, 3), 1), ((5, 70), 1), ((2, 9001), 1), ((1, 300_000), 1), ((3, 65, 40), 1), ((33, 5, 16), 0))
SCALES = {"float32": (1.0, 1e30, 1e-30), "float64": (1.0, 1e200, 1e-200)}


def _norm(x: Array, p: float, axes: tuple[int, ...]) -> Array:
    most = np.abs(x).max(axes, keepdims=True)
    ratio = np.abs(x) / most
    if p == 2:
        result: Array = most * np.sqrt(np.square(ratio).sum(axes, keepdims=True))
        return result
    return most if math.isinf(p) else most * ratio.sum(axes, keepdims=True)


def _direction(x: Array, n: Array, p: float) -> Array:
    """Gradient of the norm; no two elements of random vectors have the largest magnitude."""
    if p == 2:
        return x / n
    return np.sign(x) * (np.abs(x) == n) if math.isinf(p) else np.sign(x)


def _see(verdict: Verdict, value: Array, exact: Array, scale: Array) -> None:
    error = np.abs(value - exact)
    unit = float(np.finfo(verdict.dtype).eps) / 2 * scale
    verdict.see(np.divide(error, unit, out=np.zeros_like(error), where=error != 0))


def _judge(forward: Verdict, backward: Verdict, arrays: list[Array], axis: int, p: float) -> None:
    """Take note of normalize, or for p = 0 weight_norm, on one layout."""
    dy, x, g = arrays
    axes = tuple(i for i in range(x.ndim) if (i == axis) == (p > 0))

    def run() -> list[Array]:
        if p:
            y, dx = cnorm.normalize(x, p, axis, 0.0), cnorm.normalize_backward(dy, x, p, axis, 0.0).x
            return [y, dx]
        grads = cnorm.weight_norm_backward(dy, x, g, axis)
        return [cnorm.weight_norm(x, g, axis), *(grad for grad in grads if grad is not None)]

    results = run()
    wide, g = x.astype(np.longdouble), g.astype(np.longdouble) if p == 0 else np.ones(1, np.longdouble)
    n = _norm(wide, p or 2.0, axes)
    y = wide / n * g
    slope = (dy * (wide / n)).sum(axes, keepdims=True)
    part = _direction(wide, n, p or 2.0) * slope
    terms = np.maximum(np.abs(dy), np.abs(part)).max(axes, keepdims=True) * np.abs(g) / n
    _see(forward, results[0], y, np.abs(y).max(axes, keepdims=True))
    _see(backward, results[1], (dy - part) * g / n, terms)
    if p == 0:
        _see(backward, results[2], slope, np.sqrt(np.square(dy * (wide / n)).sum(axes, keepdims=True)))
    bits = [result.tobytes() for result in results]
    for _ in variants():
        forward.same_bits &= [result.tobytes() for result in run()] == bits


def run() -> bool:
    """Print two lines for every op and dtype; return whether all passed."""
    print(f"Vector norms; at most {UNITS:g} units of the largest are promised, backward {UNITS_BACKWARD:g}:")
    passed = True
    for name, orders in (("normalize", (2.0, 1.0, math.inf)), ("weight_norm", (0.0,))):
        for dtype in ("float32", "float64"):
            verdicts = Verdict(name, dtype), Verdict(f"{name}_backward", dtype, UNITS_BACKWARD)
            rng = np.random.default_rng(5)
            for shape, axis in LAYOUTS:
                for scale in SCALES[dtype] if math.prod(shape) < 100_000 else (1.0,):
                    x, dy = rng.standard_normal((2, *shape))
                    channels = [size if i == axis else 1 for i, size in enumerate(shape)]
                    g = rng.uniform(-3, 3, channels)
                    arrays = [array.astype(dtype) for array in (dy, x * scale, g)]
                    for p in orders:
                        _judge(*verdicts, arrays, axis, p)
            for verdict in verdicts:
                print(verdict)
                passed &= verdict.passed
    return passed
