"""What layers check beyond the arguments of the functions they call, in the wording of `_arguments`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cnorm import _arguments

Array = NDArray[Any]
DType = np.dtype[Any]


def size(name: str, value: Any) -> int:
    """Return a number of channels."""
    result = _arguments.integer(name, value)
    if result < 0:
        raise ValueError(f"{name}: expected an integer >= 0, got {result}")
    return result


def row_shape(normalized_shape: Any) -> tuple[int, ...]:
    """Return the shape of a row, given as a tuple, or as an integer if it is one axis."""
    name = "normalized_shape"
    if not isinstance(normalized_shape, (tuple, list)):
        return (size(name, normalized_shape),)
    if not normalized_shape:
        raise ValueError(f"{name}: expected at least 1 axis, got {normalized_shape}")
    return tuple(size(name, n) for n in normalized_shape)


def dtypes(dtype: DTypeLike | None) -> tuple[DType, DType]:
    """Return the dtype of parameters, by default float32, and the one in which they are computed with."""
    empty, compute = _arguments.floating("dtype", np.empty(0, np.float32 if dtype is None else dtype))
    return empty.dtype, compute


def ranks(x: Array, allowed: tuple[int, ...]) -> None:
    """Check the number of axes of `x`."""
    if x.ndim not in allowed:
        expected = " or ".join(str(n) for n in allowed)
        raise ValueError(f"x: expected {expected} axes, got shape {x.shape}")


def channels(x: Array, axis: int, count: int, first: int) -> None:
    """Check the number of channels of `x`, where axes before `first` cannot be theirs."""
    axis = _arguments.channel_axis(x, axis, first)
    if x.shape[axis] != count:
        raise ValueError(f"x: expected {count} channels on axis {axis}, got shape {x.shape}")
