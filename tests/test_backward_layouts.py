"""Gradients in every memory layout of x and dy: right, nothing else changed, dx in the memory order of x."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
from backward_layouts import (
    OFFSET,
    arranged_case,
    arrays_of,
    assert_same_bits,
    bytes_behind,
    check,
    each_backward,
    each_channel_backward,
    offset_case,
)
from gradients import BACKWARDS, EVERYTHING, Backward, upstream
from norms import GROUPS, Parameters


@pytest.mark.parametrize(
    ("backward", "layout"),
    [
        pytest.param(backward, layout, id=f"{backward.name}-{name}")
        for backward in BACKWARDS
        for name, layout in layouts.of(backward.norm.channels, backward.norm.op == "batch_norm").items()
    ],
)
def test_every_layout(backward: Backward, layout: layouts.Layout, dtype: Any) -> None:
    for rows, elements in ((15, 2), (15, 9), (35, 255), (15, 2003)):
        check(backward, offset_case(backward, rows, elements, dtype, layout))


def _channels_first_view(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Channels-first memory seen as (batch, spatial, channels), for axis=-1."""
    return np.moveaxis(np.ascontiguousarray(x), 1, -1), -1


def _pairs() -> list[Any]:
    first = layouts.ANY | {"channels last view": layouts.channels_last_view}
    last = {"channels last": layouts.channels_last, "channels first view": _channels_first_view}
    some = ("contiguous", "steps", "columns", "channels last view")
    pairs = [(first[x], first[dy], f"{dy} for {x}") for x in some for dy in first if dy != x]
    pairs += [(last[x], last[dy], f"{dy} for {x}") for x in last for dy in last if dy != x]
    return [
        pytest.param(backward, x, dy, id=f"{backward.name}-{name}")
        for backward in BACKWARDS
        for x, dy, name in pairs
        if backward.norm.channels or "channels" not in name
    ]


@pytest.mark.parametrize(("backward", "x_layout", "dy_layout"), _pairs())
def test_dy_in_another_layout_than_x(
    backward: Backward, x_layout: layouts.Layout, dy_layout: layouts.Layout
) -> None:
    """The same dx to the bit as for dy that lies as x does."""
    for rows, elements in ((15, 9), (35, 255)):
        case = offset_case(backward, rows, elements, np.float32, x_layout, dy_layout)
        gradients = check(backward, case)
        alike = backward.of(offset_case(backward, rows, elements, np.float32, x_layout))
        np.testing.assert_array_equal(gradients.x, alike.x)
        assert gradients.x.strides == alike.x.strides


@each_backward
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ">f8", ">f4"])
def test_dy_of_another_type_than_x(backward: Backward, kind: Any, dtype: Any) -> None:
    """It is used in the type computed in."""
    for layout in (layouts.contiguous, layouts.steps):
        case = offset_case(backward, 15, 36, dtype, layout)
        dy = case.dy.astype(kind)
        converted = backward.of(replace(case, dy=layout(dy.astype(dtype))[0]))
        gradients = check(backward, replace(case, dy=layout(dy)[0]))
        assert_same_bits(gradients, converted)


@each_backward
@pytest.mark.parametrize(
    "layout", [layouts.columns, layouts.steps, layouts.swapped], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("rows", "elements"), [(60, 9001), (GROUPS, 270_001)])
def test_more_than_a_tile(backward: Backward, layout: layouts.Layout, rows: int, elements: int) -> None:
    """Strided data are gathered by tiles of about a mebibyte, whose parts of parameter gradients add up."""
    case = offset_case(backward, rows, elements, np.float32, layout)
    gradients = check(backward, case)
    for need in EVERYTHING:
        alone = backward.of(case, need=need)
        np.testing.assert_array_equal(getattr(alone, need), getattr(gradients, need), err_msg=need)


@each_backward
def test_every_transpose(backward: Backward, dtype: Any) -> None:
    base = OFFSET(35, 36, dtype).reshape(7, 5, 4, 9)
    dys = upstream(base)
    for order in permutations(range(4)):
        x = base.transpose(order)
        dy = np.ascontiguousarray(dys.transpose(order))
        for axis in range(1, 4) if backward.norm.channels else (1,):
            if backward.norm.op != "group_norm" or x.shape[axis] == GROUPS:
                check(backward, arranged_case(backward, dys.transpose(order), x, axis))
                check(backward, arranged_case(backward, dy, x, axis))


