"""Exact AdaIN and its gradients, in ``numpy.longdouble`` on the moments of ``oracle.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle
from gradient_oracle import CANCELLED, ExactGradient
from oracle import Exact, Long

Array = NDArray[Any]


@dataclass(frozen=True)
class Maps:
    """Each channel of each sample as a row (batch * channels, positions), standardised; statistics by row.

    ``freed`` is what the sum of squares was divided by.
    """

    xhat: Array
    mean: Array
    var: Array
    rstd: Array
    freed: int

    @property
    def std(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.where(self.rstd == 0, Long(0), 1 / self.rstd)


def maps(x: Array, eps: float, axis: int, unbiased: bool) -> Maps:
    first = np.moveaxis(x, axis, 1)
    rows = first.reshape(first.shape[0] * first.shape[1], -1)
    n = rows.shape[1]
    freed = n - 1 if unbiased and n > 1 else n
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        hi, lo, var, centred = oracle.moments(rows)
        var = var * n / freed
        root = np.sqrt(var + Long(eps))
        rstd = np.where(root == 0, Long(0), 1 / root)
        return Maps(centred * rstd, hi + lo, var, rstd, freed)


def _joined(rows: Array, x: Array, axis: int) -> Array:
    """Rows as an array like ``x``."""
    first = np.moveaxis(x, axis, 1)
    return np.moveaxis(rows.reshape(first.shape), 1, axis)


def used_style(content: Array, style: Array) -> Array:
    return style.astype(oracle.compute_dtype(content.dtype))


def adain(
    content: Array, style: Array, eps: float = 1e-5, *, axis: int = 1, unbiased: bool = True
) -> tuple[Exact, Exact]:
    """The exact result, with the content's statistics (batch, channels); and the style's in another."""
    c, s = (maps(x, eps, axis, unbiased) for x in (content, used_style(content, style)))
    shape = content.shape[0], content.shape[axis]
    with np.errstate(invalid="ignore", over="ignore"):
        parts = (c.xhat * s.std + s.mean, c.xhat, s.std + 0 * c.xhat, s.mean + 0 * c.xhat)
    arrays = (_joined(part, content, axis) for part in parts)
    exact = Exact(*arrays, *(v.reshape(shape) for v in (c.mean, c.var, c.rstd)))
    nothing = np.zeros((), Long)
    stats = (v.reshape(shape) for v in (s.mean, s.var, s.rstd))
    return exact, Exact(nothing, nothing, nothing, nothing, *stats)


def adain_backward(
    dy: Array, content: Array, style: Array, eps: float = 1e-5, *, axis: int = 1, unbiased: bool = True
) -> tuple[ExactGradient, ExactGradient]:
    """The exact gradients, counted in the largest of a channel, or where they cancel that of their terms."""
    style = used_style(content, style)
    c, s = (maps(x, eps, axis, unbiased) for x in (content, style))
    rows = (
        np.moveaxis(dy.astype(oracle.compute_dtype(content.dtype)), axis, 1)
        .reshape(c.xhat.shape)
        .astype(Long)
    )

    def total(values: Array) -> Array:
        return values.sum(axis=1, keepdims=True)

    def counted(values: Array, terms: Array, like: Array) -> ExactGradient:
        largest = np.abs(values).max(axis=1, keepdims=True, initial=0)
        scale = np.where(largest < CANCELLED * terms, terms, largest) + 0 * values
        compute = np.finfo(oracle.compute_dtype(content.dtype))
        tiny = np.abs(values) < float(compute.smallest_normal)
        allowance = np.where(tiny, Long(float(compute.smallest_subnormal)) / 2, Long(0))
        return ExactGradient(*(_joined(v, like, axis) for v in (values, scale, allowance)))

    with np.errstate(invalid="ignore", over="ignore"):
        g, n, style_n = rows * s.std, Long(max(rows.shape[1], 1)), s.xhat.shape[1]
        dcontent = c.rstd * (g - total(g) / n - c.xhat * total(g * c.xhat) / c.freed if c.freed else g)
        terms = c.rstd * np.abs(g).max(axis=1, keepdims=True, initial=0)
        slope = total(rows * c.xhat) / s.freed
        dstyle = total(rows) / style_n + s.xhat * slope
        squares = np.sqrt(total((rows * c.xhat) ** 2)) * np.abs(s.xhat).max(axis=1, keepdims=True) / s.freed
        by_chance = np.maximum(np.sqrt(total(rows**2)) / style_n, squares)
        return counted(dcontent, terms, content), counted(dstyle, by_chance, style)
