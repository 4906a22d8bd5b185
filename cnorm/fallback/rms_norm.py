"""RMS norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import affine, deviation, row_mean, scaled


@np.errstate(all="ignore")
def rms_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    weight_offset: float,
    y: Array,
    rstd: Array | None,
) -> None:
    """Divide each row of `x` (rows, cols) by its root mean square, then scale and shift by column."""
    values, k = scaled(x, eps)
    root = deviation(row_mean(values * values), eps, k)
    factor = None if weight is None else weight + weight.dtype.type(weight_offset)
    y[:] = affine(values / root, factor, bias)
    if rstd is not None:
        rstd[:] = np.ldexp(1 / root, -k)[:, 0]
