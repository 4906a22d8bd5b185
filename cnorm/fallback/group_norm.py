"""Group norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import affine, standardize


def normalize_groups(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    num_groups: int,
    eps: float,
    channels_last: bool,
    y: Array,
) -> tuple[Array, Array, Array]:
    """Write `y`; return mean, ``1/sqrt(var + eps)`` and variance of each group (batch * num_groups,)."""
    if channels_last:
        x, y = x.swapaxes(1, 2), y.swapaxes(1, 2)
    batch, channels, spatial = x.shape
    rows = x.reshape(batch * num_groups, channels // num_groups * spatial)
    xhat, mean, rstd, var = standardize(rows, eps)
    by_channel = (slice(None), np.newaxis)
    y[:] = affine(
        xhat.reshape(x.shape),
        None if weight is None else weight[by_channel],
        None if bias is None else bias[by_channel],
    )
    return mean[:, 0], rstd[:, 0], var[:, 0]


@np.errstate(all="ignore")
def group_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    num_groups: int,
    eps: float,
    channels_last: bool,
    y: Array,
    mean: Array | None,
    rstd: Array | None,
) -> None:
    """Standardise groups of neighbouring channels in each sample, then scale and shift by channel."""
    group_means, group_rstds, _ = normalize_groups(x, weight, bias, num_groups, eps, channels_last, y)
    if mean is not None:
        mean[:] = group_means
    if rstd is not None:
        rstd[:] = group_rstds
