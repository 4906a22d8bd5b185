"""Gradients of instance norm in NumPy."""

from __future__ import annotations

from cnorm._numbers import Array
from cnorm.fallback.group_norm_backward import group_norm_backward


def instance_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    channels_last: bool,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
) -> None:
    """Group norm's gradients with one group per channel."""
    channels = x.shape[2 if channels_last else 1]
    group_norm_backward(dy, x, mean, rstd, weight, channels, channels_last, dx, dweight, dbias)
