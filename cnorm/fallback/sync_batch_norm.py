"""Batch norm over several processes, in NumPy: moments of one, merged, applied."""

from __future__ import annotations

import math

import numpy as np

from cnorm._numbers import Array, row_sum
from cnorm.fallback.batch_norm import channels_leading, write
from cnorm.fallback.moments import deviation, row_mean, scaled, update_running


@np.errstate(all="ignore")
def sync_batch_norm_moments(x: Array, eps: float, channels_last: bool, moments: Array) -> None:
    """Mean and sum of squares about it, in two words each, of ``x / 2**k``, and k."""
    x = channels_leading(x, channels_last)
    d, k = scaled(x.reshape(x.shape[0], -1), eps)
    mean = row_mean(d)
    d -= mean
    missed = row_mean(d)
    d -= missed
    zero = np.zeros_like(mean)
    moments[:] = np.hstack([mean, missed, row_sum(d * d), zero, k]).T


def _difference(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a - b`` rounded, and what the rounding lost (Knuth)."""
    d = a - b
    t = d - a
    return d, (a - (d - t)) - (b + t)


@np.errstate(all="ignore")
def sync_batch_norm_merge(
    counts: Array,
    moments: Array,
    eps: float,
    merged: Array,
    mean: Array,
    rstd: Array,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    unbiased: bool,
) -> None:
    """Statistics of all values, in units of the largest rank's power of two.

    The first mean is moved by the average distance of all from it, and the spread of the means joins the sums
    of squares: Chan's formula for all ranks at once.
    """
    n = counts[counts > 0][:, np.newaxis]
    exponents = moments[counts > 0, 4].astype(np.int64)
    k = exponents.max(axis=0)
    shift = exponents - k
    means, missed = (np.ldexp(moments[counts > 0, row], shift) for row in (0, 1))
    squares = np.ldexp(moments[counts > 0, 2] + moments[counts > 0, 3], 2 * shift)
    distances, lost = _difference(means, means[0])
    lost += missed - missed[0]
    total = n.sum()
    step = (n * (distances + lost)).sum(axis=0) / total
    distances = (distances - step) + lost
    rest = (n * distances).sum(axis=0) / total  # what the roundings of the first step left
    var = (squares + n * (distances - rest) ** 2).sum(axis=0) / total
    std = deviation(var, eps, k)
    centre, low = _difference(means[0], -step)
    low += missed[0] + rest
    merged[:] = np.stack([centre, low, std, np.zeros_like(std), k])
    centre = np.ldexp(centre + low, k)
    mean[:] = centre
    rstd[:] = np.where(var == 0, 1 / math.sqrt(eps) if eps else 0.0, np.ldexp(1 / std, -k))
    update_running(running_mean, centre, momentum)
    update_running(running_var, np.ldexp(var * (total / (total - 1) if unbiased else 1.0), 2 * k), momentum)


@np.errstate(all="ignore")
def sync_batch_norm_apply(
    x: Array, merged: Array, weight: Array | None, bias: Array | None, channels_last: bool, y: Array
) -> None:
    """Standardise each channel by merged statistics, then scale and shift it."""
    x, y = channels_leading(x, channels_last), channels_leading(y, channels_last)
    mean, missed, std, _, k = merged[:, :, np.newaxis, np.newaxis]
    d = np.ldexp(x.astype(np.float64), -k.astype(np.int64)) - mean - missed
    write(y, d / std, weight, bias)
