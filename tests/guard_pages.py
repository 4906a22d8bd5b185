"""Arrays against pages that may not be touched, on Linux: a stray access ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PAGE = mmap.PAGESIZE
NO_ACCESS, READ, READ_WRITE = 0, 1, 3

_libc = ctypes.CDLL(None, use_errno=True)
_maps: list[tuple[mmap.mmap, int, int]] = []


def _protect(address: int, size: int, access: int) -> None:
    assert _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access) == 0


def guarded(array: Array, at_end: bool, writeable: bool = False) -> Array:
    """A copy between two pages without access, at the end or at the beginning of what lies between."""
    inner = max(1, -(-array.nbytes // PAGE)) * PAGE
    memory = mmap.mmap(-1, inner + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = PAGE + (inner - array.nbytes if at_end else 0)
    view = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    address = whole.ctypes.data
    for page in (address, address + PAGE + inner):
        _protect(page, PAGE, NO_ACCESS)
    if not writeable:
        _protect(address + PAGE, inner, READ)
    _maps.append((memory, address, inner))
    return view


def release() -> None:
    """Give the memory of all arrays back."""
    for _, address, inner in _maps:
        _protect(address, inner + 2 * PAGE, READ_WRITE)
    _maps.clear()
