"""Arrays at chosen addresses, and hashes of results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def at_offset(x: Array, offset: int) -> Array:
    """A contiguous copy of ``x`` that begins ``offset`` bytes after a multiple of 64."""
    raw = np.zeros(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    view = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def offsets(itemsize: int) -> tuple[int, ...]:
    """Aligned to a cache line, every kind of misaligned vector, and misaligned elements."""
    return (0, itemsize, 3 * itemsize, 16, 32, 64 - itemsize, 1)


def digest(arrays: Iterable[Array]) -> str:
    """One hash of the bytes of all arrays, in C order."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:16]
