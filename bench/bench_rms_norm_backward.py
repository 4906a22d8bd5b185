"""RMS norm's gradients over the last axis of (rows, cols): dx and dweight.

PyTorch has `_fused_rms_norm_backward`, but no CPU kernel for it (2.13): the formula in eager torch ops is
compared instead.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.bench_rms_norm import EPS, groups
from bench.cases import Case
from bench.cases_backward import backward_cases_of
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import BackwardOp, BackwardTensors
from bench.problem import Array, BackwardProblem, Problem


def statistics(p: Problem) -> tuple[Array, Array]:
    _, rstd = cnorm.rms_norm(p.x, p.x.shape[1:], eps=EPS, return_stats=True)
    return np.zeros_like(rstd), rstd


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    return partial(cnorm.rms_norm_backward, p.dy, p.x, p.rstd, p.weight, need=("x", "weight"), out=out)


def with_numpy(p: BackwardProblem) -> Call:
    def call() -> tuple[Array, ...]:
        xhat = p.x * p.rstd
        g = p.dy * p.weight
        dx = p.rstd * (g - xhat * (g * xhat).mean(-1, keepdims=True))
        return dx, (p.dy * xhat).sum(0)

    return call


def with_torch(t: BackwardTensors) -> Call:
    def call() -> tuple[Any, ...]:
        xhat = t.x * t.rstd
        g = t.dy * t.weight
        dx = t.rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
        return dx, (t.dy * xhat).sum(0)

    return call


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups, composed=True)


@pytest.mark.parametrize("case", backward_cases_of("rms_norm"), ids=str)
def test_rms_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
