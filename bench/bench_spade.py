"""SPADE with a gamma and a beta for each element, beside the composition that users write."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import cnorm
from bench.cases_spade import CASES, SpadeCase
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.machine import optional
from bench.measure import Call, Effort
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.problem import Array, Problem, build, filled

EPS = 1e-5


def axes(case: SpadeCase) -> tuple[int, ...]:
    """The axes that the statistics reduce."""
    kept = {case.axis % len(case.shape)} | ({0} if case.norm == "instance" else set())
    return tuple(axis for axis in range(len(case.shape)) if axis not in kept)


def modulated(problem: Problem) -> Problem:
    """Return the case's arrays, with gamma and beta for weight and bias."""
    rng = np.random.default_rng(20240609)
    shape, size = problem.x.shape, min(problem.x.size, (1 << 20) + 9)
    gamma, beta = (filled(shape, (0.3 * rng.standard_normal(size)).astype(problem.x.dtype)) for _ in "gb")
    return replace(problem, weight=gamma, bias=beta)


def options(case: SpadeCase) -> dict[str, Any]:
    """cnorm's keyword arguments."""
    return {"norm": case.norm, "axis": case.axis}


def image(array: Array, case: SpadeCase) -> Any:
    """The array as a tensor with its channels at axis 1."""
    tensor = optional("torch").from_numpy(array)
    return tensor.movedim(-1, 1) if case.channels_last else tensor


def back(tensor: Any, case: SpadeCase) -> Array:
    """The array of such a tensor."""
    array: Array = (tensor.movedim(1, -1) if case.channels_last else tensor).numpy()
    return array


@dataclass(frozen=True)
class Spade:
    """The forward pass."""

    units_allowed: ClassVar[float] = UNITS_ALLOWED
    composed: ClassVar[bool] = True

    def prepare(self, case: Any) -> Problem:
        """Return the case's arrays."""
        return modulated(build(case))

    def line_up(self, problem: Problem) -> Line:
        """Return everybody who can run this case."""
        case: Any = problem.case
        call = functools.partial(cnorm.spade, problem.x, problem.weight, problem.bias, EPS, **options(case))
        line = Line(
            {
                CNORM: Contestant(call, np.asarray),
                CNORM_OUT: Contestant(functools.partial(call, out=problem.out), np.asarray),
                NUMPY: Contestant(self.numpy(problem), np.asarray),
            }
        )
        if optional("torch"):
            line.contestants[PYTORCH] = Contestant(self.torch(problem), functools.partial(back, case=case))
        else:
            line.notes[PYTORCH] = "not installed"
        return line

    def numpy(self, problem: Problem) -> Call:
        """The formula in NumPy."""
        case: Any = problem.case
        over = axes(case)

        def call() -> Array:
            mean = problem.x.mean(over, keepdims=True)
            std = np.sqrt(problem.x.var(over, keepdims=True) + EPS)
            y: Array = (problem.x - mean) / std * (1 + problem.weight) + problem.bias
            return y

        return call

    def torch(self, problem: Problem) -> Call:
        """PyTorch's norm, and then its elementwise operations."""
        torch, case = optional("torch"), problem.case
        torch.set_num_threads(cnorm.get_num_threads())
        functional = torch.nn.functional
        x, gamma, beta = (image(array, case) for array in (problem.x, problem.weight, problem.bias))
        if case.norm == "batch":
            return lambda: functional.batch_norm(x, None, None, training=True, eps=EPS) * (1 + gamma) + beta
        return lambda: functional.instance_norm(x, eps=EPS) * (1 + gamma) + beta

    def judge(self, problem: Problem) -> Callable[[Any], float]:
        """Return a function that gives a result's worst error in units of N1."""
        over = axes(problem.case)  # type: ignore[arg-type]
        x, gamma, beta = (a.astype(np.float64) for a in (problem.x, problem.weight, problem.bias))
        mean = x.mean(over, keepdims=True)
        xhat = (x - mean) / np.sqrt(np.square(x - mean).mean(over, keepdims=True) + EPS)
        exact = xhat * (1 + gamma) + beta
        unit = np.finfo(problem.x.dtype).eps / 2
        scale = unit * (np.maximum(1, abs(xhat)) * abs(1 + gamma) + abs(beta))

        def worst(y: Array) -> float:
            units = abs(y - exact) / scale
            return float(units.max()) if np.isfinite(units).all() else math.inf

        return worst


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spade(benchmark: Any, case: SpadeCase, effort: Effort) -> None:
    compare(benchmark, case, Spade(), effort)
