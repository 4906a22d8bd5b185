"""Calls whose outputs go past the caches, and large ones that do not, have the bits of small calls.

The kernels go through the former in another order: they store past the caches, and sum what comes next while
they write. All that a group's results depend on is the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cnorm

Array = np.ndarray
THREADS = (1, 3)
SIZES = {"large": 3 << 20, "past the caches": 17 << 20}
"""Bytes: more than a core's caches, and enough for `cn_past_caches` on any machine."""

pytestmark = pytest.mark.usefixtures("native")

each_kind = pytest.mark.parametrize("kind", ["noise", "cancelling"])
each_size = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)


def noise(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    x = (np.random.default_rng(seed).standard_normal(shape, np.float32) * 2 + seed).astype(dtype)
    x[..., 1] = x[..., 0]  # so that products with what cancels cancel too
    return x


def gradients(shape: tuple[int, ...], dtype: Any, kind: str) -> Array:
    """Noise; or runs of zeros but for two large elements that cancel, beside which a lane holds no others."""
    dy = noise(shape, dtype, 2)
    if kind == "cancelling":
        dy[..., 4:-1] = 0
        dy[..., 0], dy[..., 1] = 2.0**53, -(2.0**53)
    return dy


def samples(size: int, sample: tuple[int, ...], dtype: Any) -> int:
    return size // (dtype.itemsize * int(np.prod(sample))) + 1


def assert_parts(call: Callable[..., Any], arrays: list[Array], parts: list[tuple[slice, ...]]) -> None:
    """``call(*arrays)`` and its calls on parts of them agree in x, bit for bit, on any number of threads."""
    for threads in THREADS:
        with cnorm.num_threads(threads):
            whole = call(*arrays)
            for part in parts:
                few = call(*(np.ascontiguousarray(a[part]) for a in arrays))
                np.testing.assert_array_equal(few.x, whole.x[part])


def ends(count: int, step: int) -> list[tuple[slice, ...]]:
    """Parts of the first axis: the first ones, some in the middle, those up to the end."""
    return [(slice(at, at + step),) for at in (0, count // 2 // step * step, (count - 1) // step * step)]


@each_kind
@each_size
@pytest.mark.parametrize("cols", [96, 200, 773, 1537, 4099, 9000])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_rows(name: str, cols: int, size: int, kind: str, dtype: Any) -> None:
    n = samples(size, (cols,), dtype)
    x, dy, weight = noise((n, cols), dtype, 1), gradients((n, cols), dtype, kind), noise((cols,), dtype, 3)
    if name == "layer_norm":
        _, mean, rstd = cnorm.layer_norm(x, cols, return_stats=True)
        arrays = [dy, x, mean, rstd]
    else:
        arrays = [dy, x, cnorm.rms_norm(x, cols, return_stats=True)[1]]

    def call(*given: Array) -> Any:
        return getattr(cnorm, name + "_backward")(given[0], given[1], *given[2:], weight=weight)

    assert_parts(call, arrays, ends(n, 4))


@each_size
@pytest.mark.parametrize("cols", [96, 773, 4099])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_rows_written_to_any_place_in_a_line(name: str, cols: int, size: int, dtype: Any) -> None:
    n = samples(size, (cols,), dtype)
    x, dy, weight = noise((n, cols), dtype, 1), noise((n, cols), dtype, 2), noise((cols,), dtype, 3)
    statistics = getattr(cnorm, name)(x, cols, return_stats=True)[1:]
    whole = getattr(cnorm, name + "_backward")(dy, x, *statistics, weight)
    room = np.empty(n * cols + 64 // dtype.itemsize, dtype)
    for begin in (1, 3, 64 // dtype.itemsize - 1):
        out = room[begin : begin + n * cols].reshape(n, cols)
        room.fill(np.nan)
        given = getattr(cnorm, name + "_backward")(dy, x, *statistics, weight, out=out)
        for ours, wanted in zip(given, whole, strict=True):
            np.testing.assert_array_equal(ours, wanted)
        assert np.isnan(room[:begin]).all()
        assert np.isnan(room[begin + n * cols :]).all()


@each_kind
@each_size
@pytest.mark.parametrize("groups", [3, 6], ids=["group_norm", "instance_norm"])
@pytest.mark.parametrize("spatial", [7, 256, 513, 611, 4500])
def test_channels(spatial: int, groups: int, size: int, kind: str, dtype: Any) -> None:
    n = samples(size, (6, spatial), dtype)
    shape = (n, 6, spatial)
    x, dy, weight = noise(shape, dtype, 1), gradients(shape, dtype, kind), noise((6,), dtype, 3)
    _, mean, rstd = cnorm.group_norm(x, groups, return_stats=True)

    def call(*given: Array) -> Any:
        return cnorm.group_norm_backward(*given, groups, weight)

    assert_parts(call, [dy, x, mean, rstd], ends(n, 1))


@each_kind
@each_size
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("spatial", [49, 257, 300, 4500])
def test_batches(spatial: int, training: bool, size: int, kind: str, dtype: Any) -> None:
    n = samples(size, (40, spatial), dtype)
    shape = (n, 40, spatial)
    x, dy, weight = noise(shape, dtype, 1), gradients(shape, dtype, kind), noise((40,), dtype, 3)
    _, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)

    def call(dy: Array, part: slice = slice(None), out: Array | None = None) -> Any:
        few = np.ascontiguousarray(x[:, part])
        return cnorm.batch_norm_backward(
            dy, few, mean[part], rstd[part], weight[part], training=training, out=out
        )

    for threads in THREADS:
        with cnorm.num_threads(threads):
            whole, dx = call(dy), dy.copy()
            in_place = call(dx, out=dx)
            for ours, wanted in zip((dx, *in_place[1:]), whole, strict=True):
                np.testing.assert_array_equal(ours, wanted)
            for c in (0, 17, 39):
                part = slice(c, c + 1)
                few = call(dy[:, part].copy(), part)
                np.testing.assert_array_equal(few.x, whole.x[:, part])
                np.testing.assert_array_equal(few.weight, whole.weight[part])
                np.testing.assert_array_equal(few.bias, whole.bias[part])
