"""Gradients of batch norm over several processes, in NumPy: sums of one, and the output with those of all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cnorm._numbers import Array, parts, row_sum
from cnorm.fallback.batch_norm import channels_leading
from cnorm.fallback.gradients import weighted

_NONE = -5_000  # exponents below this are those of zeros


class _Scale(NamedTuple):
    """``t = (x - mean) * factor * 2**exponent``, each (channels, 1).

    The factor is rstd, or 1 where that is no normal number.
    """

    mean: Array
    factor: Array
    exponent: Array
    own: Array


def _scale(mean: Array, rstd: Array) -> _Scale:
    limits = np.finfo(rstd.dtype)
    own = np.isinf(rstd) | ((rstd != 0) & (np.abs(rstd) < limits.smallest_normal))
    unit = 1000 if rstd.dtype == np.float64 else 0
    exponent = np.where(own, np.where(rstd > 1, unit, -unit), 0)
    factor = np.where(own, 1.0, rstd.astype(np.float64))
    return _Scale(*(a[:, np.newaxis] for a in (mean.astype(np.float64), factor, exponent, own)))


def _hats(x: Array, scale: _Scale) -> Array:
    """Return t, for `x` (channels, values)."""
    x = x.astype(np.float64)
    d = x - scale.mean
    halved = np.isinf(d)  # of numbers that are finite the half is not
    d = np.where(halved, x / 2 - scale.mean / 2, d)
    return np.ldexp(d * scale.factor, scale.exponent + halved)


def _rows(array: Array, channels_last: bool) -> Array:
    array = channels_leading(array, channels_last)
    return array.reshape(array.shape[0], -1)


@np.errstate(all="ignore")
def sync_batch_norm_backward_sums(
    dy: Array, x: Array, mean: Array, rstd: Array, channels_last: bool, sums: Array
) -> None:
    """By channel: sums of t, dy, ``dy * t`` in two words, and of ``t * t``, with ``dy / 2**k``; and k."""
    t = _hats(_rows(x, channels_last), _scale(mean, rstd))
    g, k = parts(_rows(dy, channels_last)).by_row()
    zero = np.zeros((t.shape[0], 1))
    sums[:] = np.hstack([row_sum(t), zero, row_sum(g), zero, row_sum(g * t), zero, row_sum(t * t), k]).T


@np.errstate(all="ignore")
def sync_batch_norm_backward_apply(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    own: Array,
    counts: Array,
    sums: Array,
    channels_last: bool,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """``rstd * weight * (dy - average(dy) - hat * average(dy * hat))``, averages over all ranks' values."""
    total = counts.sum()
    exponents = sums[:, 7].astype(np.int64)
    k = exponents.max(axis=0)
    k = np.where(k < _NONE, 0, k)
    t, squares = (sums[:, 0] + sums[:, 1]).sum(axis=0) / total, sums[:, 6].sum(axis=0) / total
    average, slope = (
        np.ldexp(sums[:, row] + sums[:, row + 1], exponents - k).sum(axis=0) / total for row in (2, 4)
    )
    scale = _scale(mean, rstd)
    # Where rstd could not be saved, the factor that t lacks.
    factor = np.where(scale.own[:, 0], 1 / np.sqrt(squares - t * t), 1.0)
    slope = (slope - t * average) * factor
    if dweight is not None:
        dweight[:] = np.ldexp(((own[4] + own[5]) - t * (own[2] + own[3])) * factor, own[7].astype(np.int64))
    if dbias is not None:
        dbias[:] = np.ldexp(own[2] + own[3], own[7].astype(np.int64))
    if dx is None:
        return
    hat = (_hats(_rows(x, channels_last), scale) - t[:, np.newaxis]) * factor[:, np.newaxis]
    g = np.ldexp(_rows(dy, channels_last).astype(np.float64), -k[:, np.newaxis])
    value = (g - average[:, np.newaxis]) - hat * slope[:, np.newaxis]
    value = np.where(scale.own & (total <= 2), 0.0, value)  # 1 and hat are all that two values have
    root = parts(np.where(scale.own, factor[:, np.newaxis], scale.factor))
    result = weighted(value, None if weight is None else weight[:, np.newaxis]).times(root)
    target = channels_leading(dx, channels_last)
    target[:] = np.ldexp(*result.shifted(k[:, np.newaxis] + scale.exponent)).reshape(target.shape)
