"""Data-parallel training on digits with batch norm over all processes, in NumPy, cnorm and MPI.

    pip install '.[examples,mpi]'
    mpiexec -n 4 python examples/sync_batch_norm.py          # and the same on one process, to compare
    mpiexec -n 3 python examples/sync_batch_norm.py --demo   # unequal and empty batches, wrong calls

The digits are scikit-learn's and the network is that of train_digits.py, with cnorm.SyncBatchNorm for its
norms. Each process takes a part of every batch; the norms exchange their sums, and once a step the gradients
are added up. So all processes keep the same weights, and these are the ones that a single process gets from
whole batches: rank 0 trains that network too, with the same initial weights and order of the images, and
prints how far the two are apart. The numbers are float64, in which roundings have no time to grow.
"""

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

import cnorm
from numpy_network import Sequential
from train_digits import (
    BATCH,
    LEARNING_RATE,
    MOMENTUM,
    Digits,
    batches,
    build_network,
    cross_entropy,
    read_digits,
)

Array = np.ndarray[Any, np.dtype[Any]]


class Counted:
    """A communicator that counts its communications and their bytes."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def Get_size(self) -> int:
        return int(self.comm.Get_size())

    def Get_rank(self) -> int:
        return int(self.comm.Get_rank())

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        self._count("Allgather", sendbuf)
        self.comm.Allgather(sendbuf, recvbuf)

    def Allreduce(self, sendbuf: Array, recvbuf: Array) -> None:
        self._count("Allreduce", sendbuf)
        self.comm.Allreduce(sendbuf, recvbuf)

    def _count(self, name: str, sent: Array) -> None:
        self.calls[name] += 1
        self.bytes[name] += sent.nbytes


@dataclass(frozen=True)
class Run:
    """What training gave: losses of whole batches, in every step."""

    network: Sequential
    losses: Array
    accuracy: float
    seconds: float


def in_float64(network: Sequential) -> Sequential:
    """Widen the parameters of the network's own layers; its norms have float64 already."""
    for layer in network.layers:
        parameters = layer.parameters()
        for name, parameter in parameters.items():
            parameters[name] = parameter.astype(np.float64)
    return network


def part_of(images: Array, labels: Array, comm: Counted | None) -> tuple[Array, Array]:
    """Return this process's samples of a batch; parts differ by one where they must."""
    if comm is None:
        return images, labels
    rank, size = comm.Get_rank(), comm.Get_size()
    return np.array_split(images, size)[rank], np.array_split(labels, size)[rank]


def add_up(loss: float, gradients: dict[str, Array], comm: Counted | None) -> tuple[float, dict[str, Array]]:
    """Return the sums of the loss and of all gradients over the processes, in one communication."""
    if comm is None:
        return loss, gradients
    sent = np.concatenate([[loss], *(gradient.reshape(-1) for gradient in gradients.values())])
    total = np.empty_like(sent)
    comm.Allreduce(sent, total)
    ends = np.cumsum([1, *(gradient.size for gradient in gradients.values())])
    pieces = np.split(total, ends[:-1])[1:]
    added = zip(gradients.items(), pieces, strict=True)
    return float(total[0]), {name: piece.reshape(gradient.shape) for (name, gradient), piece in added}


def train(digits: Digits, epochs: int, seed: int, comm: Counted | None) -> Run:
    """Train by gradient descent with momentum, as train_digits.py, on this process's part of each batch."""
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    norm = partial(cnorm.SyncBatchNorm, comm=comm, dtype=np.float64)
    network = in_float64(build_network(norm, rng)).train()
    parameters = network.parameters()
    velocities = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}
    losses: list[float] = []
    steps = epochs * (len(digits.train_images) // BATCH)
    for images, labels in batches(digits, epochs, rng):
        images, labels = part_of(images.astype(np.float64), labels, comm)
        loss, dscores = cross_entropy(network(images), labels)
        share = len(images) / BATCH  # of the batch: a mean over it is the sum of the shares' means
        network.zero_grad()
        network.backward(dscores * share)
        loss, gradients = add_up(loss * share, network.grads, comm)
        rate = LEARNING_RATE * (1 + np.cos(np.pi * len(losses) / steps)) / 2
        for name, gradient in gradients.items():
            velocities[name] = MOMENTUM * velocities[name] + gradient
            parameters[name] -= rate * velocities[name]
        losses.append(loss)
    scores = network.train(False)(digits.test_images.astype(np.float64))
    accuracy = float(np.mean(scores.argmax(axis=1) == digits.test_labels))
    return Run(network, np.array(losses), accuracy, time.perf_counter() - begin)


def largest_difference(ours: dict[str, Array], others: dict[str, Array]) -> float:
    return max(float(np.max(abs(ours[name] - others[name]))) for name in ours)


def compare(epochs: int, seed: int) -> None:
    """Train on all processes and on rank 0 alone; print what differs."""
    comm = Counted(MPI.COMM_WORLD)
    digits = read_digits(seed)
    together = train(digits, epochs, seed, comm)
    state = together.network.state_dict()
    states = MPI.COMM_WORLD.gather(state)
    if states is None:
        return
    alone = train(digits, epochs, seed, None)
    steps, norms = len(together.losses), 4
    print(f"{comm.Get_size()} processes, {epochs} epochs, {steps} steps of {BATCH} images")
    print(f"{'':22} {'together':>12} {'alone':>12}")
    print(f"{'test accuracy':22} {together.accuracy:12.2%} {alone.accuracy:12.2%}")
    print(f"{'loss, last step':22} {together.losses[-1]:12.9f} {alone.losses[-1]:12.9f}")
    print(f"{'time':22} {together.seconds:10.1f} s {alone.seconds:10.1f} s")
    worst = max(largest_difference(state, other) for other in states)
    print(
        f"largest difference of losses, together and alone: {np.max(abs(together.losses - alone.losses)):.1e}"
    )
    print(
        "largest difference of weights and running statistics, together and alone: "
        f"{largest_difference(state, alone.network.state_dict()):.1e}"
    )
    print(f"the same between processes: {worst:.1e}")
    for name, calls in sorted(comm.calls.items()):
        print(f"{name}: {calls} calls, {calls / steps:g} a step, {comm.bytes[name] / calls:.0f} bytes each")
    print(f"of {norms} norms forward and backward, and of the gradients")


def fingerprint(*arrays: Array) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]


