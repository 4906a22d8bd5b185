"""From any memory layout to the contiguous arrays that kernels take, without copying the whole array.

What is contiguous already goes to a kernel as a view. Everything else (strides, byte order, unaligned
records, 16-bit types) is gathered a tile of about 1 MiB at a time, computed, and scattered where the output
needs it. A tile holds whole groups, so cutting changes no result; a group larger than a tile is a tile of
its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _backend

Array = NDArray[Any]
DType = np.dtype[Any]

TILE_BYTES = 1 << 20
CACHE_LINE = 64


def is_ready(array: Array, dtype: DType) -> bool:
    """Whether kernels of the compute dtype can work on the memory of `array` as it is."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype == dtype


def takes_whole(dtype: DType, *arrays: Array) -> bool:
    """Whether the backend may be given all of these arrays at once.

    The NumPy backend is not: its many temporaries of eight bytes an element should stay in the cache.
    """
    return _backend.native is not None and all(is_ready(array, dtype) for array in arrays)


def compact(array: Array, dtype: DType) -> Array:
    """Return the elements of `array` as a ready 1-D array of `dtype`: a view where possible, else a copy."""
    if is_ready(array, dtype):
        return array.reshape(-1)
    copy = np.empty(array.shape, dtype)
    convert(copy, array)
    return copy.reshape(-1)


def convert(target: Array, source: Array) -> None:
    """Copy with rounding to the type of `target`; what exceeds it becomes infinite, without a warning."""
    with np.errstate(all="ignore"):
        np.copyto(target, source, casting="unsafe")


def empty_like(x: Array) -> Array:
    """Allocate an output with the axes of `x` in the same order in memory, and no gaps."""
    if x.flags.c_contiguous:
        return _backend.empty(x.shape, x.dtype)
    shape, steps, axes = x.shape, [abs(stride) for stride in x.strides], range(x.ndim)
    order = sorted(axes, key=steps.__getitem__, reverse=True)
    repeats = any(steps[axis] == 0 and shape[axis] > 1 for axis in axes)
    if repeats or order == [*axes]:
        return _backend.empty(shape, x.dtype)
    out = _backend.empty(tuple(shape[axis] for axis in order), x.dtype)
    return out.transpose([order.index(axis) for axis in axes])


class Tiles:
    """Runs a kernel on views, with buffers of the compute dtype for those that are not ready."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.elements = TILE_BYTES // dtype.itemsize
        self.buffers: dict[int, Array] = {}

    def buffer(self, number: int, shape: tuple[int, ...]) -> Array:
        """Return the memory of that number, which the next tile overwrites."""
        size = math.prod(shape)
        if number not in self.buffers or self.buffers[number].size < size:
            self.buffers[number] = np.empty(size, self.dtype)
        return self.buffers[number][:size].reshape(shape)

    def run(
        self,
        inputs: tuple[Array, ...],
        y: Array | None,
        shape: tuple[int, ...],
        kernel: Callable[..., None],
        *place: slice,
    ) -> None:
        """Call ``kernel(*inputs, y, *place)`` on ready arrays of `shape` that stand for the given views."""
        target = y if y is None or is_ready(y, self.dtype) else self.buffer(0, y.shape)
        sources = []
        for number, view in enumerate(inputs):
            source = view
            if not is_ready(view, self.dtype):
                # Kernels may overwrite their first input with the output.
                shared = target if number == 0 else None
                source = self.buffer(number, view.shape) if shared is None else shared
                convert(source, view)
            sources.append(source.reshape(shape))
        kernel(*sources, None if target is None else target.reshape(shape), *place)
        if y is not None and target is not None and target is not y:
            convert(y, target)


def blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[tuple[int | slice, ...], slice]]:
    """Cut an index space in C order into blocks of at most `limit` elements, or one if that is less.

    Yields the index of each block, and its place in the flattened space.
    """
    axis, inner = len(shape), 1
    while axis > 0 and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield (), slice(0, inner)
        return
    step = max(1, limit // inner)
    for number, outer in enumerate(np.ndindex(shape[: axis - 1])):
        for start in range(0, shape[axis - 1], step):
            stop = min(start + step, shape[axis - 1])
            offset = number * shape[axis - 1]
            yield (*outer, slice(start, stop)), slice((offset + start) * inner, (offset + stop) * inner)


def run_rows(
    inputs: tuple[Array, ...], y: Array | None, axes: int, dtype: DType, kernel: Callable[..., None]
) -> None:
    """Call ``kernel(*inputs, y, rows)`` on (rows, cols) arrays, where the last `axes` axes are a row.

    All arrays have one shape; without an output, `y` is None. `rows` says which ones they are. The calls
    together cover all rows.
    """
    shape = inputs[0].shape
    lead, cols = shape[: len(shape) - axes], math.prod(shape[len(shape) - axes :])
    tiles = Tiles(dtype)
    whole = takes_whole(dtype, *inputs, *([] if y is None else [y]))
    rows_per_tile = math.prod(lead) if whole else tiles.elements // cols
    for index, rows in blocks(lead, rows_per_tile):
        views = tuple(view[index] for view in inputs)
        target = None if y is None else y[index]
        tiles.run(views, target, (rows.stop - rows.start, cols), kernel, rows)


class ChannelForm:
    """How an array is seen as (batch, channels, spatial) or (batch, spatial, channels).

    Parameters
    ----------
    order : tuple of int
        The axes of the array in the order batch, channels, spatial axes ... or batch, spatial axes ...,
        channels. If `pooled`, no batch axis is among them: the batch is 1, and what was the batch is part
        of spatial.
    """

    __slots__ = ("channels_last", "order", "pooled")

    def __init__(self, order: tuple[int, ...], channels_last: bool, pooled: bool = False) -> None:
        self.order = order
        self.channels_last = channels_last
        self.pooled = pooled

    def view(self, array: Array) -> Array:
        """`array` with its axes in this form's order, spatial axes apart."""
        moved = array.transpose(self.order)
        return moved[np.newaxis] if self.pooled else moved

    def shape(self, view: Array) -> tuple[int, int, int]:
        """Return the 3-D shape of a view, or of a part of one."""
        if self.channels_last:
            return view.shape[0], math.prod(view.shape[1:-1]), view.shape[-1]
        return view.shape[0], view.shape[1], math.prod(view.shape[2:])


