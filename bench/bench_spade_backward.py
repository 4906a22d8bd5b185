"""SPADE's gradients with a gamma and a beta for each element, from the statistics of the forward."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import cnorm
from bench.bench_spade import EPS, axes, back, image, modulated, options
from bench.cases_spade import BACKWARD_CASES, SpadeCase
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.machine import optional
from bench.measure import Call, Effort
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.problem import Array, BackwardProblem, Problem, build_backward


def statistics(p: Problem) -> tuple[Array, Array]:
    """The mean and rstd of the forward, which do not depend on gamma and beta."""
    one = np.zeros(1, p.x.dtype)
    case: Any = p.case
    _, mean, rstd = cnorm.spade(p.x, one, one, EPS, return_stats=True, **options(case))
    return mean, rstd


@dataclass(frozen=True)
class SpadeBackward:
    """The backward pass: dx, dgamma and dbeta."""

    units_allowed: ClassVar[float] = UNITS_ALLOWED
    composed: ClassVar[bool] = True

    def prepare(self, case: Any) -> BackwardProblem:
        """Return the case's arrays."""
        problem = modulated(build_backward(case, statistics))
        assert isinstance(problem, BackwardProblem)
        return problem

    def line_up(self, problem: BackwardProblem) -> Line:
        """Return everybody who can run this case."""
        case: Any = problem.case
        arrays = problem.dy, problem.x, problem.mean, problem.rstd, problem.weight
        call = functools.partial(cnorm.spade_backward, *arrays, **options(case))
        line = Line(
            {
                CNORM: Contestant(call, tuple),
                CNORM_OUT: Contestant(functools.partial(call, out=problem.out), tuple),
                NUMPY: Contestant(self.numpy(problem), tuple),
            }
        )
        if optional("torch"):
            line.contestants[PYTORCH] = Contestant(
                self.torch(problem), lambda result: tuple(back(tensor, case) for tensor in result)
            )
        else:
            line.notes[PYTORCH] = "not installed"
        return line

    def numpy(self, problem: BackwardProblem) -> Call:
        """The formula in NumPy; dbeta is dy itself."""
        case: Any = problem.case
        over = axes(case)
        kept = tuple(1 if axis in over else size for axis, size in enumerate(case.shape))
        mean, rstd = problem.mean.reshape(kept), problem.rstd.reshape(kept)

        def call() -> tuple[Array, ...]:
            xhat = (problem.x - mean) * rstd
            g = problem.dy * (1 + problem.weight)
            dx = rstd * (g - g.mean(over, keepdims=True) - xhat * (g * xhat).mean(over, keepdims=True))
            return dx, problem.dy * xhat, problem.dy

        return call

    def torch(self, problem: BackwardProblem) -> Call:
        """What autograd runs, called directly: xhat is kept by its forward, and dbeta is dy itself."""
        torch, case = optional("torch"), problem.case
        torch.set_num_threads(cnorm.get_num_threads())
        backward = torch.ops.aten.native_batch_norm_backward.default
        dy, x, gamma = (image(array, case) for array in (problem.dy, problem.x, problem.weight))
        mean, rstd = (torch.from_numpy(array.reshape(-1)) for array in (problem.mean, problem.rstd))
        shape = x.shape if case.norm == "batch" else (1, x.shape[0] * x.shape[1], *x.shape[2:])
        xhat = torch.nn.functional.batch_norm(x.reshape(shape), None, None, training=True, eps=EPS)
        xhat = xhat.reshape(x.shape)
        only_x = [True, False, False]

        def call() -> tuple[Any, ...]:
            g = (dy * (1 + gamma)).reshape(shape)
            dx, _, _ = backward(g, x.reshape(shape), None, None, None, mean, rstd, True, EPS, only_x)
            return dx.reshape(x.shape), dy * xhat, dy

        return call

    def judge(self, problem: BackwardProblem) -> Callable[[tuple[Array, ...]], float]:
        """Return a function that gives the worst error, in units of the largest of a group or array."""
        over = axes(problem.case)  # type: ignore[arg-type]
        x, dy, gamma = (a.astype(np.float64) for a in (problem.x, problem.dy, problem.weight))
        mean = x.mean(over, keepdims=True)
        rstd = 1 / np.sqrt(np.square(x - mean).mean(over, keepdims=True) + EPS)
        xhat, g = (x - mean) * rstd, dy * (1 + gamma)
        dx = rstd * (g - g.mean(over, keepdims=True) - xhat * (g * xhat).mean(over, keepdims=True))
        unit = np.finfo(problem.x.dtype).eps / 2
        exact = dx, dy * xhat, dy
        scales = abs(dx).max(over, keepdims=True), abs(exact[1]).max(), abs(dy).max()

        def worst(gradients: tuple[Array, ...]) -> float:
            errors = (abs(a - b) / s for a, b, s in zip(gradients, exact, scales, strict=True))
            units = float(np.max([error.max() for error in errors])) / unit
            return units if math.isfinite(units) else math.inf

        return worst


@pytest.mark.parametrize("case", BACKWARD_CASES, ids=str)
def test_spade_backward(benchmark: Any, case: SpadeCase, effort: Effort) -> None:
    compare(benchmark, case, SpadeBackward(), effort)
