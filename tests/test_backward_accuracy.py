"""Gradients within 16 units of the exact ones, for every op, layout and dtype on every trap.

One unit is u times the largest magnitude of the group (dx) or of the array (dweight, dbias). Where dx
cancels, the scale is rstd max|dy weight| of the group: in rows of two, and for dy weight in the span of 1 and
xhat, the exact dx may be zero while each of its three terms is not, and no algorithm that rounds dy weight
comes closer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
import oracle
from gradients import BACKWARDS, BOUND, TRAINING, Backward, Case, upstream, worst_units
from norms import GROUPS
from traps import TRAPS, Trap

#: Rows x elements: one element, two, a tail, one block with a tail, several blocks with a tail.
SIZES = ((35, 1), (15, 2), (15, 9), (10, 255), (5, 4099))

#: The layouts with kernels of their own; ``test_backward_layouts.py`` has the others.
KERNEL_LAYOUTS = ("contiguous", "channels last", "(N, C)")

pytestmark = pytest.mark.skipif(not oracle.EXTENDED, reason="numpy.longdouble has no 64-bit significand here")

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)
each_training = pytest.mark.parametrize("backward", TRAINING, ids=lambda backward: backward.name)


def _trap(name: str) -> Trap:
    (trap,) = (trap for trap in TRAPS if trap.name == name)
    return trap


def _problems(backwards: list[Backward] = BACKWARDS) -> list[Any]:
    return [
        pytest.param(backward, layout, id=f"{backward.name}-{name}")
        for backward in backwards
        for name, layout in layouts.of(backward.norm.channels, backward.norm.op == "batch_norm").items()
        if name in KERNEL_LAYOUTS
    ]


def _check_case(backward: Backward, case: Case, note: Any = "") -> None:
    gradients = backward.of(case)
    assert gradients.x.dtype == case.x.dtype
    exact = backward.exact(case)
    worst = worst_units(gradients, exact)
    assert max(worst) <= BOUND, (worst, case.x.shape, note)


def _check(backward: Backward, rows: np.ndarray, dy: np.ndarray, eps: float, **options: Any) -> None:
    """With weight, and as for weight 1."""
    case = backward.case(rows, dy, eps, **options)
    _check_case(backward, case, "with weight")
    _check_case(backward, case.without_weight(), "without weight")


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize(("backward", "layout"), _problems())
def test_error_is_within_sixteen_units(
    backward: Backward, layout: layouts.Layout, trap: Trap, dtype: Any
) -> None:
    for rows, elements in SIZES:
        if backward.norm.groups_cross_samples and elements == 1:
            continue  # batch norm refuses one value per channel
        x = trap(rows, elements, dtype)
        case = backward.case(x, upstream(x), trap.eps, layout)
        _check_case(backward, case, "with weight")
        if elements < 1000:
            _check_case(backward, case.without_weight(), "without weight")


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@each_training
def test_a_gradient_of_the_spreads_size(backward: Backward, trap: Trap, dtype: Any) -> None:
    """dy is scaled by the group's spread, so that dx is near 1 however large or small 1/std is."""
    x = trap(15, 255, dtype)
    with np.errstate(all="ignore"):
        spread = oracle.moments(x)[2] ** oracle.Long(0.5)
    dy = (upstream(x) * np.minimum(spread, float(np.finfo(dtype).max) / 1e5)).astype(dtype)
    _check(backward, x, dy, trap.eps)


@pytest.mark.parametrize("trap", TRAPS[:3], ids=lambda trap: trap.name)
@each_backward
def test_every_row_length_to_seventy(backward: Backward, trap: Trap, dtype: Any) -> None:
    for elements in range(2, 71):
        x = trap(5, elements, dtype)
        _check_case(backward, backward.case(x, upstream(x), trap.eps), elements)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 8, 13, 16, 31, 33, 64, 67, 130])
def test_every_kind_of_channel_count_when_channels_are_last(channels: int, dtype: Any) -> None:
    """Group norm's are in ``test_group_norm_backward.py``."""
    trap = _trap("mean 1e4, spread 1")
    for backward in BACKWARDS:
        if backward.norm.channels and backward.norm.op != "group_norm":
            x = trap(channels * (1 if backward.norm.op == "batch_norm" else 3), 38, dtype)
            case = backward.case(x, upstream(x), trap.eps, layouts.channels_last)
            assert case.x.shape[-1] == channels
            _check_case(backward, case, channels)


@pytest.mark.parametrize("spreads", [1e2, -1e4, 1e6])
@pytest.mark.parametrize(("backward", "layout"), _problems(TRAINING))
def test_a_mean_of_many_spreads(
    backward: Backward, layout: layouts.Layout, spreads: float, dtype: Any
) -> None:
    """The saved mean is off by up to u |mean|: as many units of xhat as it has spreads. Float64 has more."""
    rng = np.random.default_rng(1)
    mean = spreads if dtype == np.float32 else spreads * 1e8
    for rows, elements, spread in ((15, 66, 1.0), (5, 4099, 0.01)):
        x = ((mean + rng.standard_normal((rows, elements))) * spread).astype(dtype)
        _check_case(backward, backward.case(x, upstream(x), 1e-5, layout))


