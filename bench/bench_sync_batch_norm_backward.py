"""Gradients of batch norm over the processes of a communicator, of one process, beside what users compose."""

from functools import partial
from typing import Any

import pytest

import cnorm
from bench.bench_batch_norm import EPS, groups
from bench.bench_batch_norm_backward import statistics
from bench.bench_sync_batch_norm import Alone
from bench.cases import Case
from bench.cases_sync_batch_norm import SYNC_BATCH_NORM_BACKWARD
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers_backward import BackwardOp, BackwardTensors, composition
from bench.problem import Array, BackwardProblem


def with_cnorm(p: BackwardProblem, out: Array | None) -> Call:
    arguments = (p.dy, p.x, p.mean, p.rstd, p.weight)
    return partial(cnorm.sync_batch_norm_backward, *arguments, comm=Alone(), axis=p.case.axis, out=out)


def with_numpy(p: BackwardProblem) -> Call:
    return composition(p, groups(p.case))


def with_torch(t: BackwardTensors) -> Call:
    """As PyTorch's own SyncBatchNorm, which runs on GPUs only: two sums, all-gather, gradient."""
    over = tuple(axis for axis in range(t.x.ndim) if axis != 1)
    count = t.x.numel() // t.x.shape[1]
    shape = [-1 if axis == 1 else 1 for axis in range(t.x.ndim)]

    def call() -> Any:
        centred = t.x - t.mean.view(shape)
        dbias = t.dy.sum(over)
        dy_centred = (t.dy * centred).sum(over)
        all_dy, all_dy_centred = dbias.clone(), dy_centred.clone()  # what ranks would add up
        slope = (all_dy_centred / count * t.rstd * t.rstd).view(shape)
        factor = (t.rstd * t.weight).view(shape)
        dx = (t.dy - (all_dy / count).view(shape) - centred * slope) * factor
        return dx, dy_centred * t.rstd, dbias

    return call


OP = BackwardOp(EPS, statistics, with_cnorm, with_numpy, with_torch, groups, composed=True)


@pytest.mark.parametrize("case", SYNC_BATCH_NORM_BACKWARD, ids=str)
def test_sync_batch_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
