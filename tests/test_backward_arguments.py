"""Every mistake in a backward call: the error's class, a message that names the argument, nothing touched.

Those of ``out`` are in test_backward_out.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
from backward_calls import (
    CHANNEL_OPS,
    OPS,
    ROW_OPS,
    SHAPE,
    STATISTICS,
    STATISTICS_SHAPE,
    each_op,
    expect_error,
    run,
    valid,
)

#: Shapes of statistics that are wrong for every op.
WRONG_SHAPES = ((), (1,), (0,), (5,), (7,), (6, 1), (1, 6), (2, 1), (2, 3), (12,), (2, 6, 5), (1, 2, 6, 1))

#: Every op with each of its statistics.
EACH_STATISTIC = [(op, name) for op in OPS for name in STATISTICS[op]]

each_row_op = pytest.mark.parametrize("op", ROW_OPS)
each_channel_op = pytest.mark.parametrize("op", CHANNEL_OPS)
each_statistic = pytest.mark.parametrize(("op", "name"), EACH_STATISTIC)

NO_FLOATING_TYPE = [
    np.int32,
    np.int8,
    np.uint16,
    np.bool_,
    np.complex64,
    object,
    "U1",
    "M8[s]",
    np.longdouble,
]


@each_op
def test_the_valid_call_is_valid(op: str) -> None:
    call = valid(op)
    gradients = run(op, call)
    assert gradients.x is call["out"]
    assert all(gradient.any() for gradient in gradients)


# x and dy ---------------------------------------------------------------------------------------------------


@each_op
@pytest.mark.parametrize("name", ["x", "dy"])
@pytest.mark.parametrize("kind", NO_FLOATING_TYPE)
def test_no_supported_type(op: str, name: str, kind: Any) -> None:
    expect_error(op, TypeError, name, {name: np.ones(SHAPE).astype(kind), "out": None})


@each_op
@pytest.mark.parametrize("name", ["x", "dy"])
@pytest.mark.parametrize("value", [None, 1.5, [[1.0, 2.0]], "x", ...], ids=repr)
def test_no_array(op: str, name: str, value: Any) -> None:
    expect_error(op, TypeError, name, {name: value, "out": None})


@each_op
@pytest.mark.parametrize("name", ["x", "dy"])
def test_masked_arrays_are_refused_not_read_through(op: str, name: str) -> None:
    masked = np.ma.masked_less(valid(op)[name], 0)
    expect_error(op, TypeError, name, {name: masked, "out": None})


@each_op
def test_dy_of_another_shape(op: str) -> None:
    """Not even one that would broadcast."""
    for shape in (
        (2, 6, 4),
        (2, 5, 6),
        (60,),
        (1, 2, 6, 5),
        (2, 6, 5, 1),
        (2, 6, 1),
        (1, 6, 5),
        (5,),
        (0,),
        (),
    ):
        expect_error(op, ValueError, "dy", {"dy": np.ones(shape, np.float32)})


@each_op
def test_dy_may_be_x(op: str) -> None:
    """The gradient of half the square of something like x."""
    x = valid(op)["x"]
    wanted = run(op, valid(op) | {"dy": x.copy()})
    gradients = run(op, valid(op) | {"x": x, "dy": x})
    for value, right in zip(gradients, wanted, strict=True):
        np.testing.assert_array_equal(value, right)


@each_channel_op
@pytest.mark.parametrize("shape", [(), (6,)])
def test_x_without_channel_axis(op: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    expect_error(op, ValueError, "x", {"x": x, "dy": x.copy(), "out": None})


@each_row_op
def test_x_without_axes(op: str) -> None:
    x = np.ones((), np.float32)
    change = {"x": x, "dy": x.copy(), "out": None, "weight": None, "normalized_shape": None}
    expect_error(op, ValueError, "x", change)


# statistics and weight --------------------------------------------------------------------------------------


@each_statistic
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.bool_, np.complex64, object])
def test_statistics_of_no_floating_type(op: str, name: str, kind: Any) -> None:
    expect_error(op, TypeError, name, {name: np.ones(STATISTICS_SHAPE[op]).astype(kind)})


@each_statistic
def test_statistics_of_the_wrong_shape(op: str, name: str) -> None:
    for shape in WRONG_SHAPES:
        expect_error(op, ValueError, name, {name: np.ones(shape, np.float32)})
    for other in set(STATISTICS_SHAPE.values()) - {STATISTICS_SHAPE[op]}:
        expect_error(op, ValueError, name, {name: np.ones(other, np.float32)})


@each_statistic
@pytest.mark.parametrize("value", [None, 1.0, [1.0] * 6, "one"], ids=repr)
def test_statistics_that_are_no_arrays(op: str, name: str, value: Any) -> None:
    expect_error(op, TypeError, name, {name: value})


@each_row_op
def test_statistics_of_shorter_or_longer_rows(op: str) -> None:
    """Those of rows of one axis do not fit rows of two, and the other way round."""
    name = STATISTICS[op][0]
    expect_error(op, ValueError, name, {"normalized_shape": (6, 5), "weight": None})
    expect_error(op, ValueError, name, {name: np.ones((2, 1, 1), np.float32)})
    expect_error(op, ValueError, name, {name: np.ones((2, 6), np.float32)})


@each_op
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.bool_, np.complex64, object])
def test_a_weight_of_no_floating_type(op: str, kind: Any) -> None:
    expect_error(op, TypeError, "weight", {"weight": np.ones(len(valid(op)["weight"])).astype(kind)})


@each_op
def test_a_weight_of_the_wrong_shape(op: str) -> None:
    n = len(valid(op)["weight"])
    for shape in ((n - 1,), (n + 1,), (0,), (1,), (2,), (), (1, n), (n, 1), SHAPE):
        expect_error(op, ValueError, "weight", {"weight": np.ones(shape, np.float32)})


@each_op
@pytest.mark.parametrize("value", [1.0, [1.0] * 5, "one"], ids=repr)
def test_a_weight_that_is_no_array(op: str, value: Any) -> None:
    expect_error(op, TypeError, "weight", {"weight": value})


def test_weight_offset_of_no_use() -> None:
    for value in (np.nan, np.inf, -np.inf):
        expect_error("rms_norm", ValueError, "weight_offset", {"weight_offset": value})
    for value in (None, "1", [1.0], 1j):
        expect_error("rms_norm", TypeError, "weight_offset", {"weight_offset": value})


# shapes, axes, groups ---------------------------------------------------------------------------------------


@each_row_op
@pytest.mark.parametrize(
    "shape", [(), [], 4, 6, 0, -1, (5, 6), (6,), (2, 6), (1, 5), (1, 2, 6, 5), (2, 6, 5, 1)]
)
def test_normalized_shape_that_is_no_ending(op: str, shape: Any) -> None:
    expect_error(op, ValueError, "normalized_shape", {"normalized_shape": shape, "weight": None})


@each_row_op
@pytest.mark.parametrize("shape", [5.0, (5.0,), "5", (None,), 5j, {5: 1}], ids=repr)
def test_normalized_shape_that_is_no_shape(op: str, shape: Any) -> None:
    expect_error(op, TypeError, "normalized_shape", {"normalized_shape": shape, "weight": None})


@each_row_op
def test_a_weight_whose_shape_is_no_ending(op: str) -> None:
    for shape in ((4,), (2, 6), (), (1, 5)):
        change = {"normalized_shape": None, "weight": np.ones(shape, np.float32)}
        expect_error(op, ValueError, "weight", change)


@each_channel_op
def test_axis_out_of_range(op: str) -> None:
    for axis in (3, 17, -4, 2**70, -(2**70)):
        expect_error(op, ValueError, "axis", {"axis": axis})
    for axis in (1.0, None, "1", (1,)):
        expect_error(op, TypeError, "axis", {"axis": axis})


@pytest.mark.parametrize("op", ["group_norm", "instance_norm"])
@pytest.mark.parametrize("axis", [0, -3])
def test_the_batch_axis_has_no_channels(op: str, axis: int) -> None:
    expect_error(op, ValueError, "axis", {"axis": axis})


@pytest.mark.parametrize("groups", [0, -1, -2, 4, 5, 7, 12, 2**40, 2**70])
def test_groups_that_do_not_divide_the_channels(groups: int) -> None:
    expect_error("group_norm", ValueError, "num_groups", {"num_groups": groups})


@pytest.mark.parametrize("groups", [2.0, None, "2", (2,), np.float32(2)], ids=repr)
def test_groups_that_are_no_integer(groups: Any) -> None:
    expect_error("group_norm", TypeError, "num_groups", {"num_groups": groups})


# need -------------------------------------------------------------------------------------------------------


@each_op
@pytest.mark.parametrize(
    "need", ["dx", "mean", "", "X", "xw", ("x", "w"), ["gamma"], ("x", ""), {"dy"}], ids=repr
)
def test_unknown_gradients(op: str, need: Any) -> None:
    expect_error(op, ValueError, "need", {"need": need})


@each_op
@pytest.mark.parametrize(
    "need", [1, True, 1.5, ..., b"x", (b"x",), ("x", None), [1], (("x",),), np.ones(2)], ids=repr
)
def test_need_without_names(op: str, need: Any) -> None:
    expect_error(op, TypeError, "need", {"need": need})


@each_op
def test_every_way_to_name_gradients(op: str) -> None:
    wanted = run(op, valid(op))
    ways = {
        "a string": ("bias", {"bias"}),
        "a list": (["x", "weight"], {"x", "weight"}),
        "a set": ({"weight", "bias"}, {"weight", "bias"}),
        "keys": (dict.fromkeys(("bias", "x")).keys(), {"bias", "x"}),
        "a generator": ((name for name in ("x", "weight", "bias")), {"x", "weight", "bias"}),
        "an array": (np.array(["weight"]), {"weight"}),
        "twice": (("bias", "bias"), {"bias"}),
        "none": ((), set()),
    }
    for way, (need, names) in ways.items():
        gradients = run(op, valid(op) | {"need": need, "out": None})
        for name, value, right in zip(gradients._fields, gradients, wanted, strict=True):
            assert (value is not None) == (name in names), way
            if value is not None:
                np.testing.assert_array_equal(value, right, err_msg=way)


@each_op
def test_without_a_weight_its_gradient_comes_only_when_asked_for(op: str) -> None:
    call = valid(op) | {"weight": None}
    gradients = run(op, call)
    assert gradients.x is call["out"]
    assert gradients.weight is None
    assert gradients.bias is None
    asked = run(op, call | {"need": ("weight", "bias"), "out": None})
    assert asked.x is None
    shape = SHAPE[-1:] if op in ROW_OPS else SHAPE[1:2]
    assert asked.weight is not None
    assert asked.bias is not None
    assert asked.weight.shape == asked.bias.shape == shape


# signature --------------------------------------------------------------------------------------------------


@each_op
def test_unknown_names_and_too_many_positions(op: str) -> None:
    call = valid(op)
    with pytest.raises(TypeError, match="eps"):
        run(op, call | {"eps": 1e-5})
    with pytest.raises(TypeError, match="positional"):
        getattr(cnorm, f"{op}_backward")(call["dy"], call["x"], *[None] * 9)
    with pytest.raises(TypeError, match="rstd"):
        getattr(cnorm, f"{op}_backward")(call["dy"], call["x"])


@each_op
def test_an_error_leaves_the_next_call_right(op: str) -> None:
    wanted = [gradient.copy() for gradient in run(op, valid(op))]
    for change in ({"need": "y"}, {"out": np.zeros(3, np.float32)}, {"weight": np.ones(1, np.float32)}):
        with pytest.raises(ValueError, match=next(iter(change))):
            run(op, valid(op) | change)
        for value, right in zip(run(op, valid(op)), wanted, strict=True):
            np.testing.assert_array_equal(value, right)
