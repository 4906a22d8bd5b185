"""N5: the bits of a result do not depend on level, threads, alignment, batch size or place in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
from conftest import THREAD_COUNTS
from norms import GROUPS, NORMS, Norm, Parameters
from placement import at_offset, digest, offsets
from traps import TRAPS

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)

#: Rows x elements: tails, blocks, enough work for a parallel region, and few long rows that threads must
#: share.
SIZES = ((15, 7), (35, 255), (60, 4099), (GROUPS, 50_001))

#: One benign trap, one whose sums depend on their order, and two that leave the ordinary path.
HASHED = ("normal", "first element 1e8", "every magnitude", "rows of different kinds")


def _inputs(norm: Norm, dtype: Any) -> Iterator[tuple[np.ndarray, int, float]]:
    for trap in TRAPS:
        if trap.name in HASHED:
            for rows, elements in SIZES:
                x = norm.arrange(trap(rows, elements, dtype))
                for layout in (layouts.contiguous, layouts.channels_last)[: 1 + norm.channels]:
                    yield *layout(x), trap.eps


def _results(norm: Norm, x: np.ndarray, p: Parameters, eps: float, axis: int) -> list[np.ndarray]:
    """Everything a call computes: y, statistics and running statistics."""
    p = p.copy()
    if norm.groups_cross_samples:
        compute = p.weight.dtype  # type: ignore[union-attr]
        p.running_mean, p.running_var = np.zeros(x.shape[axis], compute), np.ones(x.shape[axis], compute)
    results = list(norm.call(x, p, eps, axis, return_stats=True))
    if norm.groups_cross_samples:
        results += [p.running_mean, p.running_var]
    return results


@each_norm
def test_one_hash_over_levels_and_threads(norm: Norm, dtype: Any) -> None:
    problems = [(x, norm.parameters(x, axis=axis), eps, axis) for x, axis, eps in _inputs(norm, dtype)]
    hashes = {}
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            with cnorm.num_threads(threads):
                hashes[level, threads] = [digest(_results(norm, *problem)) for problem in problems]
    first = next(iter(hashes.values()))
    assert len(set(first)) == len(problems), "the problems differ, so their hashes must"
    for key, value in hashes.items():
        assert value == first, key


@each_norm
def test_one_hash_over_alignments(norm: Norm, dtype: Any, level: str) -> None:
    """Input, output and parameters at every kind of address; also in place."""
    for rows, elements in ((15, 7), (15, 255), (GROUPS, 20_001)):
        x = norm.arrange(TRAPS[2](rows, elements, dtype))
        for layout in (layouts.contiguous, layouts.channels_last)[: 1 + norm.channels]:
            arranged, axis = layout(x)
            p = norm.parameters(arranged, axis=axis)
            wanted = digest([norm.call(arranged, p, 1e-5, axis)])
            for offset in offsets(dtype.itemsize):
                for out_offset in offsets(dtype.itemsize):
                    moved, out = at_offset(arranged, offset), at_offset(arranged, out_offset)
                    placed = Parameters(
                        *(None if v is None else at_offset(v, out_offset) for v in vars(p).values())
                    )
                    result = norm.call(moved, placed, 1e-5, axis, out=out)
                    assert result is out
                    assert digest([result]) == wanted, (offset, out_offset)
                in_place = norm.call(moved, p, 1e-5, axis, out=moved)
                assert digest([in_place]) == wanted, (offset, "in place")


@pytest.mark.parametrize("norm", [n for n in NORMS if not n.groups_cross_samples], ids=lambda norm: norm.name)
@pytest.mark.parametrize(("elements", "batch"), [(7, 60), (255, 60), (4099, 24), (50_001, 3)])
def test_a_sample_alone_has_the_bits_it_has_in_a_batch(
    norm: Norm, elements: int, batch: int, dtype: Any
) -> None:
    """Each sample alone, in part of the batch, and in a batch that is reversed."""
    rows = TRAPS[2](batch * GROUPS, elements, dtype)
    samples = rows.reshape(batch, GROUPS, elements) if norm.channels else rows
    for name, layout in layouts.of(norm.channels, batch=False).items():
        if elements > 255 and name not in ("contiguous", "columns", "channels last"):
            continue
        x, axis = layout(samples)
        p = norm.parameters(np.ascontiguousarray(x).astype(dtype), axis=axis)
        whole = norm.call(x, p, 1e-5, axis)
        for i in {0, 1, batch // 2, batch - 1}:
            alone = norm.call(x[i : i + 1], p, 1e-5, axis)
            np.testing.assert_array_equal(alone[0], whole[i], err_msg=name)
        part = norm.call(x[1 : 1 + batch // 2], p, 1e-5, axis)
        np.testing.assert_array_equal(part, whole[1 : 1 + batch // 2], err_msg=name)
        turned = norm.call(x[::-1], p, 1e-5, axis)
        np.testing.assert_array_equal(turned[::-1], whole, err_msg=name)


@each_norm
def test_the_same_call_twice(norm: Norm, dtype: Any, threads: int) -> None:
    """Partial sums merged in order of arrival would differ from run to run."""
    x = norm.arrange(TRAPS[2](GROUPS, 50_001, dtype))
    p = norm.parameters(x)
    assert len({digest(_results(norm, x, p, 1e-5, 1)) for _ in range(8)}) == 1


@each_norm
def test_the_layout_of_the_output_does_not_matter(norm: Norm, dtype: Any) -> None:
    """An output that is given, new, strided or of the other memory order receives the same numbers."""
    x = norm.arrange(TRAPS[2](15, 4099, dtype))
    p = norm.parameters(x)
    wanted = norm.call(x, p, 1e-5)
    for layout in (layouts.contiguous, layouts.columns, layouts.steps, layouts.reversed_all):
        out, _ = layout(np.zeros_like(x))
        np.testing.assert_array_equal(norm.call(x, p, 1e-5, out=out), wanted, strict=True)
