"""Whitening in NumPy: covariances of channels, and linear maps of them."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.batch_norm import channels_leading
from cnorm.fallback.moments import row_mean

COLUMNS = 128  # whose products are summed by themselves: long sums would gather rounding errors


def _centred(x: Array, channels_last: bool, groups: int, mean: Array, peak: Array) -> Array:
    """Return ``x - mean`` as (groups, d, columns) in float64; the mean in two words, the largest distance."""
    leading = channels_leading(x, channels_last)
    d = leading.reshape(len(leading), -1).astype(np.float64)
    for word in mean:
        word[:] = row_mean(d)[:, 0]
        d -= word[:, np.newaxis]
    peak[:] = np.abs(d).max(axis=1)
    return d.reshape(groups, len(d) // groups, -1)


@np.errstate(all="ignore")
def whiten_covariance(
    x: Array, other: Array | None, channels_last: bool, mean: Array, peak: Array, covariance: Array
) -> None:
    """Average ``(x_i - mean_i) (x_j - mean_j)`` over the columns, or with `other`, its channels j."""
    groups = len(covariance)
    a = b = _centred(x, channels_last, groups, mean[:2], peak[0])
    if other is not None:
        b = _centred(other, channels_last, groups, mean[2:], peak[1])
    total, lost = np.zeros_like(covariance), np.zeros_like(covariance)
    for start in range(0, a.shape[2], COLUMNS):
        some = slice(start, start + COLUMNS)
        part = a[..., some] @ b[..., some].transpose(0, 2, 1)
        before, total = total, total + part
        lost += (before - (total - (total - before))) + (part - (total - before))  # Knuth's two-sum
    covariance[:] = (total + lost) / a.shape[2]


def _mapped(x: Array, mean: Array, matrix: Array, channels_last: bool) -> Array:
    """``matrix (x - mean)`` as (channels, batch, spatial) in float64."""
    leading = channels_leading(x, channels_last)
    d = leading.reshape(len(leading), -1) - mean[0][:, np.newaxis]
    d -= mean[1][:, np.newaxis]
    product: Array = matrix @ d.reshape(len(matrix), matrix.shape[1], -1)
    return product.reshape(leading.shape)


@np.errstate(all="ignore")
def whiten_apply(
    x: Array,
    mean: Array,
    matrix: Array,
    other: Array | None,
    other_mean: Array | None,
    other_matrix: Array | None,
    channels_last: bool,
    y: Array,
) -> None:
    """``y = matrix (x - mean)``, and with `other`, ``+ other_matrix (other - other_mean)``."""
    result = _mapped(x, mean, matrix, channels_last)
    if other is not None and other_mean is not None and other_matrix is not None:
        result += _mapped(other, other_mean, other_matrix, channels_last)
    channels_leading(y, channels_last)[:] = result
