"""The gradient of vectors over their norms."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_normalize import EPS
from bench.cases import Case
from bench.cases_vectors import NORMALIZE_BACKWARD
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, exact_gradient, gradient, prepare


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.normalize_backward, p.dy, p.x, p.p, p.dim, EPS, out=out)


def with_numpy(p: VectorProblem) -> Call:
    return partial(gradient, p.dy, p.x, p.p, p.dim)


def with_torch(p: VectorProblem, torch: Any) -> Call:
    x, dy = torch.from_numpy(p.x).requires_grad_(), torch.from_numpy(p.dy)
    y = torch.nn.functional.normalize(x, p.p, p.dim, EPS)
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)[0]


def exact(p: VectorProblem) -> Exact:
    return [exact_gradient(p, p.dim)]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", NORMALIZE_BACKWARD, ids=str)
def test_normalize_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
