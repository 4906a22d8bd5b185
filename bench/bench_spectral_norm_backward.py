"""Spectral norm's gradient, with u and v constant."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench import bench_spectral_norm
from bench.bench_spectral_norm import WeightProblem
from bench.cases import Case
from bench.cases_spectral_norm import SPECTRAL_NORM_BACKWARD
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, largest, wide
from bench.measure import Call, Effort
from bench.problem import Array


@dataclass(frozen=True)
class GradientProblem(WeightProblem):
    """A backward case."""

    dw: Array


def prepare(case: Case) -> GradientProblem:
    problem = bench_spectral_norm.prepare(case)
    dw = np.random.default_rng(20240611).normal(0.1, 1.0, problem.x.size).astype(case.dtype)
    return GradientProblem(**vars(problem), dw=dw.reshape(case.shape))


def with_cnorm(p: GradientProblem, out: Array | None) -> Call:
    return partial(cnorm.spectral_norm_backward, p.dw, p.x, p.u, p.v, float(p.sigma), dim=p.dim, out=out)


def composition(p: GradientProblem, dw: Array, weight: Array, u: Array, v: Array, sigma: Any) -> Array:
    gradient: Array = dw / sigma - np.vdot(dw, weight) / sigma**2 * p.pattern(np.outer(u, v))
    return gradient


def with_numpy(p: GradientProblem) -> Call:
    return partial(composition, p, p.dw, p.x, p.u, p.v, p.sigma.astype(p.x.dtype)[()])


def with_torch(p: GradientProblem, torch: Any) -> Call:
    dw, weight, u, v = (torch.from_numpy(array) for array in (p.dw, p.x, p.u, p.v))
    weight.requires_grad_()
    w = weight / torch.dot(u, torch.mv(p.matrix(weight), v))

    def call() -> Any:
        return torch.autograd.grad(w, weight, dw, retain_graph=True)[0]

    return call


def exact(p: GradientProblem) -> Exact:
    arrays = [wide(array) for array in (p.dw, p.x, p.u, p.v)]
    gradient = composition(p, *arrays, wide(p.sigma)[()])
    return [largest(gradient, tuple(range(p.x.ndim)))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", SPECTRAL_NORM_BACKWARD, ids=str)
def test_spectral_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
