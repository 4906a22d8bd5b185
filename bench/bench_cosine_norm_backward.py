"""The gradients of cosines to both arrays."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_cosine_norm import UNITS_ALLOWED
from bench.cases import Case
from bench.cases_vectors import COSINE_NORM_BACKWARD
from bench.compare import compare
from bench.composed import ComposedOp, Exact, largest, wide
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, gradient, norm, prepare


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.cosine_norm_backward, p.dy, p.x, p.head)  # it has no out=


def gradients(dy: Array, x: Array, head: Array) -> tuple[Array, Array]:
    x_hat, head_hat = x / norm(x, 2, -1), head / norm(head, 2, -1)
    return gradient(dy @ head_hat, x, 2, -1), gradient(dy.T @ x_hat, head, 2, -1)


def with_numpy(p: VectorProblem) -> Call:
    return partial(gradients, p.dy, p.x, p.head)


def with_torch(p: VectorProblem, torch: Any) -> Call:
    functional, dy = torch.nn.functional, torch.from_numpy(p.dy)
    x, head = (torch.from_numpy(array).requires_grad_() for array in (p.x, p.head))
    y = functional.linear(functional.normalize(x), functional.normalize(head))
    return lambda: torch.autograd.grad(y, (x, head), dy, retain_graph=True)


def exact(p: VectorProblem) -> Exact:
    both = gradients(wide(p.dy), wide(p.x), wide(p.head))
    return [largest(array, (0, 1)) for array in both]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", COSINE_NORM_BACKWARD, ids=str)
def test_cosine_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
