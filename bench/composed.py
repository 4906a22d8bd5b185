"""Ops that no peer has as one function: beside them runs what users compose of NumPy's or PyTorch's ops.

NumPy and PyTorch allocate their results, and are compared with cnorm's call without `out=`. Gradients of
PyTorch's composition are autograd's, through a graph that is recorded beforehand and kept: what a training
step runs. That counts in favour of PyTorch, whose forward pass has saved what it needs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

import cnorm
from bench.cases import Case
from bench.machine import optional
from bench.measure import Call
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.problem import Array, Problem

P = TypeVar("P", bound=Problem)
Exact = list[tuple[Array, Array]]
"""Results in a wider type, each with the magnitudes that its error is counted in."""


@dataclass(frozen=True)
class ComposedOp(Generic[P]):
    """How an op is called by each contestant, prepared so that the timed call does nothing else.

    `numpy` and `torch` return a call, the latter from the problem and the torch module; results are one array
    or a tuple of them, in the order of `exact`.
    """

    units_allowed: float
    prepare: Callable[[Case], P]
    cnorm: Callable[[P, Array | None], Call]
    numpy: Callable[[P], Call]
    torch: Callable[[P, Any], Call]
    exact: Callable[[P], Exact]

    composed: ClassVar[bool] = True

    def line_up(self, problem: P) -> Line:
        """Return everybody who can run this case."""
        line = Line(
            {
                CNORM: Contestant(self.cnorm(problem, None), arrays),
                CNORM_OUT: Contestant(self.cnorm(problem, problem.out), arrays),
                NUMPY: Contestant(self.numpy(problem), arrays),
            }
        )
        torch = optional("torch")
        if torch is None:
            line.notes[PYTORCH] = "not installed"
        else:
            torch.set_num_threads(cnorm.get_num_threads())
            line.contestants[PYTORCH] = Contestant(self.torch(problem, torch), arrays)
        return line

    def judge(self, problem: P) -> Callable[[tuple[Array, ...]], float]:
        """Return a function that gives the worst error of a result."""
        exact = self.exact(problem)
        unit = np.finfo(problem.x.dtype).eps / 2

        def worst(result: tuple[Array, ...]) -> float:
            pairs = zip(result, exact, strict=True)
            units = [float((abs(given - wanted) / (unit * scale)).max()) for given, (wanted, scale) in pairs]
            return max(units) if all(map(math.isfinite, units)) else float("inf")

        return worst


def arrays(result: Any) -> tuple[Array, ...]:
    """One result or several, as arrays; tensors share their memory with them."""
    return tuple(np.asarray(value) for value in (result if isinstance(result, tuple) else (result,)))


def wide(array: Array) -> Array:
    """A type with digits to spare."""
    return array.astype(np.longdouble if array.dtype == np.float64 else np.float64)


def largest(gradient: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """A gradient, counted in the largest of its group or array."""
    return gradient, abs(gradient).max(axes, keepdims=True)
