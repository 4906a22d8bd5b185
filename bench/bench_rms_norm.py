"""RMS norm over the last axis of (rows, cols), with a weight."""

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
    return partial(cnorm.rms_norm, p.x, p.x.shape[1:], p.weight, EPS, out=out)


def with_numpy(p: Problem) -> Call:
    def call() -> Array:
        y: Array = p.x / np.sqrt(np.square(p.x).mean(-1, keepdims=True) + EPS) * p.weight
        return y

    return call


def with_torch(t: Tensors) -> Call:
    return partial(t.functional.rms_norm, t.x, t.x.shape[1:], t.weight, EPS)


def with_onnx(case: Case) -> Node:
    return Node("SimplifiedLayerNormalization", ("x", "weight"), {"axis": -1, "epsilon": EPS})


def groups(case: Case) -> Groups:
    return Groups(case.shape, over=(1,), pick=0, parameters=(1, case.channels), rms=True)


OP = Op(EPS, with_cnorm, with_numpy, with_torch, with_onnx, groups)


@pytest.mark.parametrize("case", cases_of("rms_norm"), ids=str)
def test_rms_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
