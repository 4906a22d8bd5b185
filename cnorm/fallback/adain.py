"""Adaptive instance norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import row_mean, scaled, standardize


def maps_of(x: Array, channels_last: bool) -> Array:
    """Each channel of each sample of a (batch, channels, spatial) or channels-last array as a row."""
    first = x.transpose(0, 2, 1) if channels_last else x
    return first.reshape(first.shape[0] * first.shape[1], first.shape[2])


def to_maps(y: Array, rows: Array, channels_last: bool) -> None:
    """Write rows where `maps_of` takes them from."""
    target = y.transpose(0, 2, 1) if channels_last else y
    target[:] = rows.reshape(target.shape)


def freedom(n: int, unbiased: bool) -> float:
    """Return the biased variance of n values over the one wanted; 1 of one value, which has no spread."""
    return (n - 1) / n if unbiased and n > 1 else 1.0


def _style(rows: Array, eps: float, unbiased: bool) -> tuple[Array, Array, Array, Array]:
    """Return mean and deviation of rows times ``2**-k``, k, and ``1/sqrt(var + eps)``; all (rows, 1)."""
    share = freedom(rows.shape[1], unbiased)
    d, k = scaled(rows, eps)
    mean = row_mean(d)
    d -= mean
    missed = row_mean(d)
    d -= missed
    var = row_mean(d * d) / share
    std = np.sqrt(var + np.ldexp(eps, -2 * k))
    alone = 1 / np.sqrt(eps) if eps else 0.0
    return mean + missed, std, k, np.where(var == 0, alone, np.ldexp(1 / std, -k))


@np.errstate(all="ignore")
def adain(
    content: Array,
    style: Array,
    eps: float,
    unbiased: bool,
    content_last: bool,
    style_last: bool,
    y: Array,
    content_mean: Array | None,
    content_rstd: Array | None,
    style_mean: Array | None,
    style_rstd: Array | None,
) -> None:
    """Give each channel of the content, a row, the mean and the standard deviation of the style's.

    ``var + eps`` of an unbiased variance is ``(biased var + eps * share) / share``.
    """
    rows = maps_of(content, content_last)
    share = freedom(rows.shape[1], unbiased)
    xhat, means, rstds, _ = standardize(rows, eps * share)
    mean, std, k, style_rstds = _style(maps_of(style, style_last), eps, unbiased)
    to_maps(y, np.ldexp(xhat * (np.sqrt(share) * std) + mean, k), content_last)
    found = means, rstds * np.sqrt(share), np.ldexp(mean, k), style_rstds
    for target, value in zip((content_mean, content_rstd, style_mean, style_rstd), found, strict=True):
        if target is not None:
            target[:] = value[:, 0]
