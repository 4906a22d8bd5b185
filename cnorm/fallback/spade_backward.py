"""Gradients of SPADE in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, parts
from cnorm.fallback.gradients import input_gradient, standardized, weighted
from cnorm.fallback.spade import by_group, group_rows


@np.errstate(all="ignore")
def spade_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    gamma: Array,
    gamma_offset: float,
    num_groups: int,
    training: bool,
    channels_last: bool,
    dx: Array | None,
    dgamma: Array | None,
    dbeta: Array | None,
) -> None:
    """By group, each element with a weight of its own; `dgamma` and `dbeta` are not summed yet."""
    weight = np.broadcast_to(gamma_offset + gamma.astype(np.float64), x.shape)
    dy, x, weight = (by_group(array, num_groups, channels_last) for array in (dy, x, weight))
    shape = x.shape
    dy, x, weight = (group_rows(array, num_groups) for array in (dy, x, weight))
    if training:
        xhat, factor = standardized(x, mean, rstd)
        gradient = input_gradient(dy, weight, xhat, factor)
    else:
        factor = parts(rstd[:, np.newaxis])
        xhat = parts(x).minus(parts(mean[:, np.newaxis])).times(factor)
        gradient = np.ldexp(*weighted(dy, weight).times(factor))
    scaled = np.ldexp(*parts(dy).times(xhat))
    for target, values in ((dgamma, scaled), (dbeta, dy), (dx, gradient)):
        if target is not None:
            by_group(target, num_groups, channels_last)[:] = values.reshape(shape)
