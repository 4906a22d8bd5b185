"""Instance norm of images and volumes, channels first and channels last, with weight and bias."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case, cases_of
from bench.check import Groups
from bench.compare import compare
from bench.measure import Call, Effort
from bench.peers import Node, Op, Tensors
from bench.problem import Array, Problem

EPS = 1e-5


def with_cnorm(p: Problem, out: Array | None) -> Call:
    norm = cnorm.instance_norm
    return partial(norm, p.x, weight=p.weight, bias=p.bias, eps=EPS, axis=p.case.axis, out=out)


def with_numpy(p: Problem) -> Call:
    g = groups(p.case)

    def call() -> Array:
        x = p.x.reshape(g.view)
        mean = x.mean(g.over, keepdims=True)
        var = x.var(g.over, keepdims=True)
        y: Array = (x - mean) / np.sqrt(var + EPS) * p.weight.reshape(g.parameters) + p.bias.reshape(
            g.parameters
        )
        return y.reshape(p.x.shape)

    return call


def with_torch(t: Tensors) -> Call:
    return partial(t.functional.instance_norm, t.x, weight=t.weight, bias=t.bias, eps=EPS)


def with_onnx(case: Case) -> Node:
    return Node("InstanceNormalization", ("x", "weight", "bias"), {"epsilon": EPS})


def groups(case: Case) -> Groups:
    batch = case.shape[0]
    spatial = math.prod(case.shape) // (batch * case.channels)
    if case.channels_last:
        return Groups((batch, spatial, case.channels), over=(1,), pick=2, parameters=(1, 1, case.channels))
    return Groups((batch, case.channels, spatial), over=(2,), pick=1, parameters=(1, case.channels, 1))


OP = Op(EPS, with_cnorm, with_numpy, with_torch, with_onnx, groups)


@pytest.mark.parametrize("case", cases_of("instance_norm"), ids=str)
def test_instance_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
