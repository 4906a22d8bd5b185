"""N5 of gradients: their bits do not depend on level, threads, alignment, or place in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
from conftest import THREAD_COUNTS
from gradients import BACKWARDS, Backward, Case, upstream
from norms import GROUPS
from placement import at_offset, digest, offsets
from traps import TRAPS

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)

#: Rows x elements: tails, blocks, enough work for a parallel region; and for the first trap, many samples
#: whose parameter gradients are merged, and few long rows that threads must share.
SIZES = ((15, 7), (35, 255), (30, 4099), (3000, 35), (GROUPS, 50_001))

#: A trap whose sums depend on their order, and two that leave the ordinary path.
HASHED = ("first element 1e8", "every magnitude", "rows of different kinds")


def _cases(backward: Backward, dtype: Any) -> Iterator[Case]:
    for trap in TRAPS:
        if trap.name in HASHED:
            for rows, elements in SIZES[: 5 if trap.name == HASHED[0] else 3]:
                x = trap(rows, elements, dtype)
                for layout in (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]:
                    yield backward.case(x, upstream(x), trap.eps, layout)


@each_backward
def test_one_hash_over_levels_and_threads(backward: Backward, dtype: Any) -> None:
    cases = list(_cases(backward, dtype))
    hashes = {}
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            with cnorm.num_threads(threads):
                hashes[level, threads] = [digest(backward.of(case)) for case in cases]
    first = next(iter(hashes.values()))
    assert len(set(first)) == len(cases), "the problems differ, so their hashes must"
    for key, value in hashes.items():
        assert value == first, key


@each_backward
def test_one_hash_over_alignments(backward: Backward, dtype: Any, level: str) -> None:
    """x, dy, dx, weight and statistics at every kind of address; also in place."""
    for rows, elements in ((15, 7), (15, 255), (GROUPS, 20_001)):
        x = TRAPS[2](rows, elements, dtype)
        for layout in (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]:
            case = backward.case(x, upstream(x), 1e-5, layout)
            assert case.p.weight is not None
            wanted = digest(backward.of(case))
            for offset in offsets(dtype.itemsize):
                for dy_offset in offsets(dtype.itemsize)[:: 1 if elements < 1000 else 3]:
                    placed = replace(
                        case,
                        dy=at_offset(case.dy, dy_offset),
                        x=at_offset(case.x, offset),
                        p=replace(case.p, weight=at_offset(case.p.weight, dy_offset)),
                        statistics=tuple(at_offset(s, offset) for s in case.statistics),
                    )
                    out = at_offset(np.zeros_like(case.x), dy_offset)
                    assert digest(backward.of(placed, out=out)) == wanted, (offset, dy_offset)
                in_place = backward.of(placed, out=placed.dy)
                assert digest(in_place) == wanted, (offset, "in place")


def _dx_of(backward: Backward, case: Case, some: slice) -> np.ndarray:
    """dx of some of the samples, called with those alone."""
    statistics = case.statistics
    if not backward.norm.running:
        statistics = tuple(s[some] for s in statistics)
    part = replace(case, dy=case.dy[some], x=case.x[some], statistics=statistics)
    return backward.of(part, need="x").x


@pytest.mark.parametrize(
    "backward", [b for b in BACKWARDS if not b.norm.groups_cross_samples], ids=lambda backward: backward.name
)
@pytest.mark.parametrize(("elements", "batch"), [(7, 60), (255, 60), (4099, 24), (50_001, 3)])
def test_dx_of_a_sample_alone_is_that_in_a_batch(
    backward: Backward, elements: int, batch: int, dtype: Any
) -> None:
    """Each sample alone, in part of the batch, and in a batch that is reversed."""
    rows = TRAPS[2](batch * GROUPS, elements, dtype)
    dy, channels = upstream(rows), backward.norm.channels
    if channels:
        rows, dy = (v.reshape(batch, GROUPS, elements) for v in (rows, dy))
    for name in ("contiguous", "columns", "channels last", "channels last view")[: 4 if channels else 2]:
        x, axis = (layouts.ANY | layouts.CHANNELS)[name](rows)
        upward, _ = (layouts.ANY | layouts.CHANNELS)[name](dy)
        p = backward.norm.parameters(np.ascontiguousarray(x), axis=axis)
        case = Case(upward, x, p, 1e-5, axis, backward.statistics(x, p, 1e-5, axis))
        whole = _dx_of(backward, case, slice(None))
        for i in {0, 1, batch // 2, batch - 1}:
            alone = _dx_of(backward, case, slice(i, i + 1))
            np.testing.assert_array_equal(alone[0], whole[i], err_msg=name)
        part = slice(1, 1 + batch // 2)
        np.testing.assert_array_equal(_dx_of(backward, case, part), whole[part], err_msg=name)
        turned = _dx_of(backward, case, slice(None, None, -1))
        np.testing.assert_array_equal(turned[::-1], whole, err_msg=name)


@each_backward
def test_the_same_call_twice(backward: Backward, dtype: Any, threads: int) -> None:
    """Partial sums merged in order of arrival would differ from run to run."""
    for rows, elements in ((GROUPS, 50_001), (3000, 35)):
        x = TRAPS[2](rows, elements, dtype)
        case = backward.case(x, upstream(x), 1e-5)
        assert len({digest(backward.of(case)) for _ in range(4)}) == 1


@each_backward
def test_what_else_is_needed_and_where_it_goes_do_not_matter(backward: Backward, dtype: Any) -> None:
    """dx alone or with the parameters' gradients, new, given, strided or of the other memory order."""
    x = TRAPS[2](15, 4099, dtype)
    case = backward.case(x, upstream(x), 1e-5)
    wanted = backward.of(case)
    np.testing.assert_array_equal(backward.of(case, need="x").x, wanted.x)
    np.testing.assert_array_equal(backward.of(case, need="weight").weight, wanted.weight)
    np.testing.assert_array_equal(backward.of(case, need="bias").bias, wanted.bias)
    for layout in (layouts.contiguous, layouts.columns, layouts.steps, layouts.reversed_all):
        out, _ = layout(np.zeros_like(case.x))
        np.testing.assert_array_equal(backward.of(case, out=out).x, wanted.x, strict=True)