LONG = ("mean 1e4, spread 1", "first element 1e8", "largest and lowest")


@pytest.mark.parametrize("name", LONG)
@each_backward
def test_long_rows_that_several_threads_share(backward: Backward, name: str, dtype: Any) -> None:
    trap = _trap(name)
    x = trap(GROUPS, 60_003, dtype)
    cnorm.set_num_threads(3)
    for layout in (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]:
        _check_case(backward, backward.case(x, upstream(x), trap.eps, layout))


@each_backward
def test_many_rows(backward: Backward, dtype: Any) -> None:
    """Parameter gradients over many samples: the partial sums of many blocks of rows are merged."""
    trap = _trap("mean 1e4, spread 1")
    for rows, elements in ((20_010, 7), (2_010, 66)):
        x = trap(rows, elements, dtype)
        _check_case(backward, backward.case(x, upstream(x), trap.eps))


@each_backward
def test_at_every_level(backward: Backward, level: str, dtype: Any) -> None:
    for trap in TRAPS:
        x = trap(5, 261, dtype)
        _check(backward, x, upstream(x), trap.eps)


# What arrives from above ------------------------------------------------------------------------------------

Upstream = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _in_the_span(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A combination of 1 and xhat for each row: dx is what rounding it to the type leaves."""
    return 3 * rng.standard_normal((len(x), 1)) + rng.standard_normal((len(x), 1)) * oracle.layer_norm(x).y


def _one_hot(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    dy = np.zeros(x.shape)
    dy[np.arange(len(x)), rng.integers(0, x.shape[1], len(x))] = 1
    return dy


def _every_magnitude(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    reach = 0.8 * np.log10(float(np.finfo(x.dtype).max))
    return rng.standard_normal(x.shape) * 10.0 ** rng.uniform(-reach, reach, x.shape)


def _fraction_of_range(fraction: float) -> Upstream:
    """Normal numbers times 10**(fraction of the dtype's largest decimal exponent)."""
    return lambda rng, x: rng.standard_normal(x.shape) * float(np.finfo(x.dtype).max) ** fraction


UPSTREAMS: dict[str, Upstream] = {
    "mean 1e4": lambda rng, x: 1e4 + rng.standard_normal(x.shape),
    "constant": lambda rng, x: np.full(x.shape, 0.3),
    "zero": lambda rng, x: np.zeros(x.shape),
    "in the span of 1 and xhat": _in_the_span,
    "with xhat": lambda rng, x: rng.standard_normal(x.shape) + 1e3 * oracle.layer_norm(x).y,
    "one element": _one_hot,
    "Cauchy": lambda rng, x: rng.standard_cauchy(x.shape),
    "every magnitude": _every_magnitude,
    "0.8 of the exponent range": _fraction_of_range(0.8),
    "-0.8 of the exponent range": _fraction_of_range(-0.8),
    "subnormal": lambda rng, x: rng.integers(-9, 10, x.shape) * float(np.finfo(x.dtype).smallest_subnormal),
    "1e-40 in float32": lambda rng, x: rng.standard_normal(x.shape) * float(np.finfo(x.dtype).tiny) / 100,
}


@pytest.mark.parametrize("name", UPSTREAMS)
@each_backward
def test_every_kind_of_upstream_gradient(backward: Backward, name: str, dtype: Any) -> None:
    for trap in (_trap("mean 3, spread 0.5, no eps"), _trap("mean 1e4, spread 1")):
        for rows, elements in ((15, 9), (10, 255), (5, 4099)):
            x = trap(rows, elements, dtype)
            with np.errstate(under="ignore"):
                dy = UPSTREAMS[name](np.random.default_rng(2), x).astype(dtype)
            for layout in (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]:
                _check(backward, x, dy, trap.eps, layout=layout)


@each_backward
def test_weights_of_both_ends_of_the_range(backward: Backward, dtype: Any) -> None:
    """dy weight overflows or vanishes where its product with 1/std is an ordinary number."""
    info = np.finfo(dtype)
    large, small = float(info.max) / 1e4, float(info.smallest_normal) * 1e3
    rows = np.random.default_rng(3).uniform(-1, 1, (15, 255))
    for spread, weight, factor in (
        (large, large, 1),  # rstd weight is near 1
        (small, small, 1),
        (large, large, large / 1e4),
        (1, large, small),
        (small, small, small),
        (large, small, large),
    ):
        x, dy = (rows * spread).astype(dtype), (rows[::-1] * factor).astype(dtype)
        case = backward.case(x, dy, 0.0)
        assert case.p.weight is not None
        case = replace(case, p=replace(case.p, weight=np.full_like(case.p.weight, weight)))
        _check_case(backward, case, (spread, weight, factor))


@each_training
def test_slopes_that_only_their_product_with_rstd_takes_out_of_range(backward: Backward, dtype: Any) -> None:
    """Average(dy hat) and rstd are ordinary numbers, and their product is not a normal one."""
    spread, factor = (1e17, 1e-25) if dtype == np.float32 else (1e130, 1e-190)
    rows = np.random.default_rng(4).uniform(-1, 1, (15, 255))
    _check(backward, (rows * spread).astype(dtype), ((rows + rows[::-1]) * factor).astype(dtype), 0.0)


# Exact results ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm"])
@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_one_element_groups_have_no_gradient(name: str, eps: float, dtype: Any) -> None:
    """Exactly zero, whatever the weight: y is the bias."""
    (backward,) = (b for b in BACKWARDS if b.name == name)
    x = np.resize([1e8, -3.7, 1e-20, 0.1, 7e37, 5e-324], (15, 1)).astype(dtype)
    case = backward.case(x, 1 + upstream(x), eps)
    assert case.p.weight is not None
    weight = np.resize([1e16, -1e16, 0.5], case.p.weight.shape).astype(dtype)
    for used in (case.without_weight(), replace(case, p=replace(case.p, weight=weight))):
        dx, dweight, dbias = backward.of(used)
        assert not dx.any()
        assert not dweight.any()
        assert gradient_oracle.units(dbias, backward.exact(used).bias) <= BOUND


@pytest.mark.parametrize("eps", [1e-5, 0.0])
@pytest.mark.parametrize(("backward", "layout"), [p for p in _problems(TRAINING) if "rms" not in p.id])
def test_constant_groups(backward: Backward, layout: layouts.Layout, eps: float, dtype: Any) -> None:
    """xhat is exactly 0: no gradient to the weight; dx = rstd (g - mean(g)), and 0 where rstd is."""
    info = np.finfo(dtype)
    values = np.resize([0.0, 0.1, -1234, 1e7, 1e-30, 1 / 3, info.max, info.smallest_subnormal], 15)
    for elements in (2, 9, 255, 4099):
        x = np.repeat(values.astype(dtype)[:, None], elements, axis=1)
        case = backward.case(x, upstream(x), eps, layout)
        dx, dweight, _ = backward.of(case)
        assert not dweight.any()
        assert eps or not dx.any()
        _check_case(backward, case)


def test_groups_of_other_groups_kinds_stay_apart(dtype: Any) -> None:
    """Constant, subnormal, huge and ordinary groups next to each other, one with 1/std beyond the type."""
    trap = _trap("rows of different kinds")
    x = trap(60, 66, dtype)
    dy = upstream(x)
    for backward in TRAINING:
        _check(backward, x, dy, trap.eps)


# Non-finite values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["x", "dy"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(("backward", "layout"), _problems())
def test_a_non_finite_value_spoils_the_dx_of_no_other_group(
    backward: Backward, layout: layouts.Layout, bad: float, where: str, dtype: Any
) -> None:
    """Its own group is not finite as a whole; of frozen statistics only the element itself is touched."""
    for elements in (6, 255, 4099):
        x = _trap("mean 3, spread 0.5, no eps")(15, elements, dtype)
        dy = upstream(x)
        clean = backward.case(x, dy, 1e-5, layout)
        wanted = backward.of(clean).x
        for place in (0, elements // 2, elements - 1):
            spoilt, marks = (x if where == "x" else dy).copy(), np.zeros_like(x)
            spoilt[7, place] = bad
            marks[7, place if backward.norm.running else slice(None)] = 1
            with np.errstate(invalid="ignore"):
                dirty = backward.case(*((spoilt, dy) if where == "x" else (x, spoilt)), 1e-5, layout)
            dirty = replace(dirty, p=clean.p)
            if backward.norm.running:
                dirty = replace(dirty, statistics=clean.statistics)
            own = layout(backward.norm.arrange(marks))[0] == 1
            dx = backward.of(dirty).x
            np.testing.assert_array_equal(dx[~own], wanted[~own])
            if not (backward.norm.running and where == "x"):
                assert not np.isfinite(dx[own]).any()


@each_training
def test_statistics_that_are_nan_spoil_their_own_group(backward: Backward, dtype: Any) -> None:
    x = _trap("normal")(15, 66, dtype)
    case = backward.case(x, upstream(x), 1e-5)
    wanted = backward.of(case).x
    own = backward.norm.arrange(np.repeat(np.arange(15.0)[:, None], 66, axis=1)) == 7
    for i in range(len(case.statistics)):
        statistics = tuple(s.copy() for s in case.statistics)
        statistics[i].reshape(-1)[7] = np.nan
        dx = backward.of(replace(case, statistics=statistics)).x
        assert not np.isfinite(dx[own]).any()
        np.testing.assert_array_equal(dx[~own], wanted[~own])
