"""Ways an array can lie in memory: functions from an array to an equal view and the channel axis in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Layout = Callable[[Array], tuple[Array, int]]


def contiguous(x: Array) -> tuple[Array, int]:
    return np.ascontiguousarray(x), 1


def channels_last(x: Array) -> tuple[Array, int]:
    """(batch, spatial, channels), contiguous, for axis=-1."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1


def channels_last_view(x: Array) -> tuple[Array, int]:
    """Channels-last memory seen as (batch, channels, spatial), for axis=1."""
    return np.moveaxis(channels_last(x)[0], -1, 1), 1


def flattened_batch(x: Array) -> tuple[Array, int]:
    """(batch * spatial, channels): the 2-D batch norm."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(-1, x.shape[1]), 1


def columns(x: Array) -> tuple[Array, int]:
    """Fortran order: the first axis is innermost."""
    return x.copy(order="F"), 1


def steps(x: Array) -> tuple[Array, int]:
    """Every second element of the last axis of something larger, which is full of NaN elsewhere."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), np.nan, x.dtype)
    wide[..., 1::2] = x
    return wide[..., 1::2], 1


def padded_rows(x: Array) -> tuple[Array, int]:
    """Rows with a gap of NaN behind each, as a slice of a wider array has."""
    wide = np.full((*x.shape[:-1], x.shape[-1] + 3), np.nan, x.dtype)
    wide[..., : x.shape[-1]] = x
    return wide[..., : x.shape[-1]], 1


def reversed_last(x: Array) -> tuple[Array, int]:
    return np.ascontiguousarray(x[..., ::-1])[..., ::-1], 1


def reversed_all(x: Array) -> tuple[Array, int]:
    flip = tuple(slice(None, None, -1) for _ in x.shape)
    return np.ascontiguousarray(x[flip])[flip], 1


def unaligned(x: Array) -> tuple[Array, int]:
    """Contiguous, but one byte off any alignment."""
    raw = np.empty(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype) if x.size else np.empty(0, x.dtype)
    view = view.reshape(x.shape)
    view[...] = x
    return view, 1


def packed_record(x: Array) -> tuple[Array, int]:
    """A field of packed records: a stride that is no multiple of the item size, and no alignment."""
    records = np.zeros(x.shape, np.dtype([("tag", np.uint8), ("value", x.dtype), ("rest", np.uint16)]))
    records["value"] = x
    return records["value"], 1


def swapped(x: Array) -> tuple[Array, int]:
    """The other byte order."""
    return x.astype(x.dtype.newbyteorder("S")), 1


def read_only(x: Array) -> tuple[Array, int]:
    view = x.copy()
    view.flags.writeable = False
    return view, 1


#: For every op.
ANY = {
    "contiguous": contiguous,
    "columns": columns,
    "steps": steps,
    "padded rows": padded_rows,
    "last axis reversed": reversed_last,
    "all axes reversed": reversed_all,
    "unaligned": unaligned,
    "packed record": packed_record,
    "other byte order": swapped,
    "read-only": read_only,
}

#: For ops with a channel axis.
CHANNELS = {"channels last": channels_last, "channels last view": channels_last_view}


def of(channels: bool, batch: bool) -> dict[str, Layout]:
    """The layouts an op can be given, with a channel axis or not, with statistics over the batch or not."""
    result: dict[str, Layout] = dict(ANY)
    if channels:
        result |= CHANNELS
    if batch:
        result["(N, C)"] = flattened_batch
    return result
