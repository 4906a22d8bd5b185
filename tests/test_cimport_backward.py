"""Other Cython code cimports the backward kernels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
from consumer import build
from gradients import BACKWARDS, BOUND, Backward, Case, upstream, worst_units
from norms import GROUPS
from traps import TRAPS

pytestmark = pytest.mark.usefixtures("native")

MODULE = """
# cython: language_level=3, boundscheck=False
from cython cimport floating
from cnorm.native._cnorm cimport (
    batch_norm_backward_view, group_norm_backward_view, instance_norm_backward_view, layer_norm_backward_view,
    rms_norm_backward_view,
)


def layer_norm(const floating[:, ::1] dy, const floating[:, ::1] x, const floating[::1] mean,
               const floating[::1] rstd, const floating[::1] weight, floating[:, ::1] dx,
               floating[::1] dweight, floating[::1] dbias):
    cdef int status
    with nogil:
        status = layer_norm_backward_view(dy, x, mean, rstd, weight, dx, dweight, dbias)
    return status


def rms_norm(const floating[:, ::1] dy, const floating[:, ::1] x, const floating[::1] rstd,
             const floating[::1] weight, double weight_offset, floating[:, ::1] dx, floating[::1] dweight,
             floating[::1] dbias):
    cdef int status
    with nogil:
        status = rms_norm_backward_view(dy, x, rstd, weight, weight_offset, dx, dweight, dbias)
    return status


def group_norm(const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
               const floating[::1] rstd, size_t groups, const floating[::1] weight, bint channels_last,
               floating[:, :, ::1] dx, floating[::1] dweight, floating[::1] dbias):
    cdef int status
    with nogil:
        status = group_norm_backward_view(
            dy, x, mean, rstd, groups, weight, channels_last, dx, dweight, dbias)
    return status


def instance_norm(const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
                  const floating[::1] rstd, const floating[::1] weight, bint channels_last,
                  floating[:, :, ::1] dx, floating[::1] dweight, floating[::1] dbias):
    cdef int status
    with nogil:
        status = instance_norm_backward_view(dy, x, mean, rstd, weight, channels_last, dx, dweight, dbias)
    return status


def batch_norm(const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
               const floating[::1] rstd, const floating[::1] weight, bint training, bint channels_last,
               floating[:, :, ::1] dx, floating[::1] dweight, floating[::1] dbias):
    cdef int status
    with nogil:
        status = batch_norm_backward_view(
            dy, x, mean, rstd, weight, training, channels_last, dx, dweight, dbias)
    return status
"""

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("consumer_backward", MODULE, tmp_path_factory.mktemp("consumer"))


def arguments(backward: Backward, case: Case) -> list[Any]:
    """What a view function takes before its outputs; statistics are 1-D for it."""
    statistics = [s.reshape(-1) for s in case.statistics]
    last = case.axis == -1
    return {
        "layer_norm": [*statistics, case.p.weight],
        "rms_norm": [*statistics, case.p.weight, 0.0],
        "group_norm": [*statistics, GROUPS, case.p.weight, last],
        "instance_norm": [*statistics, case.p.weight, last],
        "batch_norm training": [*statistics, case.p.weight, True, last],
        "batch_norm inference": [*statistics, case.p.weight, False, last],
    }[backward.name]


def outputs(case: Case) -> cnorm.Gradients:
    size = case.p.bias.size  # type: ignore[union-attr]
    return cnorm.Gradients(
        np.full_like(case.x, np.nan),
        np.full(size, np.nan, case.x.dtype),
        np.full(size, np.nan, case.x.dtype),
    )


@each_backward
def test_gradients(consumer: ModuleType, backward: Backward, dtype: Any) -> None:
    """All of them, each alone, none, without a weight, and in place of dy; in both layouts."""
    rows = TRAPS[2](15, 257, dtype)
    call = getattr(consumer, backward.norm.op)
    places = (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]
    weighted = [backward.case(rows, upstream(rows), 1e-5, layout) for layout in places]
    for case in (*weighted, *(case.without_weight() for case in weighted)):
        for array in (case.dy, case.x, *case.statistics):
            array.flags.writeable = False
        wanted = backward.of(case)
        given = arguments(backward, case)
        gradients = outputs(case)
        assert call(case.dy, case.x, *given, *gradients) == 0
        assert max(worst_units(gradients, backward.exact(case))) <= BOUND
        for i, right in enumerate(wanted):
            np.testing.assert_array_equal(gradients[i], right)
            alone = [output if i == k else None for k, output in enumerate(outputs(case))]
            assert call(case.dy, case.x, *given, *alone) == 0
            np.testing.assert_array_equal(alone[i], right)
        assert call(case.dy, case.x, *given, None, None, None) == 0
        dy = case.dy.copy()
        assert call(dy, case.x, *given, dy, None, None) == 0
        np.testing.assert_array_equal(dy, wanted.x)


@each_backward
def test_mistakes_are_a_status_and_write_nothing(
    consumer: ModuleType, backward: Backward, dtype: Any
) -> None:
    rows = TRAPS[2](15, 255, dtype)
    case = backward.case(rows, upstream(rows), 1e-5)
    call = getattr(consumer, backward.norm.op)
    given = arguments(backward, case)
    gradients = outputs(case)
    right = [case.dy, case.x, *given, *gradients]
    assert call(*right) == 0
    before = [g.copy() for g in gradients if g is not None]
    for i, value in enumerate(right):
        if isinstance(value, np.ndarray):
            short = np.ascontiguousarray(value[:-1])
            assert call(*right[:i], short, *right[i + 1 :]) != 0, i
            optional = value is case.p.weight or i >= len(right) - 3
            if i > 0 and not optional:  # the first array tells which type the call is of
                assert call(*right[:i], None, *right[i + 1 :]) != 0, i
    if backward.norm.op == "group_norm":
        for groups in (0, 2, GROUPS + 1):
            assert call(*right[:4], groups, *right[5:]) != 0
    assert call(*right[:-3], case.x, None, None) != 0, "dx in place of x"
    assert call(*right[:-2], gradients.weight, gradients.weight) != 0
    for after, old in zip(gradients, before, strict=True):
        np.testing.assert_array_equal(after, old)


@each_backward
def test_an_empty_batch_has_parameter_gradients_of_zero(
    consumer: ModuleType, backward: Backward, dtype: Any
) -> None:
    rows = TRAPS[2](15, 255, dtype)
    case = backward.case(rows, upstream(rows), 1e-5)
    gradients = outputs(case)
    empty = case.x[:0]
    given = arguments(backward, case)
    if not backward.norm.groups_cross_samples and not backward.norm.running:
        given = [v[:0] if isinstance(v, np.ndarray) and v is not case.p.weight else v for v in given]
    call = getattr(consumer, backward.norm.op)
    assert call(empty, empty, *given, empty.copy(), gradients.weight, gradients.bias) == 0
    assert not np.any(gradients.weight)
    assert not np.any(gradients.bias)
