"""Where dx goes: into an array that is given, in any layout, or into dy; and every mistake in `out`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import layouts
from backward_calls import SHAPE, STATISTICS, each_op, expect_error, run, valid
from backward_layouts import (
    bytes_behind,
    contiguous_copy,
    each_backward,
    offset_case,
)
from gradients import BOUND, Backward, worst_units
from norms import GROUPS

# Outputs ----------------------------------------------------------------------------------------------------

OUTPUTS = {
    name: layout for name, layout in layouts.ANY.items() if name not in ("read-only", "other byte order")
}
SIZES = ((15, 9), (35, 255), (GROUPS, 30_003))


@each_backward
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_in_every_layout(backward: Backward, name: str, dtype: Any) -> None:
    """dx goes between the gaps of the output, and the gaps stay as they are."""
    for rows, elements in SIZES:
        case = offset_case(backward, rows, elements, dtype)
        out, _ = OUTPUTS[name](np.zeros_like(case.x))
        out[...] = 0
        empty = bytes_behind(out)
        gradients = backward.of(case, out=out)
        assert gradients.x is out
        np.testing.assert_array_equal(out, backward.of(case).x)
        out[...] = 0
        assert bytes_behind(out) == empty, "the gaps of the output"


@each_backward
@pytest.mark.parametrize("name", OUTPUTS)
def test_in_place_of_dy_in_every_layout(backward: Backward, name: str, dtype: Any) -> None:
    for rows, elements in SIZES:
        for layout in (OUTPUTS[name], layouts.contiguous):
            case = offset_case(backward, rows, elements, dtype, layout, OUTPUTS[name])
            wanted = backward.of(case)
            gradients = backward.of(case, out=case.dy)
            assert gradients.x is case.dy
            np.testing.assert_array_equal(gradients.x, wanted.x)
            exact = backward.exact(offset_case(backward, rows, elements, dtype))
            assert max(worst_units(gradients, exact)) <= BOUND


@each_backward
def test_an_output_of_the_other_byte_order_is_another_type(backward: Backward, dtype: Any) -> None:
    """out has x's dtype, byte order included, whatever that of dy is."""
    case = offset_case(backward, 15, 9, dtype, layouts.swapped, layouts.contiguous)
    out = np.zeros_like(case.x)
    assert backward.of(case, out=out).x is out
    np.testing.assert_array_equal(out, backward.of(replace(case, x=contiguous_copy(case.x))).x)
    with pytest.raises(TypeError, match="out"):
        backward.of(case, out=case.dy)


# Mistakes -------------------------------------------------------------------------------------------------


@each_op
@pytest.mark.parametrize("need", ["weight", ("weight", "bias"), ()])
def test_out_where_no_gradient_of_x_is_needed(op: str, need: Any) -> None:
    expect_error(op, ValueError, "out", {"need": need})


@each_op
def test_out_of_another_shape(op: str) -> None:
    for shape in ((2, 6, 4), (2, 5, 6), (60,), (1, 2, 6, 5), (2, 6, 5, 1), (0,), ()):
        expect_error(op, ValueError, "out", {"out": np.zeros(shape, np.float32)})


@each_op
@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32, np.complex64, ">f4", object])
def test_out_of_another_type(op: str, kind: Any) -> None:
    """The type of x counts, not that of dy."""
    expect_error(op, TypeError, "out", {"out": np.zeros(SHAPE).astype(kind)})
    dy = np.ones(SHAPE)
    expect_error(op, TypeError, "out", {"dy": dy, "out": dy})


@each_op
@pytest.mark.parametrize(
    "out", [[], 1.0, "out", memoryview(np.zeros(SHAPE, np.float32))], ids=lambda v: type(v).__name__
)
def test_out_that_is_no_array(op: str, out: Any) -> None:
    expect_error(op, TypeError, "out", {"out": out})


@each_op
def test_out_that_cannot_be_written(op: str) -> None:
    read_only = np.zeros(SHAPE, np.float32)
    read_only.flags.writeable = False
    expect_error(op, ValueError, "out", {"out": read_only})
    expect_error(op, ValueError, "out", {"dy": read_only, "out": read_only})
    stacked = np.lib.stride_tricks.as_strided(np.zeros(30, np.float32), SHAPE, (0, 20, 4))
    expect_error(op, ValueError, "out", {"out": stacked})
    expect_error(op, ValueError, "out", {"dy": stacked, "out": stacked})
    woven = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), SHAPE, (120, 16, 4))
    expect_error(op, ValueError, "out", {"out": woven})


@each_op
@pytest.mark.parametrize("name", ["dy", "x"])
def test_out_that_overlaps_in_part_or_in_another_order(op: str, name: str) -> None:
    memory = np.random.default_rng(1).standard_normal(400).astype(np.float32)
    value = memory[100:160].reshape(SHAPE)
    for shift in (1, -1, 30, -30, 59, -59):
        out = memory[100 + shift : 160 + shift].reshape(SHAPE)
        expect_error(op, ValueError, "out", {name: value, "out": out})
    expect_error(op, ValueError, "out", {name: value, "out": value[::-1]})
    expect_error(op, ValueError, "out", {name: value, "out": value[:, :, ::-1]})
    spread = memory[:120].reshape(2, 6, 10)
    expect_error(op, ValueError, "out", {name: spread[..., :5], "out": spread[..., 2:7]})


@each_op
def test_out_that_is_x(op: str) -> None:
    """Unlike in the forward functions: x is read after dx has begun to be written."""
    x = valid(op)["x"]
    expect_error(op, ValueError, "out", {"x": x, "out": x})
    expect_error(op, ValueError, "out", {"x": x, "dy": x, "out": x})


@each_op
def test_out_on_the_memory_of_dy_with_another_type(op: str) -> None:
    """Same address, same strides, and still no array that dx could replace element by element."""
    dy = np.ones(SHAPE)
    out = dy.view(np.float32)[..., ::2]
    assert out.strides == dy.strides
    expect_error(op, ValueError, "out", {"dy": dy, "out": out})


@each_op
def test_out_that_overlaps_a_statistic_or_the_weight(op: str) -> None:
    memory = np.ones(60, np.float32)
    for name in (*STATISTICS[op], "weight"):
        shape = valid(op)[name].shape
        piece = memory[: int(np.prod(shape))].reshape(shape)
        expect_error(op, ValueError, "out", {"out": memory.reshape(SHAPE), name: piece})


@each_op
def test_out_between_the_elements_of_dy_and_x_is_no_overlap(op: str) -> None:
    memory = np.random.default_rng(2).standard_normal((2, 6, 15)).astype(np.float32)
    dy, x, out = memory[..., ::3], memory[..., 1::3], memory[..., 2::3]
    wanted = run(op, valid(op) | {"dy": dy.copy(), "x": x.copy()})
    gradients = run(op, valid(op) | {"dy": dy, "x": x, "out": out})
    for value, right in zip(gradients, wanted, strict=True):
        np.testing.assert_array_equal(value, right)
