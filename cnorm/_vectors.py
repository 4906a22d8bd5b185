"""Vectors along one axis of an array, as the contiguous arrays that kernels take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _layouts

Array = NDArray[Any]
DType = np.dtype[Any]


def three_axes(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return the sizes before `axis`, of it and after it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _memory_order(x: Array) -> list[int]:
    """Return the axes of `x` from the outermost in memory to the innermost."""
    if x.flags.c_contiguous:
        return list(range(x.ndim))
    return sorted(range(x.ndim), key=lambda axis: abs(x.strides[axis]), reverse=True)


def run_vectors(
    inputs: tuple[Array, ...], y: Array, axis: int, dtype: DType, kernel: Callable[..., None]
) -> None:
    """Call ``kernel(*inputs, y)`` on (outer, length, inner) arrays, where the middle axis is `axis`.

    All arrays have one shape. The calls together cover all vectors. Arrays with their axes in one order in
    memory and no gaps go to the kernel as they are, others by vectors, gathered into rows.
    """
    order = _memory_order(inputs[-1])
    views = [array.transpose(order) for array in (*inputs, y)]
    if _layouts.takes_whole(dtype, *views):
        shape = three_axes(views[0].shape, order.index(axis))
        kernel(*(view.reshape(shape) for view in views))
        return

    def rows_kernel(*arrays: Any) -> None:
        kernel(*(array[..., np.newaxis] for array in arrays[:-1]))

    moved = [np.moveaxis(array, axis, -1) for array in (*inputs, y)]
    _layouts.run_rows(tuple(moved[:-1]), moved[-1], 1, dtype, rows_kernel)
