"""Batch norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array
from cnorm.fallback.moments import affine, standardize, update_running


def channels_leading(x: Array, channels_last: bool) -> Array:
    """View of `x` as (channels, batch, spatial)."""
    return x.transpose((2, 0, 1) if channels_last else (1, 0, 2))


def by_channel(values: Array) -> Array:
    """`values` (channels,) in float64 as they broadcast against (channels, batch, spatial)."""
    return values.astype(np.float64)[:, np.newaxis, np.newaxis]


def write(y: Array, xhat: Array, weight: Array | None, bias: Array | None) -> None:
    """Scale and shift each channel of `xhat` (channels, batch, spatial) into `y`."""
    y[:] = affine(
        xhat,
        None if weight is None else by_channel(weight),
        None if bias is None else by_channel(bias),
    )


@np.errstate(all="ignore")
def batch_norm_training(
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
    unbiased: bool,
) -> None:
    """Standardise each channel over the batch and all positions, then scale and shift it."""
    x, y = channels_leading(x, channels_last), channels_leading(y, channels_last)
    count = x.shape[1] * x.shape[2]
    xhat, means, rstds, variances = standardize(x.reshape(x.shape[0], count), eps)
    write(y, xhat.reshape(x.shape), weight, bias)
    if mean is not None:
        mean[:] = means[:, 0]
    if rstd is not None:
        rstd[:] = rstds[:, 0]
    if x.size:
        if unbiased and count > 1:
            variances = variances * (count / (count - 1))
        update_running(running_mean, means[:, 0], momentum)
        update_running(running_var, variances[:, 0], momentum)


def inference_std(var: Array, eps: float) -> Array:
    """``sqrt(var + eps)``, infinite instead of 0: what it divides is then 0."""
    # Scaled by an even power of two, as in moments.py, lest var + eps overflow.
    var = var.astype(np.float64)
    k = np.frexp(np.where(np.isfinite(var), np.maximum(var, eps), 1.0))[1] // 2
    std: Array = np.ldexp(np.sqrt(np.ldexp(var, -2 * k) + np.ldexp(eps, -2 * k)), k)
    std[std == 0] = np.inf
    return std


@np.errstate(all="ignore")
def batch_norm_inference(
    x: Array,
    running_mean: Array,
    running_var: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    channels_last: bool,
    y: Array,
) -> None:
    """Standardise each channel by the running statistics, then scale and shift it."""
    x, y = channels_leading(x, channels_last), channels_leading(y, channels_last)
    std = inference_std(running_var, eps)
    # Halves, lest the difference overflow.
    d = x.astype(np.float64) / 2 - by_channel(running_mean) / 2
    # As fractions and exponents, so that nothing but the result can leave the range.
    fraction, exponent = np.frexp(1.0 if weight is None else weight.astype(np.float64))
    divisor, divided = np.frexp(std)
    d, shift = np.frexp(d)
    scaled = d * by_channel(fraction / divisor)
    write(y, np.ldexp(scaled, shift + (exponent - divided)[:, np.newaxis, np.newaxis] + 1), None, bias)
