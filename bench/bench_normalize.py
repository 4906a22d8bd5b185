"""Vectors over their norms. PyTorch's is torch.nn.functional.normalize: a norm, a clamp and a division."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case
from bench.cases_vectors import NORMALIZE
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array
from bench.problem_vectors import VectorProblem, norm, prepare

EPS = 1e-12


def with_cnorm(p: VectorProblem, out: Array | None) -> Call:
    return partial(cnorm.normalize, p.x, p.p, p.dim, EPS, out=out)


def with_numpy(p: VectorProblem) -> Call:
    return lambda: p.x / np.maximum(norm(p.x, p.p, p.dim), EPS)


def with_torch(p: VectorProblem, torch: Any) -> Call:
    return partial(torch.nn.functional.normalize, torch.from_numpy(p.x), p.p, p.dim, EPS)


def exact(p: VectorProblem) -> Exact:
    y = wide(p.x) / norm(wide(p.x), p.p, p.dim)
    return [(y, abs(y).max(p.dim, keepdims=True))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", NORMALIZE, ids=str)
def test_normalize(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