@functools.cache
def _channel_forms(ndim: int, axis: int, pooled: bool) -> tuple[ChannelForm, ...]:
    """Channels first, channels last and, if `pooled`, channels outermost."""
    batch, *spatial = (a for a in range(ndim) if a != axis)
    first = ChannelForm((batch, axis, *spatial), False)
    last = ChannelForm((batch, *spatial, axis), True)
    outermost = ChannelForm((axis, batch, *spatial), False, pooled=True)
    return (first, last, outermost) if pooled else (first, last)


def channel_form(x: Array, axis: int, pooled: bool) -> ChannelForm:
    """Choose the form in which the memory of `x` is contiguous, if there is one.

    Parameters
    ----------
    axis : int
        The channel axis. The first of the others is the batch axis.
    pooled : bool
        Whether the samples of a batch share their statistics, as in batch norm, or have none. Then the
        batch axis may stand among the spatial ones.
    """
    first, last, *others = _channel_forms(x.ndim, axis, pooled)
    batch, *spatial = (a for a in range(x.ndim) if a != axis)
    flat = pooled and all(x.shape[a] == 1 for a in spatial)
    for form in (last, *others, first) if flat else (first, last, *others):
        if form.view(x).flags.c_contiguous:
            return form
    # Where samples have statistics of their own, their form may not depend on the batch they are in.
    inside = (batch, *spatial) if pooled else spatial
    strides = [abs(x.strides[a]) for a in inside if x.shape[a] > 1]
    innermost = 0 < abs(x.strides[axis]) < min(strides, default=0)
    return last if innermost else first


