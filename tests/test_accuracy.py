"""N1 to N4: every op, layout and dtype on every trap, against the exact result for the very numbers given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import oracle
from norms import GROUPS, NORMS, Norm, Parameters
from traps import TRAPS, Trap

#: The promise, in units u (max(1, |xhat|) |weight| + |bias|).
BOUND = 6.0

#: Rows x elements: one element, a tail, one block with a tail, several blocks with a tail.
SIZES = ((35, 1), (15, 9), (25, 255), (5, 8199))

#: The layouts with kernels of their own, and one that must be gathered; test_layouts.py has the others.
KERNEL_LAYOUTS = ("contiguous", "steps", "channels last", "channels last view", "(N, C)")

pytestmark = pytest.mark.skipif(not oracle.EXTENDED, reason="numpy.longdouble has no 64-bit significand here")

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
normalising = pytest.mark.parametrize(
    "norm", [n for n in NORMS if n.op != "rms_norm" and not n.running], ids=lambda norm: norm.name
)


def _problems() -> list[Any]:
    return [
        pytest.param(norm, layout, id=f"{norm.name}-{name}")
        for norm in NORMS
        for name, layout in layouts.of(norm.channels, norm.op == "batch_norm").items()
        if name in KERNEL_LAYOUTS
    ]


def _check(norm: Norm, layout: layouts.Layout, rows: np.ndarray, eps: float) -> None:
    """With weight and bias, and without: xhat itself."""
    x, axis = layout(norm.arrange(rows))
    plain = np.ascontiguousarray(x)
    p = norm.parameters(plain, axis=axis)
    exact = norm.exact(plain, p, eps, axis)
    y = norm.call(x, p, eps, axis)
    assert y.dtype == rows.dtype
    assert oracle.worst_units(y, exact) <= BOUND, f"{rows.shape}, with weight"
    y = norm.call(x, Parameters(None, None, p.running_mean, p.running_var), eps, axis)
    assert oracle.worst_units(y, exact.without_affine()) <= BOUND, f"{rows.shape}, without weight"


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize(("norm", "layout"), _problems())
def test_error_is_within_six_units(norm: Norm, layout: layouts.Layout, trap: Trap, dtype: Any) -> None:
    for rows, elements in SIZES:
        if norm.groups_cross_samples and elements == 1:
            continue  # batch norm refuses one value per channel
        _check(norm, layout, trap(rows, elements, dtype), trap.eps)


@pytest.mark.parametrize("trap", TRAPS[:3], ids=lambda trap: trap.name)
@each_norm
def test_every_row_length_to_seventy(norm: Norm, trap: Trap, dtype: Any) -> None:
    """Every tail of every vector width, with weights on each element."""
    for elements in range(2, 71):
        _check(norm, layouts.contiguous, trap(5, elements, dtype), trap.eps)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 8, 13, 16, 31, 33, 64, 67, 130])
def test_every_kind_of_channel_count_when_channels_are_last(channels: int, dtype: Any) -> None:
    """Channels-last kernels run along the channels: their tails are in the channel count."""
    trap = TRAPS[2]
    x, axis = layouts.channels_last(trap(2 * channels, 37, dtype).reshape(2, channels, 37))
    for norm in NORMS:
        if norm.channels and norm.op != "group_norm":
            p = norm.parameters(x, axis=axis)
            y = norm.call(x, p, trap.eps, axis)
            assert oracle.worst_units(y, norm.exact(x, p, trap.eps, axis)) <= BOUND, norm.name
    weight, bias = NORMS[2].parameters(x, axis=axis).weight, NORMS[2].parameters(x, axis=axis).bias
    for groups in {g for g in (1, channels, 3, 8, 13) if channels % g == 0}:
        y = cnorm.group_norm(x, groups, weight, bias, trap.eps, axis=-1)
        assert oracle.worst_units(y, oracle.group_norm(x, groups, weight, bias, trap.eps, axis=-1)) <= BOUND


LONG = ("mean 1e4, spread 1", "first element 1e8", "drifting mean", "cancelling pairs", "largest and lowest")


@pytest.mark.parametrize("trap", [t for t in TRAPS if t.name in LONG], ids=lambda trap: trap.name)
@each_norm
def test_long_rows_that_several_threads_share(norm: Norm, trap: Trap, dtype: Any) -> None:
    """Many blocks to merge: 5 groups of 60 thousand elements, also with channels last."""
    rows = trap(GROUPS, 60_003, dtype)
    cnorm.set_num_threads(3)
    for layout in (layouts.contiguous, layouts.channels_last)[: 1 + norm.channels]:
        _check(norm, layout, rows, trap.eps)


@each_norm
def test_at_every_level(norm: Norm, level: str, dtype: Any) -> None:
    for trap in TRAPS:
        _check(norm, layouts.contiguous, trap(5, 261, dtype), trap.eps)


@each_norm
def test_subnormal_weights_and_biases_are_not_flushed(norm: Norm, dtype: Any) -> None:
    """Parameters of some subnormal spacings; results of half a spacing at most beside the exact one."""
    tiny = float(np.finfo(dtype).smallest_subnormal)
    x = norm.arrange(TRAPS[1](15, 255, dtype))
    p = norm.parameters(x)
    assert p.weight is not None
    rng = np.random.default_rng(6)
    for scale in (300, 1e6):
        p.weight = (rng.integers(-9, 10, p.weight.shape) * scale * tiny).astype(dtype)
        p.bias = (rng.integers(-9, 10, p.weight.shape) * scale * tiny).astype(dtype)
        y = norm.call(x, p, 1e-5)
        assert np.count_nonzero(y) > y.size / 2
        assert oracle.worst_units(y, norm.exact(x, p, 1e-5)) <= BOUND


@each_norm
def test_weights_of_both_ends_of_the_range(norm: Norm, dtype: Any) -> None:
    """A product of the weight with 1/std, or with a huge x, must not overflow where the result is finite."""
    info = np.finfo(dtype)
    for spread, weight in (
        (float(info.max) / 16, float(info.max) / 1e4),
        (float(info.smallest_normal) * 1e3, float(info.max) / 1e4),
        (float(info.max) / 16, float(info.smallest_normal) * 8),
        (float(info.smallest_normal) * 1e3, float(info.smallest_normal) * 8),
    ):
        rows = np.random.default_rng(7).uniform(-1, 1, (15, 255)) * spread
        x = norm.arrange(rows.astype(dtype))
        p = norm.parameters(x)
        assert p.weight is not None
        p.weight, p.bias = np.full_like(p.weight, weight), None
        exact = norm.exact(x, p, 0.0)
        y = norm.call(x, p, 0.0)
        finite = np.abs(exact.y) < float(info.max)
        assert finite.mean() > 0.5 or norm.running
        assert oracle.worst_units(y, exact) <= BOUND, (spread, weight)


# N2 ---------------------------------------------------------------------------------------------------------


def _constants(dtype: Any) -> list[float]:
    info = np.finfo(dtype)
    return [
        0.0, 0.1, -1234.0, 1e7, 1e-30, 1 / 3, float(info.max), -float(info.max), float(info.smallest_normal),
        float(info.smallest_subnormal), 3 * float(info.smallest_subnormal),
    ]  # fmt: skip


@normalising
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_constant_groups_give_exactly_the_bias(norm: Norm, eps: float, dtype: Any) -> None:
    for elements in [*range(2, 71), 255, 4096, 4099, 12_289]:
        values = np.resize(_constants(dtype), 15).astype(dtype)
        x = norm.arrange(np.repeat(values[:, None], elements, axis=1))
        p = norm.parameters(x)
        exact = norm.exact(x, p, eps)
        np.testing.assert_array_equal(norm.call(x, p, eps), exact.bias.astype(dtype), err_msg=str(elements))


@normalising
def test_constant_groups_in_every_layout(norm: Norm, dtype: Any) -> None:
    values = np.resize(_constants(dtype), 35).astype(dtype)
    for elements in (6, 1233):
        rows = np.repeat(values[:, None], elements, axis=1)
        for name, layout in layouts.of(norm.channels, norm.op == "batch_norm").items():
            x, axis = layout(norm.arrange(rows))
            plain = np.ascontiguousarray(x).astype(dtype)
            p = norm.parameters(plain, axis=axis)
            bias = norm.exact(plain, p, 0.0, axis).bias.astype(dtype)
            np.testing.assert_array_equal(norm.call(x, p, 0.0, axis), bias, err_msg=name)


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm"])
def test_one_element_gives_exactly_the_bias_whatever_the_weight(name: str, dtype: Any) -> None:
    """Also with weights up to 1e16. Batch norm refuses one value per channel in training."""
    (norm,) = (n for n in NORMS if n.name == name)
    x = norm.arrange(np.resize([1e8, -3.7, 1e-20, 0.1, 7e37, 5e-324], (15, 1)).astype(dtype))
    p = norm.parameters(x)
    assert p.weight is not None
    p.weight = np.resize([1e16, -1e16, 0.5], p.weight.shape).astype(dtype)
    bias = norm.exact(x, p, 1e-5).bias.astype(dtype)
    for eps in (1e-5, 0.0):
        np.testing.assert_array_equal(norm.call(x, p, eps), bias)


def test_long_constant_columns_are_exactly_zero(dtype: Any) -> None:
    """A million rows of [100, -100]: a running float sum, or numpy's own std over axis 0, drifts here."""
    x = np.tile(np.array([[100.0, -100.0]], dtype), (1_000_000, 1))
    assert not cnorm.batch_norm(x, training=True).any()


