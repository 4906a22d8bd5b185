"""The scale and shift of SPADE, arrays that broadcast against `x`: checked, and in the form kernels take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts
from cnorm._layouts import ChannelForm
from cnorm._numbers import parts, row_sum

Array = NDArray[Any]
DType = np.dtype[Any]

NORMS = ("batch", "instance", "layer", "group")


def num_groups(norm: object, given: object, channels: int) -> int:
    """Return the number of groups of a sample, 0 for statistics over the batch, from the norm's name."""
    name = _arguments.choice("norm", norm, NORMS)
    if name == "group":
        return _arguments.groups(given, channels)
    if given is not None:
        raise ValueError(f"num_groups: expected None for norm={name!r}, got {given!r}")
    return {"batch": 0, "instance": channels, "layer": 1}[name]


def statistics_shape(x: Array, axis: int, norm: str, groups: int) -> tuple[int, ...]:
    """Shape of mean and rstd: those of the functions `batch_norm`, `instance_norm` ..."""
    if norm == "batch":
        return (x.shape[axis],)
    if norm == "layer":
        return (x.shape[0],) + (1,) * (x.ndim - 1)
    return (x.shape[0], groups)


def broadcast_shape(name: str, shape: tuple[int, ...], x: Array) -> tuple[int, ...]:
    """Check that an array of this shape can be broadcast to that of `x`, and lead it by ones."""
    padded = (1,) * (x.ndim - len(shape)) + shape
    if len(padded) != x.ndim or any(n not in (1, m) for n, m in zip(padded, x.shape, strict=True)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to that of x, {x.shape}, got shape {shape}"
        )
    return padded


def modulation(name: str, value: object, x: Array) -> Array:
    """Return gamma or beta with as many axes as `x`, of size 1 where they are broadcast."""
    array, _ = _arguments.floating(name, value)
    return array.reshape(broadcast_shape(name, array.shape, x))


def has_all(array: Array, x: Array) -> bool:
    """Whether there is a value for each element, rather than some that are broadcast."""
    return array.shape == x.shape


def spread(array: Array, x: Array, form: ChannelForm) -> Array:
    """View of `array` in the form of `x`: if broadcast along some of the spatial axes, then along none."""
    view, target = form.view(array), form.view(x)
    inside = slice(1, -1) if form.channels_last else slice(2, None)
    if all(n == 1 for n in view.shape[inside]):
        return view
    shape = [*view.shape]
    shape[inside] = target.shape[inside]
    return np.broadcast_to(view, shape)


def compact(array: Array, x: Array, form: ChannelForm, dtype: DType) -> Array:
    """Return `array` as a ready 3-D array in the form of `x`, of size 1 where it is broadcast."""
    view = spread(array, x, form)
    return _layouts.compact(view, dtype).reshape(form.shape(view))


def place(form: ChannelForm, samples: slice, channels: slice, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the part that belongs to a tile is in a `compact` array of this shape."""
    batch = samples if shape[0] > 1 else slice(None)
    some = channels if shape[2 if form.channels_last else 1] > 1 else slice(None)
    return (batch, slice(None), some) if form.channels_last else (batch, some, slice(None))


class Modulations:
    """Gamma and beta, tile by tile: those with a value for each element are cut as `x` is.

    Parameters
    ----------
    arrays : tuple of array
        As `modulation` returned them.
    form : ChannelForm
        In which tiles are cut.
    dtype : dtype
        The one computed in.
    """

    def __init__(self, arrays: tuple[Array, ...], x: Array, form: ChannelForm, dtype: DType) -> None:
        self.form = form
        self.whole = tuple(array for array in arrays if has_all(array, x))
        self.compact = [None if has_all(array, x) else compact(array, x, form, dtype) for array in arrays]

    def parts(self, tiles: tuple[Array, ...], samples: slice, channels: slice) -> tuple[Array, ...]:
        """Return the arrays of a tile, given those of `whole`."""
        given = iter(tiles)
        return tuple(
            next(given)
            if array is None
            else np.ascontiguousarray(array[place(self.form, samples, channels, array.shape)])
            for array in self.compact
        )


def per_channel(array: Array, x: Array, axis: int, norm: str) -> bool:
    """Whether there is one value for many elements: a channel's, or that of a sample with its own groups.

    Not where there is only one position: then the bits of a sample would depend on whether it is alone.
    """
    many = math.prod(n for a, n in enumerate(x.shape) if a not in (0, axis)) > 1
    others = (n for a, n in enumerate(array.shape) if a != axis and (a != 0 or norm == "batch"))
    return many and array.shape[axis] == x.shape[axis] and all(n == 1 for n in others)


def weights(gamma: Array, offset: float, dtype: DType) -> Array:
    """Return ``offset + gamma`` in the dtype computed in, flattened."""
    with np.errstate(all="ignore"):
        return np.asarray(_layouts.compact(gamma, dtype) + dtype.type(offset))


def broadcast_sum(values: Array, shape: tuple[int, ...]) -> Array:
    """Sum `values` in float64 over the axes along which `shape` is 1."""
    axes = range(values.ndim)
    summed = tuple(a for a in axes if shape[a] == 1 and values.shape[a] != 1)
    if values.dtype.itemsize < 8 or not summed or values.size == 0:
        return np.asarray(values.sum(axis=summed, dtype=np.float64, keepdims=True))
    # Of float64 values all digits count: rows are summed as the NumPy backend does, some at a time.
    kept = tuple(a for a in axes if a not in summed)
    moved = values.transpose(kept + summed)
    inner = math.prod(values.shape[a] for a in summed)
    total = np.empty(math.prod(moved.shape[: len(kept)]))
    for index, some in _layouts.blocks(moved.shape[: len(kept)], _layouts.TILE_BYTES // (8 * inner)):
        rows, exponent = parts(moved[index].reshape(-1, inner)).by_row()
        total[some] = np.ldexp(row_sum(np.ascontiguousarray(rows)), exponent)[:, 0]
    return total.reshape(shape)