@each_backward
def test_zero_strides(backward: Backward, dtype: Any) -> None:
    """Broadcast arrays: equal samples, equal channels, equal elements; and the gradient of a mean."""
    base = OFFSET(1, 45, dtype).reshape(3, 5, 3)
    for shape, index in (
        ((7, 5, 3), np.s_[:1]),
        ((3, 5, 3), np.s_[:, :1]),
        ((3, 5, 9), np.s_[:, :, :1]),
        ((4, 5, 9), np.s_[:1, :1, :1]),
    ):
        x = np.broadcast_to(base[index], shape)
        dys = upstream(base)
        for dy in (np.broadcast_to(dys[index], shape), np.broadcast_to(dtype.type(0.3), shape)):
            for case in (
                arranged_case(backward, dy, x),
                arranged_case(backward, dy, x.copy()),
                arranged_case(backward, dy.copy(), x),
            ):
                dx = check(backward, case).x
                assert dx.flags.writeable
                assert 0 not in dx.strides


@each_backward
def test_size_one_axes_with_odd_strides(backward: Backward, dtype: Any) -> None:
    """The stride of an axis of one element means nothing: the same bits, in a contiguous result."""
    for shape in ((1, 5, 9), (3, 5, 1), (1, 5, 1, 9), (3, 5, 1, 9), (3, 5, 9, 1, 1)):
        x = OFFSET(1, int(np.prod(shape)), dtype).reshape(shape)
        case = arranged_case(backward, upstream(x), x)
        wanted = backward.of(case)
        for odd in (8, 0, -48, 1 << 40):
            strides = tuple(odd if n == 1 else s for n, s in zip(shape, x.strides, strict=True))
            dy, view = (np.lib.stride_tricks.as_strided(a, shape, strides) for a in (case.dy, x))
            gradients = backward.of(replace(case, dy=dy, x=view))
            assert_same_bits(gradients, wanted, str(odd))
            assert gradients.x.flags.c_contiguous


# The memory order of dx -------------------------------------------------------------------------------------


@each_channel_backward
def test_dx_keeps_channels_last(backward: Backward, dtype: Any) -> None:
    x = OFFSET(15, 36, dtype).reshape(3, 5, 4, 9)
    dy = upstream(x)
    last, axis = layouts.channels_last(x)
    gradients = check(backward, arranged_case(backward, layouts.channels_last(dy)[0], last, axis))
    assert gradients.x.flags.c_contiguous
    view, axis = layouts.channels_last_view(x)
    viewed = check(backward, arranged_case(backward, layouts.channels_last_view(dy)[0], view, axis))
    assert viewed.x.strides == view.strides
    np.testing.assert_array_equal(np.moveaxis(viewed.x, 1, -1), gradients.x, err_msg="one kernel takes both")
    assert_same_bits(viewed._replace(x=None), gradients._replace(x=None))
    assert check(backward, arranged_case(backward, dy, view)).x.strides == view.strides


@each_backward
def test_dx_of_a_contiguous_input_is_contiguous(backward: Backward, dtype: Any) -> None:
    for layout in (
        layouts.contiguous,
        layouts.steps,
        layouts.padded_rows,
        layouts.unaligned,
        layouts.read_only,
    ):
        for dy_layout in (layout, layouts.columns):
            dx = backward.of(offset_case(backward, 15, 36, dtype, layout, dy_layout)).x
            assert dx.flags.c_contiguous
            assert dx.flags.aligned
            assert dx.flags.writeable


@each_backward
def test_dx_keeps_fortran_order(backward: Backward, dtype: Any) -> None:
    case = offset_case(backward, 15, 36, dtype, layouts.columns, layouts.contiguous)
    assert backward.of(case).x.flags.f_contiguous


# Empty arrays -----------------------------------------------------------------------------------------------


