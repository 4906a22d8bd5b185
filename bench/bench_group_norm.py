"""Group norm of images, channels first and channels last, with weight and bias."""

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
    case = p.case
    return partial(cnorm.group_norm, p.x, case.num_groups, p.weight, p.bias, EPS, axis=case.axis, out=out)


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
    return partial(t.functional.group_norm, t.x, t.case.num_groups, t.weight, t.bias, EPS)


def with_onnx(case: Case) -> Node:
    attributes = {"num_groups": case.num_groups, "epsilon": EPS}
    if case.dtype == "float64":
        attributes["stash_type"] = 11  # TensorProto.DOUBLE; the node's default is to compute in float32
    return Node("GroupNormalization", ("x", "weight", "bias"), attributes)


def groups(case: Case) -> Groups:
    batch, members = case.shape[0], case.channels // case.num_groups
    spatial = math.prod(case.shape) // (batch * case.channels)
    if case.channels_last:
        view, parameters = (batch, spatial, case.num_groups, members), (1, 1, case.num_groups, members)
        return Groups(view, over=(1, 3), pick=2, parameters=parameters)
    view, parameters = (batch, case.num_groups, members, spatial), (1, case.num_groups, members, 1)
    return Groups(view, over=(2, 3), pick=1, parameters=parameters)


OP = Op(EPS, with_cnorm, with_numpy, with_torch, with_onnx, groups)


@pytest.mark.parametrize("case", cases_of("group_norm"), ids=str)
def test_group_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
