"""Layer norm's gradients over the last axis of (rows, cols)."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_layer_norm import EPS, groups
from bench.cases import Case
from bench.cases_backward import backward_cases_of
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import ALL, BackwardOp, BackwardTensors, composition
from bench.problem import Array, BackwardProblem, Problem


def statistics(p: Problem) -> tuple[Array, Array]:
    _, mean, rstd = cnorm.layer_norm(p.x, p.x.shape[1:], eps=EPS, return_stats=True)
    return mean, rstd


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    return partial(cnorm.layer_norm_backward, p.dy, p.x, p.mean, p.rstd, p.weight, out=out)


def with_numpy(p: BackwardProblem) -> Call:
    return composition(p, groups(p.case))


def with_torch(t: BackwardTensors) -> Call:
    arguments = (t.dy, t.x, t.x.shape[1:], t.mean, t.rstd, t.weight, t.bias, ALL)
    return partial(t.aten.native_layer_norm_backward.default, *arguments)


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups)


@pytest.mark.parametrize("case", backward_cases_of("layer_norm"), ids=str)
def test_layer_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
