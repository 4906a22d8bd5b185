"""Norms of vectors in float64, at any magnitude: what `normalize` and `weight_norm` have in common.

Vectors are the rows of 2-D arrays. As in moments.py, each is taken times ``2**-k`` with its largest magnitude
between 1/2 and 1, and the powers of two are kept apart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cnorm._numbers import Array, row_sum
from cnorm.fallback.moments import scaled


class Vectors(NamedTuple):
    """Vectors ``values * 2**exponent`` with norms ``norm * 2**exponent``; NaN where one is not finite.

    Values far below the largest may vanish in the scaling; their signs are kept.
    """

    values: Array
    sign: Array
    exponent: Array
    norm: Array

    def below(self, eps: float) -> Array:
        """Which norms (rows, 1) are 0 or less than `eps`."""
        return (self.norm == 0) | (np.ldexp(self.norm, self.exponent) < eps)


def vectors(rows: Array, p: float) -> Vectors:
    """Take rows apart, with their norms of order `p`."""
    values, k = scaled(rows, 0.0)
    sizes = np.abs(values)
    most = np.max(sizes, axis=1, keepdims=True, initial=0)
    if p == 2:
        norm = np.sqrt(row_sum(values * values))
    elif math.isinf(p):
        norm = most
    else:
        norm = most * row_sum((sizes / np.where(most == 0, 1, most)) ** p) ** (1 / p)
    return Vectors(values, np.sign(rows), k, norm)


def direction(x: Vectors, p: float) -> Array:
    """Gradient of the norm of order `p`; of several largest elements, each has its share for ``p=inf``."""
    sizes = np.abs(x.values)
    if math.isinf(p):
        largest = sizes == x.norm
        return x.sign * largest / largest.sum(axis=1, keepdims=True)
    if p == 2:
        return x.values / x.norm
    if p == 1:
        return x.sign
    return np.where(sizes == 0, 0.0, x.sign * (sizes / x.norm) ** (p - 1))


def slope(dy: Array, x: Vectors) -> Array:
    """``sum(dy * x) / norm`` of each row."""
    return row_sum(dy * (x.values / x.norm))
