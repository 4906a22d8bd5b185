"""Group norm's gradients of images, channels first and channels last."""

import math
from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_group_norm import EPS, groups
from bench.cases import Case
from bench.cases_backward import backward_cases_of
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import ALL, BackwardOp, BackwardTensors, composition
from bench.problem import Array, BackwardProblem, Problem


def statistics(p: Problem) -> tuple[Array, Array]:
    case = p.case
    _, mean, rstd = cnorm.group_norm(p.x, case.num_groups, eps=EPS, axis=case.axis, return_stats=True)
    return mean, rstd


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    arguments = (p.dy, p.x, p.mean, p.rstd, p.case.num_groups, p.weight)
    return partial(cnorm.group_norm_backward, *arguments, axis=p.case.axis, out=out)


def with_numpy(p: BackwardProblem) -> Call:
    return composition(p, groups(p.case))


def with_torch(t: BackwardTensors) -> Call:
    batch, channels, *spatial = t.x.shape
    sizes = (batch, channels, math.prod(spatial), t.case.num_groups)
    return partial(
        t.aten.native_group_norm_backward.default, t.dy, t.x, t.mean, t.rstd, t.weight, *sizes, ALL
    )


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups)


@pytest.mark.parametrize("case", backward_cases_of("group_norm"), ids=str)
def test_group_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
