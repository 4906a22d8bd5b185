"""What the tests of gradients in odd layouts share: problems, and the check that nothing else is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import oracle
from gradients import BACKWARDS, BOUND, Backward, Case, upstream, worst_units
from traps import TRAPS

OFFSET = next(trap for trap in TRAPS if trap.name == "mean 1e4, spread 1")
EPS = 1e-5

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)
each_channel_backward = pytest.mark.parametrize(
    "backward", [b for b in BACKWARDS if b.norm.channels], ids=lambda backward: backward.name
)


def bytes_behind(x: np.ndarray) -> bytes:
    """All the memory of the buffer ``x`` is a view of, gaps included."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x.tobytes()


def arrays_of(case: Case) -> list[np.ndarray]:
    return [case.dy, case.x, *case.statistics, *([] if case.p.weight is None else [case.p.weight])]


def contiguous_copy(x: np.ndarray) -> np.ndarray:
    return np.array(x, dtype=x.dtype.newbyteorder("="), order="C")


def offset_case(
    backward: Backward,
    rows: int,
    elements: int,
    dtype: Any,
    layout: layouts.Layout = layouts.contiguous,
    dy_layout: layouts.Layout | None = None,
) -> Case:
    x = OFFSET(rows, elements, dtype)
    return backward.case(x, upstream(x), EPS, layout, dy_layout)


def arranged_case(backward: Backward, dy: np.ndarray, x: np.ndarray, axis: int = 1) -> Case:
    """The problem of arrays that are arranged already."""
    p = backward.norm.parameters(contiguous_copy(x), axis=axis)
    return Case(dy, x, p, EPS, axis, backward.statistics(x, p, EPS, axis))


def check(backward: Backward, case: Case) -> cnorm.Gradients:
    """Right, with nothing but the result changed; returns the gradients."""
    before = [bytes_behind(array) for array in arrays_of(case)]
    gradients = backward.of(case)
    assert [bytes_behind(array) for array in arrays_of(case)] == before
    assert type(gradients) is cnorm.Gradients
    assert all(type(gradient) is np.ndarray for gradient in gradients)
    assert gradients.x.dtype == case.x.dtype
    assert gradients.weight.dtype == gradients.bias.dtype == oracle.compute_dtype(case.x.dtype)
    exact = backward.exact(replace(case, dy=contiguous_copy(case.dy), x=contiguous_copy(case.x)))
    assert max(worst_units(gradients, exact)) <= BOUND, worst_units(gradients, exact)
    return gradients


def assert_same_bits(ours: cnorm.Gradients, wanted: cnorm.Gradients, message: str = "") -> None:
    for value, right in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(value, right, err_msg=message)
