"""Convolution along time, by one matrix product."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def convolve(x: Array, weight: Array, stride: int = 1) -> Array:
    """Convolve (..., time, in) with (out, in, width) along time."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2], axis=-2)[..., ::stride, :, :]
    unfolded = np.swapaxes(windows, -1, -2)
    unfolded = unfolded.reshape(*unfolded.shape[:-2], -1)  # (..., time, width * in)
    return unfolded @ weight.transpose(2, 1, 0).reshape(-1, len(weight))