def normalize_parts(counts: list[int]) -> None:
    """Normalise `counts` samples a process and print each one's result beside that of one process."""
    world = MPI.COMM_WORLD
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((sum(counts), 3, 2))).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    own, own_dy = (np.split(values, np.cumsum(counts)[:-1])[world.Get_rank()] for values in (x, dy))
    running, whole = ((np.zeros(3, np.float32), np.ones(3, np.float32)) for _ in range(2))
    y, mean, rstd = cnorm.sync_batch_norm(own, *running, training=True, comm=world, return_stats=True)
    dx = cnorm.sync_batch_norm_backward(own_dy, own, mean, rstd, comm=world).x
    results = world.gather((y, dx, fingerprint(mean, rstd, *running)))
    if results is None:
        return
    right, *statistics = cnorm.batch_norm(x, *whole, training=True, return_stats=True)
    wanted = cnorm.batch_norm_backward(dy, x, *statistics).x
    print(f"samples of the processes: {counts}")
    for rank, (y, dx, bits) in enumerate(results):
        print(f"  rank {rank}: y {y.shape}, dx {dx.shape}, statistics {bits}")
    ys, dxs = (np.concatenate([result[i] for result in results]) for i in range(2))
    if x.size:
        print(f"  largest difference to one process: y {np.max(abs(ys - right)):.1e}, ", end="")
        print(f"dx {np.max(abs(dxs - wanted)):.1e}, mean {np.max(abs(mean - statistics[0])):.1e}, ", end="")
        print(f"rstd {np.max(abs(rstd - statistics[1])):.1e}")
    print(f"  running_mean {running[0]}, running_var {running[1]}")


def show_error(what: str, call: Callable[[], Any]) -> None:
    """Print how a call ends on each process."""
    try:
        call()
        said = "no error"
    except ValueError as error:
        said = f"ValueError: {error}"
    everything = MPI.COMM_WORLD.gather(said)
    if everything is not None:
        print(what)
        for rank, line in enumerate(everything):
            print(f"  rank {rank}: {line}")


def demonstrate() -> None:
    """Unequal and empty batches, one sample a process, and calls that do not fit together."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    normalize_parts([3 + 2 * r for r in range(size)])
    normalize_parts([5 if r == size - 1 else 2 * (r % 2) for r in range(size)])
    normalize_parts([1] * size)
    normalize_parts([0] * size)
    one = np.ones((int(rank == 0), 3), np.float32)
    show_error("one value per channel", partial(cnorm.sync_batch_norm, one, training=True, comm=world))
    other = np.ones((4, 3 + 100 * rank), np.float32)
    show_error("other channels on each", partial(cnorm.sync_batch_norm, other, training=True, comm=world))


def abort_on_error(*error: Any) -> None:
    """End all processes: the others would wait for this one."""
    sys.__excepthook__(*error)
    MPI.COMM_WORLD.Abort(1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on digits with batch norm over all processes.")
    parser.add_argument("--demo", action="store_true", help="unequal and empty batches instead of training")
    parser.add_argument("--epochs", default=3, type=int, help="(default: %(default)s)")
    parser.add_argument("--seed", default=0, type=int, help="of weights and order (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs is at least 1, --seed at least 0")
    # The processes share the cores.
    with cnorm.num_threads(1), threadpool_limits(1, user_api="blas"):
        if options.demo:
            demonstrate()
        else:
            compare(options.epochs, options.seed)


if __name__ == "__main__":
    if MPI.COMM_WORLD.Get_size() > 1:
        sys.excepthook = abort_on_error
    main()
