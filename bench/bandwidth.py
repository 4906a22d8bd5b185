"""This machine's copy bandwidth: the limit that every op is measured against.

A copy of S bytes moves 2S, as a forward pass does, so its rate is the ceiling for a kernel that reads x once
and writes y once. It is measured between the case's own arrays, with cnorm's number of threads, in the same
rounds as the ops; the best of the ways to copy counts.
"""

import ctypes
import functools
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

import cnorm
from bench.machine import MIB
from bench.problem import Array

SMALLEST = MIB  # below this size a copy measures its own call, and no fraction is reported
PIECE = MIB // 4  # less than this per thread is not worth handing over


def copies(dst: Array, src: Array) -> dict[str, Callable[[], object]]:
    """Return every way to copy `src` to `dst`, by name; none when the arrays are too small to tell."""
    if src.nbytes < SMALLEST:
        return {}
    ways: dict[str, Callable[[], object]] = {
        "copy: numpy.copyto": functools.partial(np.copyto, dst, src),
        "copy: memcpy": threaded_memcpy(dst, src),
    }
    if cnorm.backend == "native":
        native = importlib.import_module("cnorm.native._cnorm")
        ways["copy: cnorm"] = functools.partial(native.copy, words(src), words(dst), False)
        ways["copy: past the caches"] = functools.partial(native.copy, words(src), words(dst), True)
    return ways


def words(array: Array) -> npt.NDArray[np.float32]:
    """The array's memory as 32-bit words."""
    return array.reshape(-1).view(np.float32)


def threaded_memcpy(dst: Array, src: Array) -> Callable[[], object]:
    """Return a call of memcpy, one piece for each of cnorm's threads."""
    pieces = max(1, min(cnorm.get_num_threads(), src.nbytes // PIECE))
    step = -(-src.nbytes // pieces // 64) * 64
    ranges = [
        (dst.ctypes.data + start, src.ctypes.data + start, min(step, src.nbytes - start))
        for start in range(0, src.nbytes, step)
    ]
    if len(ranges) == 1:
        return functools.partial(ctypes.memmove, *ranges[0])
    pool = workers(len(ranges) - 1)

    def copy() -> None:
        futures = [pool.submit(ctypes.memmove, *piece) for piece in ranges[1:]]
        ctypes.memmove(*ranges[0])
        for future in futures:
            future.result()

    return copy


@functools.cache
def workers(count: int) -> ThreadPoolExecutor:
    """One pool for the whole run."""
    return ThreadPoolExecutor(count, thread_name_prefix="memcpy")
