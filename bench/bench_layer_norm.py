"""Layer norm over the last axis of (rows, cols), with weight and bias."""

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
    return partial(cnorm.layer_norm, p.x, p.x.shape[1:], p.weight, p.bias, EPS, out=out)


def with_numpy(p: Problem) -> Call:
    def call() -> Array:
        mean = p.x.mean(-1, keepdims=True)
        var = p.x.var(-1, keepdims=True)
        y: Array = (p.x - mean) / np.sqrt(var + EPS) * p.weight + p.bias
        return y

    return call


def with_torch(t: Tensors) -> Call:
    return partial(t.functional.layer_norm, t.x, t.x.shape[1:], t.weight, t.bias, EPS)


def with_onnx(case: Case) -> Node:
    return Node("LayerNormalization", ("x", "weight", "bias"), {"axis": -1, "epsilon": EPS})


def groups(case: Case) -> Groups:
    return Groups(case.shape, over=(1,), pick=0, parameters=(1, case.channels))


OP = Op(EPS, with_cnorm, with_numpy, with_torch, with_onnx, groups)


@pytest.mark.parametrize("case", cases_of("layer_norm"), ids=str)
def test_layer_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
