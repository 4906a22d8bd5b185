"""Cosines of all pairs. The peers normalise both arrays and multiply, and leave [-1, 1] at times."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case
from bench.cases_vectors import COSINE_NORM
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, norm, prepare

UNITS_ALLOWED = 32.0  # of 1: the sums of the product are those of the BLAS


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.cosine_norm, p.x, p.head, out=None if out is None else np.empty_like(p.dy))


def cosines(x: Array, weight: Array) -> Array:
    y: Array = (x / norm(x, 2, -1)) @ (weight / norm(weight, 2, -1)).T
    return y


def with_numpy(p: VectorProblem) -> Call:
    return partial(cosines, p.x, p.head)


def with_torch(p: VectorProblem, torch: Any) -> Call:
    functional, x, head = torch.nn.functional, torch.from_numpy(p.x), torch.from_numpy(p.head)
    return lambda: functional.linear(functional.normalize(x), functional.normalize(head))


def exact(p: VectorProblem) -> Exact:
    y = cosines(wide(p.x), wide(p.head))
    return [(y, np.ones_like(y))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", COSINE_NORM, ids=str)
def test_cosine_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