@each_backward
def test_zero_size(backward: Backward, dtype: Any) -> None:
    norm = backward.norm
    for shape in ((0, 5, 3), (3, 5, 0), (0, 5, 0), (0, 5, 3, 2), (2, 5, 0, 3), (0, 5)):
        for axis in range(1, len(shape)) if norm.channels else (1,):
            x = np.moveaxis(np.empty(shape, dtype), 1, axis)
            case = arranged_case(backward, np.empty(x.shape, dtype), x, axis)
            gradients = backward.of(case)
            assert gradients.x.shape == x.shape
            assert gradients.x.dtype == dtype
            for gradient in gradients[1:]:
                assert gradient.shape == case.p.weight.shape
                assert gradient.dtype == dtype
                assert not gradient.any()
            assert backward.of(case, out=case.dy).x is case.dy


def test_zero_size_normalized_axes(dtype: Any) -> None:
    x, weight, statistic = np.empty((3, 4, 0), dtype), np.empty((4, 0), dtype), np.zeros((3, 1, 1), dtype)
    for gradients in (
        cnorm.layer_norm_backward(x, x, statistic, statistic, weight),
        cnorm.rms_norm_backward(x, x, statistic, weight),
    ):
        assert [gradient.shape for gradient in gradients] == [x.shape, weight.shape, weight.shape]


# Statistics and weight --------------------------------------------------------------------------------------


@each_backward
def test_statistics_and_weight_in_every_layout(backward: Backward, dtype: Any) -> None:
    case = offset_case(backward, 15, 9, dtype)
    wanted = backward.of(case)
    for name, layout in layouts.ANY.items():
        statistics = tuple(layout(statistic)[0] for statistic in case.statistics)
        weight = layout(case.p.weight)[0]  # type: ignore[arg-type]
        moved = replace(case, p=Parameters(weight), statistics=statistics)
        before = [bytes_behind(array) for array in arrays_of(moved)]
        assert_same_bits(backward.of(moved), wanted, name)
        assert [bytes_behind(array) for array in arrays_of(moved)] == before


@each_backward
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.longdouble])
def test_statistics_and_weight_of_any_floating_type(backward: Backward, kind: Any, dtype: Any) -> None:
    """They are used in the type computed in."""
    case = offset_case(backward, 15, 9, dtype)
    with np.errstate(over="ignore"):
        weight = case.p.weight.astype(kind)  # type: ignore[union-attr]
        statistics = tuple(statistic.astype(kind) for statistic in case.statistics)
    converted = replace(
        case, p=Parameters(weight.astype(dtype)), statistics=tuple(s.astype(dtype) for s in statistics)
    )
    assert_same_bits(
        backward.of(replace(case, p=Parameters(weight), statistics=statistics)), backward.of(converted)
    )


# Other sources of memory ------------------------------------------------------------------------------------


class _Interface:
    """An object that lends its memory through the array interface only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class _Subclass(np.ndarray):
    pass


def test_whatever_asarray_takes_without_copying() -> None:
    x = OFFSET(15, 9, np.float64)
    dy = upstream(x)
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    wanted = cnorm.layer_norm_backward(dy, x, mean, rstd, need=EVERYTHING)
    sources: dict[str, Callable[[np.ndarray], Any]] = {
        "memoryview": memoryview,
        "array interface": _Interface,
        "subclass": lambda array: array.view(_Subclass),
    }
    for name, source in sources.items():
        arguments = [source(array) for array in (dy, x, mean, rstd)]
        gradients = cnorm.layer_norm_backward(*arguments, need=EVERYTHING)
        assert all(type(gradient) is np.ndarray for gradient in gradients)
        assert_same_bits(gradients, wanted, name)
    out = np.zeros_like(x).view(_Subclass)
    assert cnorm.layer_norm_backward(dy, x, mean, rstd, out=out).x is out
    np.testing.assert_array_equal(out, wanted.x)


@each_backward
def test_memory_mapped_files(backward: Backward, dtype: Any, tmp_path: Path) -> None:
    case = offset_case(backward, 35, 255, dtype)
    wanted = backward.of(case)
    paths = [tmp_path / name for name in ("dy.bin", "x.bin")]
    for path, array in zip(paths, (case.dy, case.x), strict=True):
        array.tofile(path)
    for mode in ("r", "c"):
        dy, x = (np.memmap(path, dtype, mode, shape=case.x.shape) for path in paths)  # type: ignore[call-overload]
        gradients = backward.of(replace(case, dy=dy, x=x))
        assert type(gradients.x) is np.ndarray
        assert_same_bits(gradients, wanted)
