"""Named inputs that break naive statistics; every op, layout and dtype meets all of them.

A trap fills ``(rows, elements)`` in the wanted dtype. Where a trap speaks of a spread or an offset it is
chosen for the dtype, so that float64 meets the same kind of trouble as float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Fill = Callable[[np.random.Generator, int, int, np.dtype[Any]], Array]


@dataclass(frozen=True)
class Trap:
    name: str
    fill: Fill
    eps: float

    def __call__(self, rows: int, elements: int, dtype: Any) -> Array:
        """The trap's rows; always the same ones for the same arguments."""
        dtype = np.dtype(dtype)
        rng = np.random.default_rng([rows, elements, dtype.itemsize, *self.name.encode()])
        with np.errstate(over="ignore", under="ignore"):
            return np.ascontiguousarray(self.fill(rng, rows, elements, dtype).astype(dtype))


def _offset(mean: float, spread: float) -> Fill:
    return lambda rng, rows, n, dtype: mean + spread * rng.standard_normal((rows, n))


def _offset_units(spreads: float) -> Fill:
    """A mean so large that the spread is only some spacings of the dtype: 2**(bits / 2) times ``spreads``."""

    def fill(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
        return spreads * 2.0 ** (np.finfo(dtype).nmant // 2) + rng.standard_normal((rows, n))

    return fill


def _constant(value: float) -> Fill:
    return lambda rng, rows, n, dtype: np.full((rows, n), value)


def _outlier(place: float, size: float) -> Fill:
    """Normal rows with one large element at ``place`` of the row (0 first, 1 last)."""

    def fill(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
        x = rng.standard_normal((rows, n))
        x[:, round(place * (n - 1))] = size
        return x

    return fill


def _scaled(fraction_of_range: float) -> Fill:
    """Normal rows times 10**(fraction of the dtype's largest decimal exponent)."""

    def fill(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
        exponent = fraction_of_range * np.log10(float(np.finfo(dtype).max))
        return rng.standard_normal((rows, n)) * 10.0**exponent

    return fill


def _largest(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Both largest finite values, at random: any sum, difference or square overflows."""
    return np.where(rng.random((rows, n)) < 0.5, -1, 1) * np.finfo(dtype).max


def _largest_constant(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return np.full((rows, n), np.finfo(dtype).max)


def _largest_spread(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return rng.uniform(-1, 1, (rows, n)) * float(np.finfo(dtype).max)


def _subnormal(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Small multiples of the smallest subnormal."""
    return rng.integers(-9, 10, (rows, n)) * float(np.finfo(dtype).smallest_subnormal)


def _subnormal_offset(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """One smallest subnormal up or down from the smallest normal number."""
    info = np.finfo(dtype)
    return float(info.smallest_normal) + rng.integers(-1, 2, (rows, n)) * float(info.smallest_subnormal)


def _last_bit(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """1 and the next number: the mean of two neighbours is no number of the type."""
    return 1 + rng.integers(0, 2, (rows, n)) * float(np.finfo(dtype).eps)


def _magnitudes(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Every order of magnitude in one row."""
    reach = 0.95 * np.log10(float(np.finfo(dtype).max))
    return 10.0 ** rng.uniform(-reach, reach, (rows, n)) * np.where(rng.random((rows, n)) < 0.5, -1, 1)


def _counting(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return 40000 + np.arange(n) + np.zeros((rows, 1))


def _ladder(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return (10.0 ** (np.arange(rows) % 5))[:, None] + 0.001 * (np.arange(n) % 16)


def _narrow(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return 100 + np.where(rng.random((rows, n)) < 0.5, -0.01, 0.01)


def _drift(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """A mean that moves along the row: the blocks of a blocked sum have very different means."""
    return np.linspace(-1e4, 3e4, n) + rng.standard_normal((rows, n))


def _step(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """A constant beginning at 1e6, then a normal row."""
    return np.where(np.arange(n) < n // 3, 1e6, rng.standard_normal((rows, n)))


def _vanishing(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Equal small elements after one whose square is 2**bits times theirs: every sum rounds alike."""
    half = np.finfo(dtype).nmant // 2
    kinds = [
        (half + 2, 1.0),
        (half, 1.39),
        (half + 2, 1.39),
        (half + 1, 1.4),
        (half, 0.7),
        (half, 1.4),
        (half + 1, 1.0),
    ]
    x = np.empty((rows, n))
    for i in range(rows):
        exponent, x[i] = kinds[i % len(kinds)]
        x[i, 0] = 2.0**exponent
    return x


def _cancelling(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Pairs of large opposite numbers between small ones: a plain sum loses the small ones."""
    x = rng.standard_normal((rows, n))
    x[:, : n // 4], x[:, n // 4 : 2 * (n // 4)] = 1e7, -1e7
    return x


def _heavy_tails(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return rng.standard_cauchy((rows, n))


def _signed_zeros(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    return np.where(rng.random((rows, n)) < 0.5, -0.0, 0.0)


def _mixed_rows(rng: np.random.Generator, rows: int, n: int, dtype: np.dtype[Any]) -> Array:
    """Neighbouring rows of very different kind: constant, subnormal, huge, offset, normal."""
    x = rng.standard_normal((rows, n))
    info = np.finfo(dtype)
    x[0::5] = 7.0
    x[1::5] *= 20 * float(info.smallest_subnormal)
    x[2::5] *= float(info.max) / 8
    x[3::5] += 1e4
    return x


TRAPS = [
    Trap("normal", _offset(0, 1), 1e-5),
    Trap("mean 3, spread 0.5, no eps", _offset(3, 0.5), 0.0),
    Trap("mean 1e4, spread 1", _offset(1e4, 1), 1e-5),
    Trap("mean -1e6, spread 1", _offset(-1e6, 1), 1e-5),
    Trap("spread of 2**(bits/2) spacings", _offset_units(1), 1e-5),
    Trap("spread of few spacings", _offset_units(500), 0.0),
    Trap("counting from 40000", _counting, 1e-5),
    Trap("ladder of 0.001", _ladder, 1e-5),
    Trap("100 +- 0.01", _narrow, 1e-5),
    Trap("last bit of 1", _last_bit, 0.0),
    Trap("constant 1234", _constant(1234.0), 1e-5),
    Trap("constant 0.1, no eps", _constant(0.1), 0.0),
    Trap("constant 1e7", _constant(1e7), 1e-5),
    Trap("constant 1e-30, no eps", _constant(1e-30), 0.0),
    Trap("signed zeros", _signed_zeros, 0.0),
    Trap("first element 1e8", _outlier(0, 1e8), 1e-5),
    Trap("middle element -1e8", _outlier(0.5, -1e8), 1e-5),
    Trap("last element 1e8", _outlier(1, 1e8), 1e-5),
    Trap("first element 1e30", _outlier(0, 1e30), 1e-5),
    Trap("drifting mean", _drift, 1e-5),
    Trap("step from 1e6", _step, 1e-5),
    Trap("cancelling pairs", _cancelling, 1e-5),
    Trap("equal squares that vanish", _vanishing, 0.0),
    Trap("Cauchy", _heavy_tails, 1e-5),
    Trap("features of 1e-10, no eps", _offset(0, 1e-10), 0.0),
    Trap("features of 1e-20 around 1e-19, no eps", _offset(1e-19, 1e-20), 0.0),
    Trap("features of 1e-25, eps 1e-50", _offset(0, 1e-25), 1e-50),
    Trap("spread below eps", _offset(1, 1e-4), 10.0),
    Trap("0.8 of the exponent range", _scaled(0.8), 1e-5),
    Trap("-0.8 of the exponent range, no eps", _scaled(-0.8), 0.0),
    Trap("-0.99 of the exponent range, eps 1e-5", _scaled(-0.99), 1e-5),
    Trap("largest and lowest", _largest, 1e-5),
    Trap("largest, constant", _largest_constant, 1e-5),
    Trap("the whole range", _largest_spread, 1e-5),
    Trap("subnormal, no eps", _subnormal, 0.0),
    Trap("subnormal, eps 1e-5", _subnormal, 1e-5),
    Trap("around the smallest normal, no eps", _subnormal_offset, 0.0),
    Trap("every magnitude", _magnitudes, 0.0),
    Trap("rows of different kinds", _mixed_rows, 0.0),
]
