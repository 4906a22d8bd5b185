"""Adaptive layer norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import standardize


def weights(scale: Array) -> Array:
    """``1 + scale``, rounded to its dtype, as float64."""
    return (1 + scale).astype(np.float64)


@np.errstate(all="ignore")
def ada_layer_norm(
    x: Array,
    scale: Array,
    shift: Array,
    eps: float,
    y: Array,
    mean: Array | None,
    rstd: Array | None,
) -> None:
    """Standardise each row of `x` (batch, rows, cols), then scale and shift by column, alike in a sample."""
    xhat, row_means, row_rstds, _ = standardize(x.reshape(-1, x.shape[2]), eps)
    y[:] = xhat.reshape(x.shape) * weights(scale)[:, np.newaxis] + shift.astype(np.float64)[:, np.newaxis]
    if mean is not None:
        mean[:] = row_means[:, 0]
    if rstd is not None:
        rstd[:] = row_rstds[:, 0]
