"""Instance norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.group_norm import normalize_groups
from cnorm.fallback.moments import update_running


@np.errstate(all="ignore")
def instance_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    channels_last: bool,
    y: Array,
    mean: Array | None,
    rstd: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
) -> None:
    """Group norm with one group per channel; running statistics take the average over the batch."""
    batch, channels = x.shape[0], x.shape[2 if channels_last else 1]
    means, rstds, variances = normalize_groups(x, weight, bias, channels, eps, channels_last, y)
    if mean is not None:
        mean[:] = means
    if rstd is not None:
        rstd[:] = rstds
    if x.size:
        count = x.size // (batch * channels)
        unbiased = variances * (count / (count - 1)) if count > 1 else variances
        # Divided first: the sum over the batch may not overflow where the average does not.
        update_running(running_mean, (means.reshape(batch, channels) / batch).sum(axis=0), momentum)
        update_running(running_var, (unbiased.reshape(batch, channels) / batch).sum(axis=0), momentum)
