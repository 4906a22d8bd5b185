"""Checks that the tests of every backward function share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
import gradient_oracle
import layouts
import oracle
from gradients import BOUND, worst_units
from peer import PEER_UNITS, tensor

Array = NDArray[Any]

NAMES = ("x", "weight", "bias")

#: Every choice of what is computed.
NEEDS = [need for count in range(4) for need in combinations(NAMES, count)]


def assert_gradients(
    call: Callable[..., cnorm.Gradients], exact: gradient_oracle.ExactGradients, weighted: bool
) -> cnorm.Gradients:
    """All three gradients are right, and those of every smaller choice have the same bits.

    ``call`` takes ``need``; without it, weight and bias come where a weight is given.
    """
    everything = call(need=NAMES)
    assert isinstance(everything, cnorm.Gradients)
    worst = worst_units(everything, exact)
    assert max(worst) <= BOUND, worst
    chosen = {need: call(need=need) for need in NEEDS}
    chosen |= {(name,): call(need=name) for name in NAMES}
    chosen[NAMES if weighted else ("x",)] = call()
    for need, gradients in chosen.items():
        for name, value, wanted in zip(NAMES, gradients, everything, strict=True):
            assert (value is not None) == (name in need), (need, name)
            if value is not None:
                np.testing.assert_array_equal(value, wanted, err_msg=f"{name} of {need}", strict=True)
    return everything


def assert_reads_only(call: Callable[..., cnorm.Gradients], *arrays: Array | None) -> None:
    """Two calls share dy and the others: nothing is written to, and both return the same."""
    before = [None if a is None else a.copy() for a in arrays]
    for a in arrays:
        if a is not None:
            a.flags.writeable = False
    first, second = call(need=NAMES), call(need=NAMES)
    for a, old in zip(arrays, before, strict=True):
        if a is not None and old is not None:
            np.testing.assert_array_equal(a, old)
            a.flags.writeable = True
    for one, other in zip(first, second, strict=True):
        assert not any(a is not None and np.shares_memory(one, a) for a in arrays)
        assert not np.shares_memory(one, other)
        np.testing.assert_array_equal(one, other)


def assert_dx_goes_to_out(call: Callable[..., cnorm.Gradients], dy: Array) -> None:
    """Into an array that is given, and into dy itself; ``call`` takes dy, need and out."""
    wanted = call(dy, need=NAMES)
    out = np.full_like(wanted.x, np.nan)
    for target in (out, dy.copy()):
        source = dy if target is out else target
        result = call(source, need=NAMES, out=target)
        assert result.x is target
        for ours, right in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(ours, right)


def assert_any_dy_layout(
    call: Callable[[Array], cnorm.Gradients],
    dy: Array,
    exact: gradient_oracle.ExactGradients,
    channels: bool = False,
) -> None:
    """``call`` takes dy and has an x of a layout of its own; with a channel axis, that is axis 1."""
    dy_layouts = dict(layouts.ANY)
    if channels:
        dy_layouts["channels last view"] = layouts.channels_last_view
    for name, layout in dy_layouts.items():
        worst = worst_units(call(layout(dy)[0]), exact)
        assert max(worst) <= BOUND, (name, worst)


def autograd(forward: Callable[..., Any], dy: Array, *inputs: Array | None) -> list[Array | None]:
    """PyTorch's gradients of ``sum(dy * forward(*inputs))`` to the inputs that are given."""
    tensors = [tensor(value) for value in inputs]
    for value in tensors:
        if value is not None:
            value.requires_grad_()
    forward(*tensors).backward(tensor(dy))
    return [None if value is None else value.grad.numpy() for value in tensors]


def assert_parity(
    gradients: cnorm.Gradients, theirs: list[Array | None], exact: gradient_oracle.ExactGradients
) -> None:
    """Ours equal PyTorch's float64 gradients within the errors of both; theirs of xhat = 0 is not 0."""
    for ours, peers, right in zip(gradients, theirs, (exact.x, exact.weight, exact.bias), strict=True):
        if peers is not None:
            difference = np.abs(ours.astype(oracle.Long) - peers)
            scale = np.maximum(right.scale, exact.bias.scale)
            assert (difference <= (PEER_UNITS + BOUND) * 2.0**-53 * scale).all()


def differences(loss: Callable[[Array], Any], at: Array, step: float = 1e-5) -> Array:
    """Central differences of a scalar function of a float64 array."""
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        above, below = at.copy(), at.copy()
        above[index] += step
        below[index] -= step
        result[index] = (loss(above) - loss(below)) / (2 * step)
    return result


def assert_differences(gradient: Array, loss: Callable[[Array], Any], at: Array) -> None:
    """A central difference is off by its step's square, and by the rounding of the loss over its step."""
    by_differences = differences(loss, at)
    np.testing.assert_allclose(gradient, by_differences, rtol=0, atol=1e-6 * np.abs(by_differences).max())
