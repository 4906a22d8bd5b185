"""Gradients of group norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized


@np.errstate(all="ignore")
def group_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    num_groups: int,
    channels_last: bool,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """By group for `dx`, by channel for the parameters; `dx` may replace `dy`."""
    if channels_last:
        dy, x, dx = dy.swapaxes(1, 2), x.swapaxes(1, 2), None if dx is None else dx.swapaxes(1, 2)
    batch, channels, spatial = x.shape
    rows = batch * num_groups, channels // num_groups * spatial
    xhat, factor = standardized(x.reshape(rows), mean, rstd)

    def by_channel(values: Array) -> Array:
        return values.reshape(x.shape).swapaxes(0, 1).reshape(channels, batch * spatial)

    parameter_gradients(by_channel(dy), xhat.arranged(by_channel), dweight, dbias)
    if dx is not None:
        scale = None if weight is None else np.broadcast_to(weight[:, np.newaxis], x.shape).reshape(rows)
        dx[:] = input_gradient(dy.reshape(rows), scale, xhat, factor).reshape(x.shape)
