"""The gradient oracle against finite differences in 800 decimal digits: no formula of a gradient is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

import gradient_oracle
import oracle
from gradient_oracle import ExactGradient
from norms import far_from_one
from traps import TRAPS, Trap

pytestmark = pytest.mark.skipif(not oracle.EXTENDED, reason="numpy.longdouble has no 64-bit significand here")

#: Steps of a central difference in spreads; its relative error is the square of it.
STEP = Decimal(10) ** -120

Loss = Callable[[list[Decimal]], Decimal]


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    """800 digits hold any float64 squared."""
    with localcontext() as context:
        context.prec = 800
        yield


def _exact(value: Any) -> Decimal:
    numerator, denominator = value.as_integer_ratio()
    return Decimal(numerator) / Decimal(denominator)


def _decimals(values: np.ndarray) -> list[Decimal]:
    return [_exact(v) for v in values.reshape(-1)]


def _square(group: list[Decimal], centred: bool) -> Decimal:
    mean = sum(group) / len(group) if centred else Decimal(0)
    return sum(((v - mean) ** 2 for v in group), Decimal(0)) / len(group)


def _normalised(group: list[Decimal], eps: Decimal, centred: bool) -> list[Decimal]:
    mean = sum(group) / len(group) if centred else Decimal(0)
    square = _square(group, centred) + eps
    rstd = 1 / square.sqrt() if square else Decimal(0)
    return [(v - mean) * rstd for v in group]


def _difference(loss: Loss, at: list[Decimal], i: int, step: Decimal) -> Decimal:
    above, below = at.copy(), at.copy()
    above[i] += step
    below[i] -= step
    return (loss(above) - loss(below)) / (2 * step)


def _group_gradient(group: list[Decimal], g: list[Decimal], eps: Decimal, centred: bool) -> list[Decimal]:
    """The derivative of sum(g * xhat) to each element of the group."""
    square = _square(group, centred) + eps
    if not square:
        return [Decimal(0) for _ in group]  # a constant group without eps has xhat = 0 by definition

    def loss(values: list[Decimal]) -> Decimal:
        return sum((a * b for a, b in zip(g, _normalised(values, eps, centred), strict=True)), Decimal(0))

    step = STEP * square.sqrt()
    return [_difference(loss, group, i, step) for i in range(len(group))]


def _worst(ours: ExactGradient, wanted: dict[tuple[int, ...], Decimal], dtype: Any) -> float:
    """The oracle's largest error, in units of the type it judges."""
    u, worst = Decimal(oracle.unit(dtype)), Decimal(0)
    scale = np.broadcast_to(ours.scale, ours.values.shape)
    assert len(wanted) == ours.values.size
    for index, right in wanted.items():
        error = abs(_exact(ours.values[index]) - right)
        assert not error or scale[index] > 0, index
        worst = max(worst, error / (u * _exact(scale[index])) if error else Decimal(0))
    return float(worst)


Index = tuple[int, ...]


def _check(
    ours: gradient_oracle.ExactGradients,
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    eps: float,
    group_of: Callable[[Index], Index],
    parameter_of: Callable[[Index], Index],
    centred: bool = True,
    offset: float = 0.0,
) -> None:
    """All three gradients, with the group and the parameter of each element told by its index."""
    groups: dict[Index, list[Index]] = {}
    for index in np.ndindex(x.shape):
        groups.setdefault(group_of(index), []).append(index)
    to_x: dict[Index, Decimal] = {}
    to_weight: dict[Index, Decimal] = dict.fromkeys(np.ndindex(weight.shape), Decimal(0))
    to_bias = to_weight.copy()
    for members in groups.values():
        group = [_exact(x[i]) for i in members]
        factors = [_exact(weight.dtype.type(offset) + weight[parameter_of(i)]) for i in members]
        g = [_exact(dy[i]) * w for i, w in zip(members, factors, strict=True)]
        to_x |= zip(members, _group_gradient(group, g, Decimal(eps), centred), strict=True)
        for i, xhat in zip(members, _normalised(group, Decimal(eps), centred), strict=True):
            to_weight[parameter_of(i)] += _exact(dy[i]) * xhat
            to_bias[parameter_of(i)] += _exact(dy[i])
    assert _worst(ours.x, to_x, x.dtype) < 0.05
    assert _worst(ours.weight, to_weight, x.dtype) < 0.05
    assert _worst(ours.bias, to_bias, x.dtype) < 0.05


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_layer_norm_on_every_trap(trap: Trap, dtype: Any) -> None:
    x = trap(5, 7, dtype)
    rng = np.random.default_rng(3)
    dy, weight = rng.standard_normal(x.shape).astype(dtype), far_from_one(rng, 7, dtype)
    ours = gradient_oracle.layer_norm(dy, x, weight, trap.eps)
    _check(ours, dy, x, weight, trap.eps, lambda i: i[:1], lambda i: i[1:])