def run_channels(
    inputs: tuple[Array, ...],
    y: Array | None,
    form: ChannelForm,
    dtype: DType,
    kernel: Callable[..., None],
    together: Literal["elements", "samples", "channels"],
    unit: int = 1,
) -> None:
    """Call ``kernel(*inputs, y, samples, channels)`` on arrays of the form's 3-D shape.

    All arrays have one shape; without an output, `y` is None. The calls together cover everything.

    Parameters
    ----------
    together : {"elements", "samples", "channels"}
        What a tile must not cut: nothing; the groups of `unit` neighbouring channels in each sample; or each
        channel over the whole batch. With channels last, the bits of a group depend on the number of channels
        beside it. So samples stay whole there, and so does a batch, unless the output is not ready.
    """
    inputs, y = tuple(form.view(array) for array in inputs), None if y is None else form.view(y)
    x = inputs[-1]
    batch, channels = x.shape[0], x.shape[-1 if form.channels_last else 1]
    spatial = x.size // (batch * channels)
    tiles = Tiles(dtype)
    if y is None:
        whole = takes_whole(dtype, *inputs)
    else:
        whole = takes_whole(dtype, y) and (together == "channels" or takes_whole(dtype, *inputs))
    samples_per_tile, channels_per_tile = batch, channels
    if not whole:
        if together != "channels":
            samples_per_tile = max(1, tiles.elements // (channels * spatial))
        if not (together == "samples" and form.channels_last):
            units = tiles.elements // (samples_per_tile * spatial * unit)
            if form.channels_last:  # no cache line is fetched twice
                units = max(units, math.ceil(CACHE_LINE / (x.itemsize * unit)))
            channels_per_tile = min(channels, max(1, units) * unit)
    for n in range(0, batch, samples_per_tile):
        samples = slice(n, min(n + samples_per_tile, batch))
        for c in range(0, channels, channels_per_tile):
            some = slice(c, min(c + channels_per_tile, channels))
            index = (samples, ..., some) if form.channels_last else (samples, some)
            views = tuple(view[index] for view in inputs)
            target = None if y is None else y[index]
            tiles.run(views, target, form.shape(x[index]), kernel, samples, some)


@overload
def part(values: Array, index: slice | tuple[slice, ...]) -> Array: ...
@overload
def part(values: None, index: slice | tuple[slice, ...]) -> None: ...
@overload
def part(values: Array | None, index: slice | tuple[slice, ...]) -> Array | None: ...
def part(values: Array | None, index: slice | tuple[slice, ...]) -> Array | None:
    """Return the piece of parameters or statistics that belongs to a tile, 1-D and contiguous.

    It is a view if the piece is contiguous in `values`. None stays None.
    """
    return None if values is None else np.ascontiguousarray(values[index]).reshape(-1)


class Maps(NamedTuple):
    """Arrays of one shape with a channel axis, and the form in which they are taken: inputs and an output."""

    inputs: tuple[Array, ...]
    y: Array | None
    form: ChannelForm


def run_channel_pairs(first: Maps, second: Maps, dtype: DType, kernel: Callable[..., None]) -> None:
    """Call a kernel on arrays of two shapes that share samples and channels.

    The calls ``kernel(*first.inputs, first.y, *second.inputs, second.y, samples, channels)``, on arrays of
    the forms' 3-D shapes, together cover everything. As in `run_channels`, no channel of a sample is cut,
    and no sample with channels last. There are samples and channels.
    """
    seen = [m._replace(inputs=tuple(m.form.view(array) for array in m.inputs)) for m in (first, second)]
    seen = [m if m.y is None else m._replace(y=m.form.view(m.y)) for m in seen]
    arrays = [array for maps in seen for array in (*maps.inputs, maps.y) if array is not None]
    batch, channels = arrays[0].shape[0], arrays[0].shape[-1 if first.form.channels_last else 1]
    samples_per_tile, channels_per_tile = batch, channels
    if not takes_whole(dtype, *arrays):
        spatial = sum(maps.inputs[-1].size for maps in seen) // (batch * channels)
        elements = TILE_BYTES // dtype.itemsize
        samples_per_tile = max(1, elements // (channels * spatial))
        if not (first.form.channels_last or second.form.channels_last):
            channels_per_tile = min(channels, max(1, elements // (samples_per_tile * spatial)))
    tiles = Tiles(dtype), Tiles(dtype)

    def run(number: int, samples: slice, some: slice, *given: Array | None) -> None:
        if number == len(seen):
            kernel(*given, samples, some)
            return
        maps = seen[number]
        index = (samples, ..., some) if maps.form.channels_last else (samples, some)
        views, target = tuple(view[index] for view in maps.inputs), maps.y
        tiles[number].run(
            views,
            None if target is None else target[index],
            maps.form.shape(views[-1]),
            lambda *found: run(number + 1, samples, some, *given, *found),
        )

    for n in range(0, batch, samples_per_tile):
        for c in range(0, channels, channels_per_tile):
            samples = slice(n, min(n + samples_per_tile, batch))
            run(0, samples, slice(c, min(c + channels_per_tile, channels)))


def run_samples(
    inputs: tuple[Array, ...], y: Array | None, dtype: DType, kernel: Callable[..., None]
) -> None:
    """Call ``kernel(*inputs, y, samples, rows)`` on (samples, rows, cols) arrays, a row being the last axis.

    All arrays have one shape; without an output, `y` is None. The calls together cover everything: some whole
    samples, or where these are larger than a tile, some rows of one sample.
    """
    batch, *lead, cols = inputs[0].shape
    rows = math.prod(lead)
    whole = takes_whole(dtype, *inputs, *([] if y is None else [y]))
    if whole or rows * cols * dtype.itemsize <= TILE_BYTES:

        def of_samples(*given: Any) -> None:
            arrays = (None if a is None else a.reshape(-1, rows, cols) for a in given[:-1])
            kernel(*arrays, given[-1], slice(0, rows))

        run_rows(inputs, y, inputs[0].ndim - 1, dtype, of_samples)
        return
    for n in range(batch):

        def of_rows(*given: Any, sample: slice = slice(n, n + 1)) -> None:
            kernel(*(None if a is None else a[np.newaxis] for a in given[:-1]), sample, given[-1])

        run_rows(tuple(array[n] for array in inputs), None if y is None else y[n], 1, dtype, of_rows)
