"""Weight norm's gradients: dv and dg."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.cases import Case
from bench.cases_vectors import WEIGHT_NORM_BACKWARD
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, exact_gradient, gradient, norm, prepare


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.weight_norm_backward, p.dy, p.x, p.g, p.dim)  # it has no out=


def with_numpy(p: VectorProblem) -> Call:
    def call() -> tuple[Array, ...]:
        dg = (p.dy * p.x).sum(p.others, keepdims=True) / norm(p.x, 2, p.others)
        return gradient(p.dy, p.x, 2, p.others, p.g), dg

    return call


def with_torch(p: VectorProblem, torch: Any) -> Call:
    v, g = (torch.from_numpy(array).requires_grad_() for array in (p.x, p.g))
    w, dw = torch._weight_norm(v, g, p.dim), torch.from_numpy(p.dy)
    return lambda: torch.autograd.grad(w, (v, g), dw, retain_graph=True)


def exact(p: VectorProblem) -> Exact:
    terms = wide(p.dy) * (wide(p.x) / norm(wide(p.x), 2, p.others))
    dg = terms.sum(p.others, keepdims=True)
    return [exact_gradient(p, p.others, wide(p.g)), (dg, abs(dg).max(keepdims=True))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", WEIGHT_NORM_BACKWARD, ids=str)
def test_weight_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
