"""NumPy's BLAS and LAPACK beside the kernels' threads.

Both keep their threads spinning for milliseconds after a parallel piece of work, and factorisations of small
matrices are many such pieces: with as many threads as cores, each waits for one that is not running. So the
factorisations of whitening run on one thread where threadpoolctl can see to it, and rows that are normalised
ahead of a matrix product are handed to the kernels in blocks too small for a team.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from numpy.typing import NDArray

Array = NDArray[Any]
P = ParamSpec("P")
R = TypeVar("R")

SMALL = 32  # LAPACK starts no threads for such matrices, and setting their number costs more than they
BLOCK_BYTES = 80 * 1024  # of each of up to three arrays: less than PARALLEL_BYTES of parallel.c


@functools.cache
def _libraries() -> list[Any]:
    """Return what gets and sets the number of threads of each BLAS in the process; needs threadpoolctl.

    Its context managers do the same, and list all that is known of each library besides: for a matrix of a
    few dozen channels that takes as long as factorising it.
    """
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneThread:
    """While any Python thread is inside, each BLAS has one thread; the last one out gives back the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [library.get_num_threads() for library in _libraries()]
                self._set([1] * len(self._before))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)

    @staticmethod
    def _set(numbers: list[int]) -> None:
        for library, number in zip(_libraries(), numbers, strict=True):
            library.set_num_threads(number)

    def forget(self) -> None:
        """Start anew in a forked child, which has none of the parent's other threads."""
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 0
            self._set(self._before)


_one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread.forget)


def on_one_thread(function: Callable[Concatenate[Array, P], R], /) -> Callable[Concatenate[Array, P], R]:
    """Run a function of a stack of matrices with one BLAS thread."""

    @functools.wraps(function)
    def limited(stack: Array, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if stack.shape[-1] <= SMALL:
            return function(stack, *args, **kwargs)
        with _one_thread:
            return function(stack, *args, **kwargs)

    return limited


def serial_blocks(rows: Array) -> Iterator[slice]:
    """Cut rows (rows, cols) into blocks that kernels work on without a team, where rows are short enough."""
    step = max(1, BLOCK_BYTES // max(1, rows.shape[1] * rows.itemsize))
    for first in range(0, len(rows), step):
        yield slice(first, first + step)
