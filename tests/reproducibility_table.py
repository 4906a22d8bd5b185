"""Print one hash per op, and whether it is the same over levels, threads and alignments.

Run as ``python tests/reproducibility_table.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import cnorm
from norms import NORMS, Norm, Parameters
from placement import at_offset, digest, offsets
from traps import TRAPS

THREADS = (1, 2, 3, 7)


def _problems(norm: Norm) -> list[tuple[np.ndarray, Parameters, float]]:
    return [
        (x, norm.parameters(x), trap.eps)
        for dtype in (np.float32, np.float64)
        for trap in TRAPS[::9]
        for rows, elements in ((15, 255), (60, 1031), (5, 20_001))
        for x in [norm.arrange(trap(rows, elements, dtype))]
    ]


def _hash(norm: Norm, problems: list[tuple[np.ndarray, Parameters, float]], offset: int) -> str:
    return digest(norm.call(at_offset(x, offset), p.copy(), eps) for x, p, eps in problems)


def _alone(norm: Norm) -> str:
    """Whether each sample alone has the bits it has in its batch."""
    if norm.groups_cross_samples:
        return "-"
    for x, p, eps in _problems(norm):
        whole = norm.call(x, p, eps)
        if any(digest([norm.call(x[i : i + 1], p, eps)]) != digest([whole[i]]) for i in range(len(x))):
            return "NO"
    return "yes"


def print_header(alone: str) -> None:
    """What was varied, and the head of the table; ``alone`` names its last column."""
    levels = ", ".join(cnorm.isa_levels())
    print(f"cnorm {cnorm.__version__}, {cnorm.backend} backend")
    print(f"levels {levels} x threads {THREADS} x bytes after a multiple of 64: {offsets(4)}\n")
    print(f"| op | hash | identical over levels x threads x alignments | {alone} |")
    print("|---|---|---|---|")


def print_row(name: str, hash_at: Callable[[int], str], alone: str) -> None:
    """One op: ``hash_at(offset)`` computes everything from arrays that begin there."""
    levels, hashes = cnorm.isa_levels(), set()
    for level in levels:
        cnorm.set_isa(level)
        for threads in THREADS:
            with cnorm.num_threads(threads):
                hashes |= {hash_at(offset) for offset in offsets(4)}
    cnorm.set_isa(levels[0])
    count = len(levels) * len(THREADS) * len(offsets(4))
    same = f"yes, {count} of {count}" if len(hashes) == 1 else f"NO: {len(hashes)} hashes of {count}"
    print(f"| {name} | {min(hashes)} | {same} | {alone} |")


def main() -> None:
    print_header("alone as in a batch")
    for norm in NORMS:
        print_row(norm.name, partial(_hash, norm, _problems(norm)), _alone(norm))


if __name__ == "__main__":
    main()
