"""Batch norm over the processes of a communicator, of one process, beside what users compose for it."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.bench_batch_norm import EPS, MOMENTUM, groups
from bench.cases import Case
from bench.cases_sync_batch_norm import SYNC_BATCH_NORM
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers import Op, Tensors
from bench.problem import Array, Problem


class Alone:
    """A communicator of one rank: what is left of a call is the work around the communication."""

    def Get_size(self) -> int:
        return 1

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        recvbuf[0] = sendbuf


def with_cnorm(p: Problem, out: Array | None) -> Call:
    parameters = (*p.running(), p.weight, p.bias, True, MOMENTUM, EPS)
    return partial(cnorm.sync_batch_norm, p.x, *parameters, comm=Alone(), axis=p.case.axis, out=out)


def with_numpy(p: Problem) -> Call:
    g = groups(p.case)
    axes = g.parameter_axes
    weight, bias = p.weight.reshape(g.parameters), p.bias.reshape(g.parameters)
    running_mean, running_var = (array.reshape(g.parameters) for array in p.running())
    count = p.x.size // p.case.channels

    def call() -> Array:
        nonlocal running_mean, running_var
        x = p.x.reshape(g.view)
        own = np.stack([x.mean(axes, keepdims=True), x.var(axes, keepdims=True)])
        every = own[np.newaxis].copy()  # what ranks would gather
        mean = every[:, 0].mean(0)
        var = every[:, 1].mean(0) + np.square(every[:, 0] - mean).mean(0)
        running_mean = (1 - MOMENTUM) * running_mean + MOMENTUM * mean
        running_var = (1 - MOMENTUM) * running_var + MOMENTUM * var * count / (count - 1)
        scale = weight / np.sqrt(var + EPS)
        y: Array = (x - mean) * scale + bias
        return y.reshape(p.x.shape)

    return call


def with_torch(t: Tensors) -> Call:
    """As PyTorch's own SyncBatchNorm, which runs on GPUs only: statistics, all-gather, affine map."""
    torch = t.torch
    over = tuple(axis for axis in range(t.x.ndim) if axis != 1)
    count = t.x.numel() // t.x.shape[1]
    shape = [-1 if axis == 1 else 1 for axis in range(t.x.ndim)]

    def call() -> Any:
        own_var, own_mean = torch.var_mean(t.x, over, correction=0)
        every = torch.stack([own_mean, own_var])[None].clone()  # what ranks would gather
        mean = every[:, 0].mean(0)
        var = every[:, 1].mean(0) + (every[:, 0] - mean).square().mean(0)
        t.running_mean.lerp_(mean, MOMENTUM)
        t.running_var.lerp_(var * (count / (count - 1)), MOMENTUM)
        scale = t.weight * torch.rsqrt(var + EPS)
        shift = t.bias - mean * scale
        return torch.addcmul(shift.view(shape), t.x, scale.view(shape))

    return call


OP = Op(EPS, with_cnorm, with_numpy, with_torch, None, groups, composed=True)


@pytest.mark.parametrize("case", SYNC_BATCH_NORM, ids=str)
def test_sync_batch_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
