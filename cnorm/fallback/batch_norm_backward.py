"""Gradients of batch norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, parts
from cnorm.fallback.batch_norm import channels_leading
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized, weighted


@np.errstate(all="ignore")
def batch_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    training: bool,
    channels_last: bool,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """By channel, where `x` had a part in its statistics in training only; `dx` may replace `dy`."""
    dy, x = channels_leading(dy, channels_last), channels_leading(x, channels_last)
    shape, rows = x.shape, (x.shape[0], x.shape[1] * x.shape[2])
    dy, x = dy.reshape(rows), x.reshape(rows)
    scale = None if weight is None else weight[:, np.newaxis]
    if training:
        xhat, factor = standardized(x, mean, rstd)
        gradient = input_gradient(dy, scale, xhat, factor)
    else:
        factor = parts(rstd[:, np.newaxis])
        xhat = parts(x).minus(parts(mean[:, np.newaxis])).times(factor)
        gradient = np.ldexp(*weighted(dy, scale).times(factor))
    parameter_gradients(dy, xhat, dweight, dbias)
    if dx is not None:
        channels_leading(dx, channels_last)[:] = gradient.reshape(shape)
