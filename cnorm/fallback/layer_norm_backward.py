"""Gradients of layer norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized


@np.errstate(all="ignore")
def layer_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """By row of `x` (rows, cols) for `dx`, by column for the parameters; `dx` may replace `dy`."""
    xhat, factor = standardized(x, mean, rstd)
    parameter_gradients(dy.T, xhat.arranged(np.transpose), dweight, dbias)
    if dx is not None:
        dx[:] = input_gradient(dy, weight, xhat, factor)
