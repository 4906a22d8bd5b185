"""Gradients of adaptive layer norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.ada_layer_norm import weights
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized


@np.errstate(all="ignore")
def ada_layer_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    scale: Array,
    dx: Array | None,
    dscale: Array | None,
    dshift: Array | None,
) -> None:
    """By row of `x` (batch, rows, cols) for `dx`, by column of a sample for the parameters."""
    _, rows, cols = x.shape
    xhat, factor = standardized(x.reshape(-1, cols), mean, rstd)
    gradients = None
    if dx is not None:
        weight = np.repeat(weights(scale), rows, axis=0)
        gradients = input_gradient(dy.reshape(-1, cols), weight, xhat, factor)

    def by_column(values: Array) -> Array:
        return values.reshape(x.shape).transpose(0, 2, 1).reshape(-1, rows)

    parameter_gradients(
        by_column(dy),
        xhat.arranged(by_column),
        None if dscale is None else dscale.reshape(-1),
        None if dshift is None else dshift.reshape(-1),
    )
    if dx is not None and gradients is not None:
        dx[:] = gradients.reshape(x.shape)
