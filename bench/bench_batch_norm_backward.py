"""Batch norm's gradients, training and frozen, of images and of features (N, C)."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.bench_batch_norm import EPS, groups
from bench.cases import Case
from bench.cases_backward import backward_cases_of
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import ALL, BackwardOp, BackwardTensors, composition
from bench.problem import Array, BackwardProblem, Problem


def statistics(p: Problem) -> tuple[Array, Array]:
    if not p.case.training:
        return p.running_mean, 1 / np.sqrt(p.running_var + EPS)
    _, mean, rstd = cnorm.batch_norm(
        p.x, None, None, training=True, eps=EPS, axis=p.case.axis, return_stats=True
    )
    return mean, rstd


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    arguments = (p.dy, p.x, p.mean, p.rstd, p.weight)
    return partial(cnorm.batch_norm_backward, *arguments, training=p.case.training, axis=p.case.axis, out=out)


def with_numpy(p: BackwardProblem) -> Call:
    g = groups(p.case)
    mean, rstd, weight = (array.reshape(g.parameters) for array in (p.mean, p.rstd, p.weight))

    def frozen() -> tuple[Array, ...]:
        x, dy = p.x.reshape(g.view), p.dy.reshape(g.view)
        xhat = (x - mean) * rstd
        dx = dy * (weight * rstd)
        return dx.reshape(p.x.shape), (dy * xhat).sum(g.parameter_axes), dy.sum(g.parameter_axes)

    return composition(p, g) if p.case.training else frozen


def with_torch(t: BackwardTensors) -> Call:
    backward = t.aten.native_batch_norm_backward.default
    given = (t.running_mean, t.running_var, t.mean, t.rstd, t.case.training, EPS, ALL)
    return partial(backward, t.dy, t.x, t.weight, *given)


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups)


@pytest.mark.parametrize("case", backward_cases_of("batch_norm"), ids=str)
def test_batch_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
