"""Print one hash of the gradients of each op, and whether it is the same over levels, threads and alignments.

Run as ``python tests/gradient_reproducibility_table.py``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradients import BACKWARDS, Backward, Case, upstream
from placement import at_offset, digest
from reproducibility_table import print_header, print_row
from traps import TRAPS


def _cases(backward: Backward) -> list[Case]:
    return [
        backward.case(x, upstream(x), trap.eps)
        for dtype in (np.float32, np.float64)
        for trap in TRAPS[::9]
        for rows, elements in ((15, 255), (60, 1031), (1500, 35), (5, 20_001))
        for x in [trap(rows, elements, dtype)]
    ]


def _hash(backward: Backward, cases: list[Case], offset: int) -> str:
    gradients = [
        backward.of(replace(case, dy=at_offset(case.dy, offset), x=at_offset(case.x, offset)))
        for case in cases
    ]
    return digest(array for of_case in gradients for array in of_case)


def _dx_alone(backward: Backward, cases: list[Case]) -> str:
    """Whether dx of each sample alone has the bits it has in its batch."""
    if backward.norm.groups_cross_samples:
        return "-"
    for case in cases:
        whole = backward.of(case, need="x").x
        for i in range(min(len(whole), 20)):
            one = slice(i, i + 1)
            statistics = case.statistics
            if not backward.norm.running:
                statistics = tuple(s[one] for s in statistics)
            alone = replace(case, dy=case.dy[one], x=case.x[one], statistics=statistics)
            if digest([backward.of(alone, need="x").x[0]]) != digest([whole[i]]):
                return "NO"
    return "yes"


def main() -> None:
    print_header("dx alone as in a batch")
    for backward in BACKWARDS:
        cases = _cases(backward)
        print_row(backward.name, partial(_hash, backward, cases), _dx_alone(backward, cases))


if __name__ == "__main__":
    main()
