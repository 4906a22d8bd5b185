"""No byte beyond an array is read or written: arrays lie against pages that may not be touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from norms import NORMS
from processes import answer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages with Linux's mprotect")

CODE = """
import ctypes
import mmap
import sys

sys.path.insert(0, {tests!r})
import numpy as np

import cnorm
from norms import NORMS, Parameters
from traps import TRAPS

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
maps = []


def guarded(array, at_end, writeable=False):
    \"\"\"A copy between two pages without access, at the end or at the beginning of what lies between.\"\"\"
    inner = max(1, -(-array.nbytes // PAGE)) * PAGE
    memory = mmap.mmap(-1, inner + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = PAGE + (inner - array.nbytes if at_end else 0)
    view = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    address = whole.ctypes.data
    for page in (address, address + PAGE + inner):
        assert libc.mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
    if not writeable:
        assert libc.mprotect(ctypes.c_void_p(address + PAGE), inner, 1) == 0
    maps.append((memory, address, inner))
    return view


def release():
    for memory, address, inner in maps:
        libc.mprotect(ctypes.c_void_p(address), inner + 2 * PAGE, 3)
    maps.clear()


(norm,) = [n for n in NORMS if n.name == {name!r}]
sizes = [(5, n) for n in range(2, 71)] + [(15, 255), (5, 4099), (60, 4099)]
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


@pytest.mark.parametrize("name", [norm.name for norm in NORMS])
def test_guard_pages(name: str) -> None:
    """In a process of its own, which a stray access would kill."""
    assert answer(CODE.format(tests=str(Path(__file__).parent), name=name)) == "passed"