def test_a_large_constant_plane_is_exactly_zero() -> None:
    x = np.ones((1, 32, 513, 1025), np.float32)
    assert not cnorm.group_norm(x, 8).any()


def test_small_pairs_are_exactly_zero(dtype: Any) -> None:
    x = np.array([[2, 2], [14, 14]], dtype)
    assert not cnorm.layer_norm(x, eps=1e-6).any()


def test_inference_on_the_running_mean_gives_exactly_the_bias(dtype: Any) -> None:
    norm = NORMS[-1]
    mean = np.array([1e7, 0.1, -3.0, 1e-30, 5.0], dtype)
    x = np.broadcast_to(mean[:, None], (3, 5, 7)).copy()
    p = norm.parameters(x)
    assert p.bias is not None
    p.running_mean, p.running_var = mean, np.array([0, 1, 1e-30, 1e30, 4], dtype)
    wanted = np.broadcast_to(p.bias[:, None], x.shape)
    for eps in (0.0, 1e-5):
        np.testing.assert_array_equal(norm.call(x, p, eps), wanted)


# N3 ---------------------------------------------------------------------------------------------------------


def test_inference_where_x_minus_mean_overflows(dtype: Any) -> None:
    """Both near the ends of the range, and a large variance: the result is finite."""
    largest = float(np.finfo(dtype).max)
    x = np.array([[largest, -largest, largest], [-largest, largest, 1.0]], dtype)
    p = Parameters(
        np.full(3, 1e-9, dtype),
        np.ones(3, dtype),
        np.array([-largest, largest, largest], dtype),
        np.full(3, largest, dtype),
    )
    exact = NORMS[-1].exact(x, p, 1e-5)
    assert np.isfinite(exact.y.astype(dtype)).all()
    assert oracle.worst_units(NORMS[-1].call(x, p, 1e-5), exact) <= BOUND


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_inference_with_every_size_of_variance(eps: float, dtype: Any) -> None:
    info = np.finfo(dtype)
    var = np.array(
        [0, info.smallest_subnormal, info.smallest_normal, 1e-20, 1e-5, 1, 1e20, info.max], dtype=dtype
    )
    rng = np.random.default_rng(8)
    x = (np.sqrt(var.astype(oracle.Long))[:, None] * rng.standard_normal((3, 8, 33))).astype(dtype)
    p = Parameters(None, None, np.zeros(8, dtype), var)
    assert oracle.worst_units(NORMS[-1].call(x, p, eps), NORMS[-1].exact(x, p, eps)) <= BOUND


