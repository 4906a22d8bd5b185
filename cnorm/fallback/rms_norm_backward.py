"""Gradients of RMS norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized


@np.errstate(all="ignore")
def rms_norm_backward(
    dy: Array,
    x: Array,
    rstd: Array,
    weight: Array | None,
    weight_offset: float,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """By row of `x` (rows, cols) for `dx`, by column for the parameters; `dx` may replace `dy`."""
    xhat, factor = standardized(x, None, rstd)
    parameter_gradients(dy.T, xhat.arranged(np.transpose), dweight, dbias)
    if dx is not None:
        scale = None if weight is None else weight + weight.dtype.type(weight_offset)
        dx[:] = input_gradient(dy, scale, xhat, factor, about_mean=False)
