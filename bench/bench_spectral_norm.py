"""Spectral norm of a weight in training: one power iteration, sigma, and the division.

PyTorch's composition is that of torch.nn.utils.spectral_norm: mv, normalize, dot and div.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case
from bench.cases_spectral_norm import SPECTRAL_NORM, WeightCase
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, largest, wide
from bench.measure import Call, Effort
from bench.problem import Array, Problem, build

EPS = 1e-12
ITERATIONS = 30  # the first singular value is far above the others: more than enough


@dataclass(frozen=True)
class WeightProblem(Problem):
    """A weight with the vectors of its largest singular value, which further iterations do not move."""

    u: Array
    v: Array
    sigma: Array

    @property
    def dim(self) -> int:
        """The axis of the rows."""
        assert isinstance(self.case, WeightCase)
        return self.case.dim

    def matrix(self, weight: Any) -> Any:
        """The weight, an array or a tensor, with its rows first."""
        axes = [self.dim, *(axis for axis in range(weight.ndim) if axis != self.dim)]
        moved = weight.transpose(axes) if isinstance(weight, np.ndarray) else weight.permute(axes)
        return moved.reshape(weight.shape[self.dim], -1)

    def pattern(self, rows: Any) -> Any:
        """A matrix with its rows first, in the shape of the weight."""
        shape = self.case.shape
        others = [size for axis, size in enumerate(shape) if axis != self.dim]
        result = rows.reshape(shape[self.dim], *others)
        return np.moveaxis(result, 0, self.dim)


def prepare(case: Case) -> WeightProblem:
    problem = build(case)
    problem.x[...] = 1 + problem.x / 4  # mean and spread of 1 and 0.5
    unknown = np.zeros(1)
    empty = WeightProblem(**vars(problem), u=unknown, v=unknown, sigma=unknown)
    matrix = empty.matrix(problem.x).astype(np.float64)
    u = np.ones(len(matrix))
    for _ in range(ITERATIONS):
        v = matrix.T @ u
        v /= np.linalg.norm(v)
        u = matrix @ v
        sigma = np.linalg.norm(u)
        u /= sigma
    kind = problem.x.dtype
    return WeightProblem(**vars(problem), u=u.astype(kind), v=v.astype(kind), sigma=np.asarray(sigma))


def with_cnorm(p: WeightProblem, out: Array | None) -> Call:
    u, v = p.u.copy(), p.v.copy()
    return partial(cnorm.spectral_norm, p.x, u, v, dim=p.dim, eps=EPS, out=out)


def with_numpy(p: WeightProblem) -> Call:
    u, v = p.u.copy(), p.v.copy()

    def call() -> tuple[Any, ...]:
        matrix = p.matrix(p.x)
        t = matrix.T @ u
        v[:] = t / max(np.linalg.norm(t), EPS)
        s = matrix @ v
        u[:] = s / max(np.linalg.norm(s), EPS)
        sigma = u @ (matrix @ v)
        return p.x / sigma, sigma

    return call


def with_torch(p: WeightProblem, torch: Any) -> Call:
    weight, u, v = (torch.from_numpy(array) for array in (p.x, p.u.copy(), p.v.copy()))
    normalize = torch.nn.functional.normalize

    def call() -> tuple[Any, ...]:
        matrix = p.matrix(weight)
        normalize(torch.mv(matrix.t(), u), dim=0, eps=EPS, out=v)
        normalize(torch.mv(matrix, v), dim=0, eps=EPS, out=u)
        sigma = torch.dot(u, torch.mv(matrix, v))
        return weight / sigma, sigma

    return call


def exact(p: WeightProblem) -> Exact:
    """By the vectors of the problem; what their rounding changes in sigma is a square of it."""
    sigma = wide(p.u) @ (wide(p.matrix(p.x)) @ wide(p.v))
    return [largest(wide(p.x) / sigma, tuple(range(p.x.ndim))), (sigma, abs(sigma))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", SPECTRAL_NORM, ids=str)
def test_spectral_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
