"""The arrays of one case: every contestant reads the same ones, and writes the same `out` if any."""

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.cases import Case
from bench.machine import MIB

Array = npt.NDArray[np.floating]
PERIOD = (1 << 20) + 7  # of the values of x: odd, so that no two rows or channels are alike
HUGE_PAGE = 2 * MIB
PERIOD_OF_DY = (1 << 20) + 33  # another, so that no two pairs of x and dy are alike


@dataclass(frozen=True)
class Problem:
    """A case with its data."""

    case: Case
    x: Array
    weight: Array
    bias: Array
    running_mean: Array
    running_var: Array
    out: Array

    def running(self) -> tuple[Array, Array]:
        """The running mean and variance, of the caller's own: a training call updates them."""
        return self.running_mean.copy(), self.running_var.copy()


@dataclass(frozen=True)
class BackwardProblem(Problem):
    """A backward case with its data; `out` is for dx."""

    dy: Array
    mean: Array
    rstd: Array


Statistics = Callable[[Problem], tuple[Array, Array]]
"""The mean and rstd that a backward function is given; RMS norm's mean is 0, and nobody reads it."""


def build(case: Case) -> Problem:
    """Return the arrays of `case`: x of mean 0.5 and spread 2, every parameter far from its default."""
    rng = np.random.default_rng(20240607)
    dtype = np.dtype(case.dtype)

    def normal(size: int, mean: float, spread: float) -> Array:
        values: Array = (mean + spread * rng.standard_normal(size)).astype(dtype)
        return values

    x = filled(case.shape, normal(min(math.prod(case.shape), PERIOD), 0.5, 2.0))
    return Problem(
        case,
        x,
        weight=normal(case.channels, 1.0, 0.2),
        bias=normal(case.channels, 0.0, 0.2),
        running_mean=normal(case.channels, 0.5, 0.1),
        running_var=np.square(normal(case.channels, 2.0, 0.1)),
        out=zeros(case.shape, dtype),
    )


def build_backward(case: Case, statistics: Statistics) -> BackwardProblem:
    """Return the arrays of a backward case: those of the forward, and dy of mean 0.1 and spread 1."""
    problem = build(case)
    mean, rstd = statistics(problem)
    size = min(problem.x.size, PERIOD_OF_DY)
    values = np.random.default_rng(20240608).normal(0.1, 1.0, size).astype(case.dtype)
    return BackwardProblem(**vars(problem), dy=filled(case.shape, values), mean=mean, rstd=rstd)


def filled(shape: tuple[int, ...], values: Array) -> Array:
    """Return an array of the values, over and over."""
    array = fresh(shape, values.dtype)
    flat = array.reshape(-1)
    for start in range(0, flat.size, values.size):
        flat[start : start + values.size] = values[: flat.size - start]
    return array


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an array of zeros, written, so that every page of it exists."""
    array = fresh(shape, dtype)
    array[...] = 0
    return array


def fresh(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an array on memory fresh from the system, if it is large: on huge pages where there are such.

    What an allocator hands out again may be scattered over small pages, and then everybody who reads or
    writes it takes up to twice the time. That would differ from case to case by what ran before.
    """
    count = math.prod(shape)
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes < HUGE_PAGE:
        return np.empty(shape, dtype)
    memory = mmap.mmap(-1, nbytes + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    array: Array = np.frombuffer(memory, dtype, count, -address % HUGE_PAGE).reshape(shape)
    return array
