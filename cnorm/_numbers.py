"""Numbers of any magnitude, and sums that are all but exact, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LESS_THAN_ANY = -10_000  # as an exponent


class Parts(NamedTuple):
    """Numbers ``fraction * 2**exponent``, whose products and differences stay in range."""

    fraction: Array
    exponent: Array

    def times(self, other: Parts) -> Parts:
        """Multiply."""
        return Parts(self.fraction * other.fraction, self.exponent + other.exponent)

    def minus(self, other: Parts) -> Parts:
        """Subtract."""
        k = np.maximum(self.exponent, other.exponent)
        first, second = (np.ldexp(number.fraction, number.exponent - k) for number in (self, other))
        return parts(first - second).shifted(k)

    def shifted(self, k: Array | int) -> Parts:
        """Multiply by ``2**k``."""
        return Parts(self.fraction, self.exponent + k)

    def arranged(self, arrange: Callable[[Array], Array]) -> Parts:
        """Apply a transposition or the like to both parts."""
        return Parts(arrange(self.fraction), arrange(self.exponent))

    def by_row(self) -> tuple[Array, Array]:
        """Return rows (rows, cols) times ``2**-k``, the largest of each near 1, and k (rows, 1)."""
        occupied = np.where(self.fraction == 0, _LESS_THAN_ANY, self.exponent)
        k = occupied.max(axis=1, keepdims=True, initial=_LESS_THAN_ANY)
        return np.ldexp(self.fraction, self.exponent - k), k


def parts(values: Array) -> Parts:
    """Take floating numbers apart."""
    return Parts(*np.frexp(values.astype(np.float64)))


def row_sum(x: Array) -> Array:
    """Sum of each row (rows, cols) -> (rows, 1), all but correctly rounded.

    The leading bits of a row, cut at 2**-25 of its largest element, add up without any rounding. What is left
    is so small that the rounding in its own sum does not matter.
    """
    peak = np.max(np.abs(x), axis=1, keepdims=True, initial=0)
    cut = np.ldexp(1.0, np.frexp(peak)[1] + 27)
    leading = (x + cut) - cut
    total: Array = leading.sum(axis=1, keepdims=True) + (x - leading).sum(axis=1, keepdims=True)
    return total
