"""Batch norm, inference and training, of images and of features (N, C), with every parameter."""

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

EPS, MOMENTUM = 1e-5, 0.1


def with_cnorm(p: Problem, out: Array | None) -> Call:
    parameters = (*p.running(), p.weight, p.bias, p.case.training, MOMENTUM, EPS)
    return partial(cnorm.batch_norm, p.x, *parameters, axis=p.case.axis, out=out)


def with_numpy(p: Problem) -> Call:
    g = groups(p.case)
    axes = g.parameter_axes
    weight, bias = p.weight.reshape(g.parameters), p.bias.reshape(g.parameters)
    running_mean, running_var = (array.reshape(g.parameters) for array in p.running())
    count = p.x.size // p.case.channels

    def infer() -> Array:
        y: Array = (p.x.reshape(g.view) - running_mean) / np.sqrt(running_var + EPS) * weight + bias
        return y.reshape(p.x.shape)

    def train() -> Array:
        nonlocal running_mean, running_var
        x = p.x.reshape(g.view)
        mean = x.mean(axes, keepdims=True)
        var = x.var(axes, keepdims=True)
        running_mean = (1 - MOMENTUM) * running_mean + MOMENTUM * mean
        running_var = (1 - MOMENTUM) * running_var + MOMENTUM * var * count / (count - 1)
        y: Array = (x - mean) / np.sqrt(var + EPS) * weight + bias
        return y.reshape(p.x.shape)

    return train if p.case.training else infer


def with_torch(t: Tensors) -> Call:
    parameters = (t.running_mean, t.running_var, t.weight, t.bias, t.case.training, MOMENTUM, EPS)
    return partial(t.functional.batch_norm, t.x, *parameters)


def with_onnx(case: Case) -> Node:
    inputs = ("x", "weight", "bias", "running_mean", "running_var")
    if case.training:
        attributes = {"epsilon": EPS, "momentum": 1 - MOMENTUM, "training_mode": 1}
        return Node("BatchNormalization", inputs, attributes, outputs=("y", "new_mean", "new_var"))
    return Node("BatchNormalization", inputs, {"epsilon": EPS})


def groups(case: Case) -> Groups:
    batch = case.shape[0]
    spatial = math.prod(case.shape) // (batch * case.channels)
    if case.channels_last:
        view, parameters, axis = (batch, spatial, case.channels), (1, 1, case.channels), 2
    else:
        view, parameters, axis = (batch, case.channels, spatial), (1, case.channels, 1), 1
    over = tuple({0, 1, 2} - {axis}) if case.training else ()
    return Groups(view, over, pick=axis, parameters=parameters)


OP = Op(EPS, with_cnorm, with_numpy, with_torch, with_onnx, groups)


@pytest.mark.parametrize("case", cases_of("batch_norm"), ids=str)
def test_batch_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
