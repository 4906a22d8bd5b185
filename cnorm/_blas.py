"""NumPy's BLAS and LAPACK beside the kernels' threads.

Both keep their threads spinning for milliseconds after a parallel piece of work, and factorisations of small
matrices are many such pieces: with as many threads as cores, each waits for one that is not running. So the
factorisations of whitening run on one thread where threadpoolctl can see to it, and rows that are normalised
ahead of a matrix product are handed to the kernels in blocks too small for a team.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from numpy.typing import NDArray

Array = NDArray[Any]
P = ParamSpec("P")
R = TypeVar("R")

SMALL = 32  # LAPACK starts no threads for such matrices, and setting their number costs more than they
BLOCK_BYTES = 80 * 1024  # of each of up to three arrays: less than PARALLEL_BYTES of parallel.c


@functools.cache
def _controller() -> Any:
    """Return what sets the number of BLAS threads, or None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def on_one_thread(function: Callable[Concatenate[Array, P], R], /) -> Callable[Concatenate[Array, P], R]:
    """Run a function of a stack of matrices with one BLAS thread."""

    @functools.wraps(function)
    def limited(stack: Array, /, *args: P.args, **kwargs: P.kwargs) -> R:
        controller = _controller() if stack.shape[-1] > SMALL else None
        if controller is None:
            return function(stack, *args, **kwargs)
        with controller.limit(limits=1, user_api="blas"):
            return function(stack, *args, **kwargs)

    return limited


def serial_blocks(rows: Array) -> Iterator[slice]:
    """Cut rows (rows, cols) into blocks that kernels work on without a team, where rows are short enough."""
    step = max(1, BLOCK_BYTES // max(1, rows.shape[1] * rows.itemsize))
    for first in range(0, len(rows), step):
        yield slice(first, first + step)
