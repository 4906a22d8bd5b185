"""SPADE in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, parts
from cnorm.fallback.batch_norm import inference_std
from cnorm.fallback.moments import standardize, update_running


def by_group(x: Array, num_groups: int, channels_last: bool) -> Array:
    """View of `x` with the groups first: (channels, batch, spatial) for batch norm, else by sample."""
    x = x.swapaxes(1, 2) if channels_last else x
    return x.swapaxes(0, 1) if num_groups == 0 else x


def group_rows(x: Array, num_groups: int) -> Array:
    """Reshape what `by_group` returned to rows, one a group."""
    return x.reshape(x.shape[0] if num_groups == 0 else x.shape[0] * num_groups, -1)


@np.errstate(all="ignore")
def spade(
    x: Array,
    gamma: Array,
    beta: Array,
    gamma_offset: float,
    num_groups: int,
    eps: float,
    channels_last: bool,
    y: Array,
    mean: Array | None,
    rstd: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    unbiased: bool,
) -> None:
    """Standardise each group, then scale and shift each element."""
    x, y, gamma, beta = (by_group(array, num_groups, channels_last) for array in (x, y, gamma, beta))
    rows = group_rows(x, num_groups)
    xhat, means, rstds, variances = standardize(rows, eps)
    y[:] = xhat.reshape(x.shape) * (gamma_offset + gamma.astype(np.float64)) + beta
    if mean is not None:
        mean[:] = means[:, 0]
    if rstd is not None:
        rstd[:] = rstds[:, 0]
    if running_mean is not None:
        count = rows.shape[1]
        factor = count / (count - 1) if unbiased else 1.0
        update_running(running_mean, means[:, 0], momentum)
        update_running(running_var, variances[:, 0] * factor, momentum)


@np.errstate(all="ignore")
def spade_inference(
    x: Array,
    running_mean: Array,
    running_var: Array,
    gamma: Array,
    beta: Array,
    gamma_offset: float,
    eps: float,
    channels_last: bool,
    y: Array,
) -> None:
    """Standardise each channel by the running statistics, then scale and shift each element."""
    x, y, gamma, beta = (by_group(array, 0, channels_last) for array in (x, y, gamma, beta))
    std = inference_std(running_var, eps)[:, np.newaxis, np.newaxis]
    mean = running_mean[:, np.newaxis, np.newaxis]
    # As fractions and exponents, so that nothing but the result can leave the range.
    scale = parts(gamma_offset + gamma.astype(np.float64)).times(parts(1 / std))
    y[:] = np.ldexp(*parts(x).minus(parts(mean)).times(scale)) + beta
