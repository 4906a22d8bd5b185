"""Ranks as threads of one process: a communicator with mpi4py's names, and calls on all ranks at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class World:
    """What the threads share: the buffers that were sent, and how many exchanges there were."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=20)
        self.sent: list[Any] = [None] * size
        self.exchanges = 0

    def exchange(self, rank: int, sent: Any) -> list[Any]:
        self.sent[rank] = sent
        self.barrier.wait()
        everything = list(self.sent)
        if self.barrier.wait() == 0:
            self.exchanges += 1
        return everything


class Communicator:
    """mpi4py's Get_size, Get_rank, Allgather and Allreduce (of sums) for one thread of a world."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank

    def Get_size(self) -> int:
        return len(self.world.sent)

    def Get_rank(self) -> int:
        return self.rank

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        for row, sent in zip(recvbuf, self.world.exchange(self.rank, sendbuf.copy()), strict=True):
            row[:] = sent

    def Allreduce(self, sendbuf: Array, recvbuf: Array) -> None:
        recvbuf[:] = sum(self.world.exchange(self.rank, sendbuf.copy()))


def outcomes(size: int, call: Callable[[Communicator], Any]) -> tuple[list[Any], World]:
    """What ``call`` returns or raises on each of ``size`` ranks."""
    world = World(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = call(Communicator(world, rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, world


def on_ranks(size: int, call: Callable[[Communicator], Any]) -> list[Any]:
    """What ``call`` returns on each rank; the first error is raised."""
    results, _ = outcomes(size, call)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def split(x: Array, counts: Sequence[int]) -> list[Array]:
    """The samples of ``x`` shared out to ranks, ``counts`` to each."""
    assert sum(counts) == len(x)
    return [part.copy() for part in np.split(x, np.cumsum(counts)[:-1])]


def share(total: int, size: int) -> list[int]:
    """``total`` samples for ``size`` ranks, as unequal as the first ones twice the others."""
    least = total // (size + 1)
    return [total - least * (size - 1), *[least] * (size - 1)]