@pytest.mark.parametrize("trap", TRAPS[::3], ids=lambda trap: trap.name)
def test_rms_norm(trap: Trap, dtype: Any) -> None:
    x = trap(5, 7, dtype)
    rng = np.random.default_rng(4)
    dy, weight = rng.standard_normal(x.shape).astype(dtype), far_from_one(rng, 7, dtype)
    for offset in (0.0, 1.0):
        ours = gradient_oracle.rms_norm(dy, x, weight, trap.eps, weight_offset=offset)
        _check(ours, dy, x, weight, trap.eps, lambda i: i[:1], lambda i: i[1:], False, offset)


def _images(dtype: Any, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dy, x and weight of (2, 4, 3, 2) with the channels moved to ``axis``."""
    rng = np.random.default_rng(5)
    x = np.moveaxis(100 + rng.standard_normal((2, 4, 3, 2)).astype(dtype), 1, axis)
    dy = rng.standard_normal(x.shape).astype(dtype)
    return dy, x, far_from_one(rng, 4, dtype)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_norms_with_a_channel_axis(axis: int, dtype: Any) -> None:
    dy, x, weight = _images(dtype, axis)
    eps = 1e-5

    def channel(i: Index) -> Index:
        return (i[axis],)

    ours = gradient_oracle.batch_norm(dy, x, weight, eps, axis=axis)
    _check(ours, dy, x, weight, eps, channel, channel)
    ours = gradient_oracle.instance_norm(dy, x, weight, eps, axis=axis)
    _check(ours, dy, x, weight, eps, lambda i: (i[0], i[axis]), channel)
    for groups in (1, 2, 4):
        ours = gradient_oracle.group_norm(dy, x, groups, weight, eps, axis=axis)
        _check(ours, dy, x, weight, eps, lambda i, g=groups: (i[0], i[axis] * g // 4), channel)


def test_trailing_axes(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    x, dy = (5 + rng.standard_normal((2, 3, 2, 3)).astype(dtype) for _ in range(2))
    for axes in (1, 2, 3, 4):
        first = 4 - axes
        weight = far_from_one(rng, x.shape[first:], dtype)
        ours = gradient_oracle.layer_norm(dy, x, weight, axes=axes)
        _check(ours, dy, x, weight, 1e-5, lambda i, f=first: i[:f], lambda i, f=first: i[f:])


def test_frozen_statistics_are_constants(dtype: Any) -> None:
    """xhat is linear in x then, with the mean and rstd that are given."""
    dy, x, weight = _images(dtype, 1)
    rng = np.random.default_rng(7)
    mean, rstd = (100 + rng.standard_normal(4)).astype(dtype), rng.uniform(0.1, 9, 4).astype(dtype)
    ours = gradient_oracle.batch_norm_frozen(dy, x, mean, rstd, weight)
    to_x = {i: _exact(dy[i]) * _exact(weight[i[1]]) * _exact(rstd[i[1]]) for i in np.ndindex(x.shape)}
    to_weight = dict.fromkeys(np.ndindex(4), Decimal(0))
    for i in np.ndindex(x.shape):
        to_weight[i[1:2]] += _exact(dy[i]) * (_exact(x[i]) - _exact(mean[i[1]])) * _exact(rstd[i[1]])
    assert _worst(ours.x, to_x, dtype) < 0.05
    assert _worst(ours.weight, to_weight, dtype) < 0.05


def test_units_of_known_errors() -> None:
    """One spacing beside the largest is 1 or 2 units; NaN and wrong infinities are never small."""
    exact = ExactGradient(np.array([-4.0, 1.0], np.longdouble), np.array(4, np.longdouble), np.zeros(2))
    right = exact.values.astype(np.float32)
    assert gradient_oracle.units(right, exact) == 0
    assert gradient_oracle.units(np.nextafter(right, np.float32(9)), exact) == pytest.approx(1)
    for wrong in (np.nan, np.inf, -np.inf):
        assert gradient_oracle.units(np.array([-4, wrong], np.float32), exact) == np.inf


def test_infinity_is_the_right_rounding_of_what_exceeds_the_type() -> None:
    beyond = np.array([-1e39, 2.0**100], np.longdouble)
    exact = ExactGradient(beyond, np.array(1e39, np.longdouble), np.zeros(2))
    assert gradient_oracle.units(np.array([-np.inf, 2.0**100], np.float32), exact) == 0
    assert gradient_oracle.units(np.array([np.inf, 2.0**100], np.float32), exact) == np.inf
    assert gradient_oracle.units(np.array([-np.inf, np.inf], np.float32), exact) == np.inf


@pytest.mark.parametrize("dy", [[1.0, -3.0], [2.0, 2.0]])
def test_the_scale_of_a_gradient_that_cancels_is_that_of_its_terms(dy: list[float]) -> None:
    """Two elements have xhat = -1 and 1, and any g is in the span of 1 and that."""
    x, weight = np.array([[1.0, 3.0]]), np.array([5.0, 5.0])
    exact = gradient_oracle.layer_norm(np.array([dy]), x, weight, 0.0).x
    assert np.abs(exact.values).max() < 1e-15
    np.testing.assert_allclose(exact.scale.astype(float), 5 * max(np.abs(dy)), rtol=1e-15)
