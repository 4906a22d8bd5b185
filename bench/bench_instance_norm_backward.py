"""Instance norm's gradients of images and volumes, channels first and channels last."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_instance_norm import EPS, groups
from bench.cases import Case
from bench.cases_backward import backward_cases_of
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import ALL, BackwardOp, BackwardTensors, composition
from bench.problem import Array, BackwardProblem, Problem


def statistics(p: Problem) -> tuple[Array, Array]:
    _, mean, rstd = cnorm.instance_norm(p.x, eps=EPS, axis=p.case.axis, return_stats=True)
    return mean, rstd


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    arguments = (p.dy, p.x, p.mean, p.rstd, p.weight)
    return partial(cnorm.instance_norm_backward, *arguments, axis=p.case.axis, out=out)


def with_numpy(p: BackwardProblem) -> Call:
    return composition(p, groups(p.case))


def with_torch(t: BackwardTensors) -> Call:
    """As PyTorch does it: batch norm of one image of batch * channels channels, with the weight repeated.

    Its forward made x contiguous and kept that, so only dy is made contiguous here. Its dx is, too.
    """
    batch, channels, *spatial = t.x.shape
    flat = (1, batch * channels, *spatial)
    x, weight = t.x.reshape(flat), t.weight.repeat(batch)
    saved = (None, None, t.mean.reshape(-1), t.rstd.reshape(-1), True, EPS, ALL)
    backward = t.aten.native_batch_norm_backward.default

    def call() -> tuple[Any, ...]:
        dx, *parameters = backward(t.dy.reshape(flat), x, weight, *saved)
        if batch == 1:
            return dx, *parameters
        return dx, *(parameter.view(batch, channels).sum(0) for parameter in parameters)

    return call


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups)


@pytest.mark.parametrize("case", backward_cases_of("instance_norm"), ids=str)
def test_instance_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