# N4 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("norm", "layout"),
    [p for p in _problems() if not p.values[0].running],
    ids=lambda v: getattr(v, "name", ""),
)
def test_a_non_finite_value_makes_its_own_group_nan_and_no_other(
    norm: Norm, layout: layouts.Layout, bad: float, dtype: Any
) -> None:
    for elements in (6, 255, 8199):
        rows = TRAPS[1](15, elements, dtype)
        p = norm.parameters(layout(norm.arrange(rows))[0], axis=layout(norm.arrange(rows))[1])
        clean_x, axis = layout(norm.arrange(rows))
        clean = norm.call(clean_x, p, 1e-5, axis)
        for place in (0, elements // 2, elements - 1):
            spoilt = rows.copy()
            spoilt[7, place] = bad
            marks = np.zeros_like(rows)
            marks[7] = 1
            x, axis = layout(norm.arrange(spoilt))
            own = layout(norm.arrange(marks))[0] == 1
            y = norm.call(x, p, 1e-5, axis)
            assert np.isnan(y[own]).all(), "the group itself"
            np.testing.assert_array_equal(y[~own], clean[~own], err_msg="other groups")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("norm", [n for n in NORMS if not n.running], ids=lambda norm: norm.name)
def test_statistics_of_a_non_finite_group_are_nan(norm: Norm, bad: float, dtype: Any) -> None:
    rows = TRAPS[1](15, 255, dtype)
    rows[7, 11] = bad
    result = norm.call(norm.arrange(rows), Parameters(), 1e-5, return_stats=True)
    for statistic in result[1:]:
        wanted = np.zeros(15, bool)
        wanted[7] = True
        np.testing.assert_array_equal(np.isnan(statistic.reshape(-1)), wanted)


def test_an_overflowing_group_next_to_an_infinite_one(dtype: Any) -> None:
    """The rows that need rescuing are redone; that must not be confused with rows beyond rescue."""
    largest = float(np.finfo(dtype).max)
    x = np.array([[largest, -largest, 1, 0], [np.inf, 1, 2, 3], [largest, largest, -largest, 5]], dtype)
    y = cnorm.layer_norm(x)
    assert np.isnan(y[1]).all()
    exact = oracle.layer_norm(x[[0, 2]])
    assert oracle.worst_units(y[[0, 2]], exact) <= BOUND


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inference_touches_no_other_element(bad: float, dtype: Any) -> None:
    norm = NORMS[-1]
    x = norm.arrange(TRAPS[1](15, 255, dtype))
    p = norm.parameters(x)
    clean = norm.call(x, p, 1e-5)
    x[1, 2, 3] = bad
    y = norm.call(x, p, 1e-5)
    assert not np.isfinite(y[1, 2, 3]) or p.weight[2] == 0
    y[1, 2, 3] = clean[1, 2, 3]
    np.testing.assert_array_equal(y, clean)


def test_inference_with_a_non_finite_running_variance_spoils_its_channel_only(dtype: Any) -> None:
    norm = NORMS[-1]
    x = norm.arrange(TRAPS[1](15, 255, dtype))
    p = norm.parameters(x)
    clean = norm.call(x, p, 1e-5)
    assert p.running_var is not None
    p.running_var[4] = np.nan
    y = norm.call(x, p, 1e-5)
    assert np.isnan(y[:, 4]).all()
    np.testing.assert_array_equal(np.delete(y, 4, 1), np.delete(clean, 4, 1))
