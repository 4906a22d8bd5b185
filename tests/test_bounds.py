"""No byte beyond an array is read or written: arrays lie against pages that may not be touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradients import BACKWARDS
from norms import NORMS
from processes import answer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages with Linux's mprotect")

SIZES = """
import sys

sys.path.insert(0, {tests!r})
import numpy as np

import cnorm
from guard_pages import guarded, release
from traps import TRAPS

lengths = (*range(2, 71), 81, 95, 96, 101, 112, 113, 127, 128)
sizes = [(5, n) for n in lengths] + [(15, 255), (5, 4099), (60, 4099)]
"""

FORWARD = """
from norms import NORMS, Parameters

(norm,) = [n for n in NORMS if n.name == {name!r}]
for level in cnorm.isa_levels():
    cnorm.set_isa(level)
    for dtype in (np.float32, np.float64):
        for rows, elements in sizes:
            x = norm.arrange(TRAPS[2](rows, elements, dtype))
            for last in (False, True)[: 1 + norm.channels]:
                arranged, axis = (np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1) if last else (x, 1)
                p = norm.parameters(arranged, axis=axis)
                wanted = norm.call(arranged, p, 1e-5, axis)
                for at_end in (True, False):
                    given = (None if v is None else guarded(v, at_end) for v in vars(p).values())
                    placed = Parameters(*given)
                    out = guarded(np.zeros_like(arranged), at_end, writeable=True)
                    norm.call(guarded(arranged, at_end), placed, 1e-5, axis, out=out)
                    assert np.array_equal(out, wanted)
                    del out, placed, given
                    release()
print("passed")
"""

#: By the backend's own functions, which are given dweight and dbias too.
BACKWARD = """
import layouts
from cnorm._backend import active
from gradients import BACKWARDS, upstream
from norms import GROUPS

(backward,) = [b for b in BACKWARDS if b.name == {name!r}]
kernel = getattr(active, backward.norm.op + "_backward")
options = {{
    "layer_norm": [], "rms_norm": [0.0], "group_norm": [GROUPS], "instance_norm": [],
    "batch_norm training": [True], "batch_norm inference": [False],
}}[backward.name]
for level in cnorm.isa_levels():
    cnorm.set_isa(level)
    for dtype in (np.float32, np.float64):
        for rows, elements in sizes:
            x = TRAPS[2](rows, elements, dtype)
            for layout in (layouts.contiguous, layouts.channels_last)[: 1 + backward.norm.channels]:
                case = backward.case(x, upstream(x), 1e-5, layout)
                arrays = [case.dy, case.x, *(s.reshape(-1) for s in case.statistics), case.p.weight]
                place = [layout is layouts.channels_last] if backward.norm.channels else []
                wanted = [np.zeros_like(array) for array in (case.x, case.p.weight, case.p.bias)]
                kernel(*arrays, *options, *place, *wanted)
                for at_end in (True, False):
                    inputs = [guarded(array, at_end) for array in arrays]
                    outputs = [guarded(np.zeros_like(w), at_end, writeable=True) for w in wanted]
                    kernel(*inputs, *options, *place, *outputs)
                    assert all(map(np.array_equal, outputs, wanted))
                    del inputs, outputs
                    release()
print("passed")
"""


def _passes(code: str, name: str) -> bool:
    """In a process of its own, which a stray access would kill."""
    return answer((SIZES + code).format(tests=str(Path(__file__).parent), name=name)) == "passed"


@pytest.mark.parametrize("name", [norm.name for norm in NORMS])
def test_guard_pages(name: str) -> None:
    assert _passes(FORWARD, name)


@pytest.mark.parametrize("name", [backward.name for backward in BACKWARDS])
def test_guard_pages_of_gradients(name: str) -> None:
    assert _passes(BACKWARD, name)
