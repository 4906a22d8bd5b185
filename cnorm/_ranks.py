"""What processes (ranks) exchange to normalise over all their values, and what may be wrong with it."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FORWARD, BACKWARD = 1, 2
_FUNCTIONS = {FORWARD: "sync_batch_norm", BACKWARD: "sync_batch_norm_backward"}
HEADER = 4  # values of a channel, function, channels, bytes of the dtype computed in
NUMBERS = 4096  # of the first message beside its header: those of 512 channels, backward


class Communicator(Protocol):
    """What is used of an mpi4py communicator, on NumPy buffers."""

    def Get_size(self) -> int:
        """Return the number of ranks."""

    def Allgather(self, sendbuf: Array, recvbuf: Array, /) -> Any:
        """Put the buffer of each rank into row after row of `recvbuf`, on all ranks."""


class Gathered(NamedTuple):
    """What all ranks have sent, in rank order.

    Attributes
    ----------
    counts : array of float64, shape (ranks,)
        Values of a channel.
    rows : array of float64, shape (ranks, n, channels)
        The numbers of the channels.
    """

    counts: Array
    rows: Array


def communicator(comm: Any) -> Communicator:
    """Check that `comm` has the methods that are used."""
    for method in Communicator.__dict__:
        if method[0].isupper() and not callable(getattr(comm, method, None)):
            raise TypeError(
                f"comm: expected an mpi4py communicator, or Get_size and Allgather as it has them, "
                f"got {type(comm).__name__}"
            )
    result: Communicator = comm
    return result


def gather(comm: Communicator, function: int, count: int, own: Array, dtype: np.dtype[Any]) -> Gathered:
    """Exchange the numbers of channels `own` (n, channels), float64, which belong to `count` values each.

    The first message has a fixed size, whatever the call: MPI takes messages of different sizes for an
    error on some ranks, or waits for ever, while these let each rank see what is wrong. Numbers that do not
    fit into it, of more than 819 channels forward or 512 backward, follow in a second one once the calls are
    known to match.
    """
    numbers = own.reshape(-1)
    first, rest = numbers[:NUMBERS], numbers[NUMBERS:]
    message = new_message(function, count, own.shape[1], dtype.itemsize)
    message[HEADER : HEADER + first.size] = first
    gathered = exchange(comm, message)
    rows = gathered[:, HEADER : HEADER + first.size]
    if rest.size:
        rows = np.hstack([rows, _allgather(comm, rest)])
    return Gathered(gathered[:, 0].copy(), np.ascontiguousarray(rows.reshape(len(rows), *own.shape)))


def new_message(function: int, count: int, channels: int, itemsize: int) -> Array:
    """Return a first message with its header, and no numbers yet."""
    message = np.zeros(HEADER + NUMBERS)
    message[:HEADER] = count, function, channels, itemsize
    return message


def exchange(comm: Communicator, message: Array) -> Array:
    """Return the first messages of all ranks (ranks, words); refuse calls that differ, on every rank."""
    gathered = _allgather(comm, message)
    headers = gathered[:, 1:HEADER].tobytes()
    if headers != message[1:HEADER].tobytes() * len(gathered):
        _refuse(gathered[:, 1:HEADER].astype(np.int64))
    if message[1] == FORWARD and gathered[:, 0].sum() == 1:
        raise ValueError("x: expected more than one value per channel over all ranks, got one")
    return gathered


def _allgather(comm: Communicator, message: Array) -> Array:
    gathered = np.empty((comm.Get_size(), message.size))
    comm.Allgather(message, gathered)
    return gathered


def _refuse(headers: Array) -> NoReturn:
    """Say what differs."""
    functions, channels, itemsizes = headers.T.tolist()
    for name, what, values in (
        ("comm", "a call of the same function", [_FUNCTIONS.get(f, "another function") for f in functions]),
        ("x", "the same number of channels", channels),
    ):
        if len(set(values)) > 1:
            raise ValueError(f"{name}: expected {what} on all ranks, got {values} by rank")
    dtypes = [f"float{8 * size}" for size in itemsizes]
    raise ValueError(f"x: expected one dtype to compute in on all ranks, got {dtypes} by rank")
