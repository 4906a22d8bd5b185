"""Weight norm. PyTorch's is torch._weight_norm, a kernel for the first and the last axis."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.cases import Case
from bench.cases_vectors import WEIGHT_NORM
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, norm, prepare


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.weight_norm, p.x, p.g, p.dim, out=out)


def with_numpy(p: VectorProblem) -> Call:
    return lambda: p.x * (p.g / norm(p.x, 2, p.others))


def with_torch(p: VectorProblem, torch: Any) -> Call:
    return partial(torch._weight_norm, torch.from_numpy(p.x), torch.from_numpy(p.g), p.dim)


def exact(p: VectorProblem) -> Exact:
    w = wide(p.x) / norm(wide(p.x), 2, p.others) * wide(p.g)
    return [(w, abs(w).max(p.others, keepdims=True))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", WEIGHT_NORM, ids=str)
def test_weight_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
