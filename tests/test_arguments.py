"""Every mistake: the class of the error, a message that names the argument, and nothing touched.

The suite runs on both backends, so one table of classes holds them to the same ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm

#: A plainly valid call of every op, (2, 6, 5) with channels on axis 1; ``function`` makes one, fresh each
#: time.
OPS = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")
ROW_OPS = OPS[:2]
CHANNEL_OPS = OPS[2:]
RUNNING_OPS = OPS[3:]


def _valid(op: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    size = 5 if op in ROW_OPS else 6
    x = rng.standard_normal((2, 6, 5)).astype(np.float32)
    weight, bias, mean, var = np.abs(rng.standard_normal((4, size))).astype(np.float32) + 1
    call: dict[str, Any] = {"x": x, "weight": weight, "bias": bias, "eps": 1e-5, "out": np.zeros_like(x)}
    if op in ROW_OPS:
        call["normalized_shape"] = 5
    if op == "group_norm":
        call["num_groups"] = 2
    if op in RUNNING_OPS:
        call |= {"running_mean": mean, "running_var": var, "momentum": 0.1}
    if op == "batch_norm":
        call["training"] = True
    return call


def _expect(op: str, error: type[Exception], name: str, change: dict[str, Any]) -> None:
    """The changed call raises ``error`` naming ``name``, and all arrays of the call keep their bytes."""
    call = _valid(op) | change
    arrays = {
        key: value for key, value in call.items() if isinstance(value, np.ndarray) and value.dtype != object
    }
    before = {key: value.tobytes() for key, value in arrays.items()}
    with pytest.raises(error, match=rf"\b{name}\b") as caught:
        getattr(cnorm, op)(**call)
    assert type(caught.value) is error
    assert {key: value.tobytes() for key, value in arrays.items()} == before


@pytest.mark.parametrize("op", OPS)
def test_the_valid_call_is_valid(op: str) -> None:
    call = _valid(op)
    assert getattr(cnorm, op)(**call) is call["out"]
    assert call["out"].any()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "kind",
    [
        np.int32,
        np.int8,
        np.uint16,
        np.bool_,
        np.complex64,
        np.complex128,
        object,
        "U1",
        "M8[s]",
        np.longdouble,
    ],
)
def test_x_of_no_supported_type(op: str, kind: Any) -> None:
    _expect(op, TypeError, "x", {"x": np.ones((2, 6, 5)).astype(kind), "out": None})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("x", [None, 1.5, [[1.0, 2.0]], "x", ...], ids=repr)
def test_x_that_is_no_array(op: str, x: Any) -> None:
    """A list would have to be copied, and its type guessed."""
    _expect(op, TypeError, "x", {"x": x, "out": None})


@pytest.mark.parametrize("op", OPS)
def test_masked_arrays_are_refused_not_read_through(op: str) -> None:
    x = np.ma.masked_less(_valid(op)["x"], 0)
    _expect(op, TypeError, "x", {"x": x, "out": None})


@pytest.mark.parametrize("op", CHANNEL_OPS)
@pytest.mark.parametrize("shape", [(), (6,)])
def test_x_without_channel_axis(op: str, shape: tuple[int, ...]) -> None:
    _expect(op, ValueError, "x", {"x": np.ones(shape, np.float32), "out": None})


@pytest.mark.parametrize("op", ROW_OPS)
def test_x_without_axes(op: str) -> None:
    call = {"x": np.ones((), np.float32), "out": None}
    _expect(op, ValueError, "x", call | dict.fromkeys(("normalized_shape", "weight", "bias")))


# weight and bias --------------------------------------------------------------------------------------------


def _size(op: str) -> int:
    return len(_valid(op)["weight"])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.bool_, np.complex64, object])
def test_parameters_of_no_floating_type(op: str, name: str, kind: Any) -> None:
    _expect(op, TypeError, name, {name: np.ones(_size(op)).astype(kind)})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parameters_of_the_wrong_shape(op: str, name: str) -> None:
    n = _size(op)
    for shape in ((n - 1,), (n + 1,), (0,), (1,), (), (1, n), (n, 1), (2, 6, 5)):
        _expect(op, ValueError, name, {name: np.ones(shape, np.float32)})


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_for_each_group_instead_of_each_channel(name: str) -> None:
    _expect("group_norm", ValueError, name, {name: np.ones(2, np.float32)})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("value", [1.0, [1.0] * 5, "one"], ids=repr)
def test_parameters_that_are_no_arrays(op: str, name: str, value: Any) -> None:
    _expect(op, TypeError, name, {name: value})


@pytest.mark.parametrize("op", ROW_OPS)
def test_a_bias_that_does_not_fit_a_longer_row(op: str) -> None:
    call = {"normalized_shape": (6, 5), "weight": np.ones((6, 5), np.float32)}
    _expect(op, ValueError, "bias", call)


# eps, momentum, offset --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("eps", [-1e-5, -1e-300, -1, np.float32(-1), np.nan, np.inf, -np.inf])
def test_eps_of_no_use(op: str, eps: Any) -> None:
    _expect(op, ValueError, "eps", {"eps": eps})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("eps", ["1e-5", 1e-5j, [1e-5], np.full(3, 1e-5), None], ids=repr)
def test_eps_of_no_number(op: str, eps: Any) -> None:
    if eps is None and op == "rms_norm":
        pytest.skip("None is rms_norm's default")
    _expect(op, TypeError, "eps", {"eps": eps})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "eps", [0, 0.0, -0.0, 1, True, np.float16(0.5), np.float64(1e-5), np.array(1e-5)], ids=repr
)
def test_eps_as_any_number(op: str, eps: Any) -> None:
    call = _valid(op) | {"eps": eps}
    wanted = getattr(cnorm, op)(**_valid(op) | {"eps": float(eps)})
    np.testing.assert_array_equal(getattr(cnorm, op)(**call), wanted)


@pytest.mark.parametrize("op", RUNNING_OPS)
def test_momentum_of_no_use(op: str) -> None:
    for value in (np.nan, np.inf, -np.inf):
        _expect(op, ValueError, "momentum", {"momentum": value})
    for value in (None, "0.1", [0.1], 1j):
        _expect(op, TypeError, "momentum", {"momentum": value})


def test_weight_offset_of_no_use() -> None:
    for value in (np.nan, np.inf):
        _expect("rms_norm", ValueError, "weight_offset", {"weight_offset": value})
    for value in (None, "1", [1.0]):
        _expect("rms_norm", TypeError, "weight_offset", {"weight_offset": value})


def test_casting_of_no_known_kind() -> None:
    _expect("rms_norm", ValueError, "casting", {"casting": "twice"})
    for value in (None, 1, True):
        _expect("rms_norm", TypeError, "casting", {"casting": value})


# shapes, axes, groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ROW_OPS)
@pytest.mark.parametrize(
    "shape", [(), [], 4, 6, 0, -1, (5, 6), (6,), (2, 6), (1, 5), (1, 2, 6, 5), (2, 6, 5, 1), -5]
)
def test_normalized_shape_that_is_no_ending(op: str, shape: Any) -> None:
    _expect(op, ValueError, "normalized_shape", {"normalized_shape": shape, "weight": None, "bias": None})


@pytest.mark.parametrize("op", ROW_OPS)
@pytest.mark.parametrize("shape", [5.0, (5.0,), "5", (None,), 5j, {5: 1}], ids=repr)
def test_normalized_shape_that_is_no_shape(op: str, shape: Any) -> None:
    _expect(op, TypeError, "normalized_shape", {"normalized_shape": shape, "weight": None, "bias": None})


@pytest.mark.parametrize("op", ROW_OPS)
def test_a_weight_whose_shape_is_no_ending(op: str) -> None:
    for shape in ((4,), (2, 6), (), (1, 5)):
        _expect(op, ValueError, "weight",
                {"normalized_shape": None, "weight": np.ones(shape, np.float32), "bias": None})  # fmt: skip


@pytest.mark.parametrize("op", CHANNEL_OPS)
def test_axis_out_of_range(op: str) -> None:
    for axis in (3, 17, -4, 2**70, -(2**70)):
        _expect(op, ValueError, "axis", {"axis": axis})
    for axis in (1.0, None, "1", (1,)):
        _expect(op, TypeError, "axis", {"axis": axis})


@pytest.mark.parametrize("op", ["group_norm", "instance_norm"])
@pytest.mark.parametrize("axis", [0, -3])
def test_the_batch_axis_has_no_channels(op: str, axis: int) -> None:
    _expect(op, ValueError, "axis", {"axis": axis})


@pytest.mark.parametrize("groups", [0, -1, -2, 4, 5, 7, 12, 2**40, 2**70])
def test_groups_that_do_not_divide_the_channels(groups: int) -> None:
    _expect("group_norm", ValueError, "num_groups", {"num_groups": groups})


@pytest.mark.parametrize("groups", [2.0, None, "2", (2,), np.float32(2)], ids=repr)
def test_groups_that_are_no_integer(groups: Any) -> None:
    _expect("group_norm", TypeError, "num_groups", {"num_groups": groups})


# running statistics -----------------------------------------------------------------------------------------

INFERENCE = {"batch_norm": {"training": False}, "instance_norm": {"use_input_stats": False}}
MODES = [(op, mode) for op in RUNNING_OPS for mode in ({}, INFERENCE[op])]
STATISTICS = ("running_mean", "running_var")


@pytest.mark.parametrize(("op", "mode"), MODES)
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_short_long_empty_or_of_another_shape(
    op: str, mode: dict[str, Any], name: str
) -> None:
    for shape in ((5,), (7,), (0,), (), (6, 1), (1, 6), (1,)):
        _expect(op, ValueError, name, mode | {name: np.ones(shape, np.float32)})


@pytest.mark.parametrize(("op", "mode"), MODES)
@pytest.mark.parametrize("name", STATISTICS)
def test_one_running_statistic_without_the_other(op: str, mode: dict[str, Any], name: str) -> None:
    _expect(op, ValueError, name, mode | {name: None})


@pytest.mark.parametrize("op", RUNNING_OPS)
def test_no_running_statistics_where_they_are_used(op: str) -> None:
    _expect(op, ValueError, "running_mean", INFERENCE[op] | dict.fromkeys(STATISTICS))


@pytest.mark.parametrize(("op", "mode"), MODES)
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_of_no_floating_type(op: str, mode: dict[str, Any], name: str) -> None:
    for kind in (np.int64, np.complex64, object):
        _expect(op, TypeError, name, mode | {name: np.ones(6).astype(kind)})
    _expect(op, TypeError, name, mode | {name: [1.0] * 6})


@pytest.mark.parametrize("op", RUNNING_OPS)
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_that_cannot_be_updated(op: str, name: str) -> None:
    read_only = np.ones(6, np.float32)
    read_only.flags.writeable = False
    _expect(op, ValueError, name, {name: read_only})
    _expect(op, ValueError, name, {name: np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (6,), (0,))})
    _expect(op, TypeError, name, {name: memoryview(np.ones(6, np.float32))})


@pytest.mark.parametrize("op", RUNNING_OPS)
def test_running_statistics_that_overlap_something(op: str) -> None:
    call = _valid(op)
    both = np.ones(8, np.float32)
    _expect(op, ValueError, "running_var", {"running_mean": both[:6], "running_var": both[2:]})
    _expect(op, ValueError, "running_mean", {"running_mean": call["weight"], "weight": call["weight"]})
    _expect(op, ValueError, "running_mean", {"x": call["x"], "running_mean": call["x"][0, :, 0]})
    _expect(op, ValueError, "out", {"out": call["out"], "running_mean": call["out"][0, :, 0]})


def test_one_value_per_channel_in_training() -> None:
    for shape in ((1, 6), (1, 6, 1), (1, 6, 1, 1)):
        x = np.ones(shape, np.float32)
        _expect("batch_norm", ValueError, "x", {"x": x, "out": np.zeros_like(x)})
    x = np.ones((1, 1, 6), np.float32)
    _expect("batch_norm", ValueError, "x", {"x": x, "out": np.zeros_like(x), "axis": -1})


# out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_out_of_another_shape(op: str) -> None:
    for shape in ((2, 6, 4), (2, 5, 6), (60,), (1, 2, 6, 5), (2, 6, 5, 1), (0,), ()):
        _expect(op, ValueError, "out", {"out": np.zeros(shape, np.float32)})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32, np.complex64, ">f4", object])
def test_out_of_another_type(op: str, kind: Any) -> None:
    _expect(op, TypeError, "out", {"out": np.zeros((2, 6, 5)).astype(kind)})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "out", [[], 1.0, "out", memoryview(np.zeros((2, 6, 5), np.float32))], ids=lambda v: type(v).__name__
)
def test_out_that_is_no_array(op: str, out: Any) -> None:
    _expect(op, TypeError, "out", {"out": out})


@pytest.mark.parametrize("op", OPS)
def test_out_that_cannot_be_written(op: str) -> None:
    read_only = np.zeros((2, 6, 5), np.float32)
    read_only.flags.writeable = False
    _expect(op, ValueError, "out", {"out": read_only})
    stacked = np.lib.stride_tricks.as_strided(np.zeros(30, np.float32), (2, 6, 5), (0, 20, 4))
    _expect(op, ValueError, "out", {"out": stacked})
    woven = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (2, 6, 5), (120, 16, 4))
    _expect(op, ValueError, "out", {"out": woven})


@pytest.mark.parametrize("op", OPS)
def test_out_that_overlaps_x_in_part_or_in_another_order(op: str) -> None:
    memory = np.random.default_rng(1).standard_normal(400).astype(np.float32)
    x = memory[100:160].reshape(2, 6, 5)
    for shift in (1, -1, 30, -30, 59, -59):
        _expect(op, ValueError, "out", {"x": x, "out": memory[100 + shift : 160 + shift].reshape(2, 6, 5)})
    _expect(op, ValueError, "out", {"x": x, "out": x[::-1]})
    _expect(op, ValueError, "out", {"x": x, "out": x[:, :, ::-1]})
    spread = memory[:120].reshape(2, 6, 10)
    _expect(op, ValueError, "out", {"x": spread[..., :5], "out": spread[..., 2:7]})
    square = memory[:180].reshape(6, 6, 5)[:, :, 0]
    if op == "batch_norm":
        _expect(op, ValueError, "out", {"x": square, "out": square.T})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_out_that_overlaps_a_parameter(op: str, name: str) -> None:
    out = np.zeros((2, 6, 5), np.float32)
    _expect(op, ValueError, "out", {"out": out, name: out[0, 0] if op in ROW_OPS else out[0, :, 0]})


@pytest.mark.parametrize("op", OPS)
def test_out_between_the_elements_of_x_is_no_overlap(op: str) -> None:
    memory = np.random.default_rng(2).standard_normal((2, 6, 10)).astype(np.float32)
    wanted = getattr(cnorm, op)(**_valid(op) | {"x": memory[..., ::2].copy()})
    call = _valid(op) | {"x": memory[..., ::2], "out": memory[..., 1::2]}
    np.testing.assert_array_equal(getattr(cnorm, op)(**call), wanted)


# signature --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_unknown_names_and_too_many_positions(op: str) -> None:
    call = _valid(op)
    with pytest.raises(TypeError, match="epsilon"):
        getattr(cnorm, op)(**call, epsilon=1)
    with pytest.raises(TypeError, match="positional"):
        getattr(cnorm, op)(call["x"], *[None] * 9)
    with pytest.raises(TypeError, match="x"):
        getattr(cnorm, op)()


@pytest.mark.parametrize("op", OPS)
def test_an_error_leaves_the_next_call_right(op: str) -> None:
    wanted = getattr(cnorm, op)(**_valid(op)).copy()
    for change in ({"eps": -1.0}, {"out": np.zeros(3, np.float32)}, {"weight": np.ones(1, np.float32)}):
        with pytest.raises(ValueError, match=next(iter(change))):
            getattr(cnorm, op)(**_valid(op) | change)
        np.testing.assert_array_equal(getattr(cnorm, op)(**_valid(op)), wanted)


@pytest.mark.parametrize("momentum", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", [cnorm.batch_norm, cnorm.instance_norm])
def test_momentum_must_be_finite_even_where_nothing_is_updated(norm: Any, momentum: float) -> None:
    x = np.ones((3, 4, 5), np.float32)
    with pytest.raises(ValueError, match="momentum"):
        norm(x, None, None, None, None, True, momentum)
