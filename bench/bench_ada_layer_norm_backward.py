"""Adaptive layer norm's gradients of x, and of the scale and shift of each sample."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench import bench_ada_layer_norm
from bench.bench_ada_layer_norm import EPS, ModulatedProblem, modulated_tensors, standardised
from bench.cases import Case
from bench.cases_adain import ADA_LAYER_NORM_BACKWARD
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, largest, wide
from bench.measure import Call, Effort
from bench.problem import Array


@dataclass(frozen=True)
class ModulatedGradientProblem(ModulatedProblem):
    """A backward case, with the statistics that the forward pass returns."""

    dy: Array
    mean: Array
    rstd: Array


def prepare(case: Case) -> ModulatedGradientProblem:
    problem = bench_ada_layer_norm.prepare(case)
    dy = np.random.default_rng(20240612).normal(0.1, 1.0, case.shape).astype(case.dtype)
    given = problem.x, problem.scale, problem.shift, EPS
    _, mean, rstd = cnorm.ada_layer_norm(*given, return_stats=True)
    return ModulatedGradientProblem(**vars(problem), dy=dy, mean=mean, rstd=rstd)


def with_cnorm(p: ModulatedGradientProblem, out: Array | None) -> Call:
    return partial(cnorm.ada_layer_norm_backward, p.dy, p.x, p.mean, p.rstd, p.scale, out=out)


def composition(dy: Array, xhat: Array, rstd: Array, scale: Array) -> tuple[Array, Array, Array]:
    g = dy * (1 + scale[:, None])
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx, (dy * xhat).sum(1), dy.sum(1)


def with_numpy(p: ModulatedGradientProblem) -> Call:
    return lambda: composition(p.dy, (p.x - p.mean) * p.rstd, p.rstd, p.scale)


def with_torch(p: ModulatedGradientProblem, torch: Any) -> Call:
    inputs = [torch.from_numpy(a).requires_grad_() for a in (p.x, p.scale, p.shift)]
    y, dy = modulated_tensors(torch, *inputs), torch.from_numpy(p.dy)
    return partial(torch.autograd.grad, y, inputs, dy, retain_graph=True)


def exact(p: ModulatedGradientProblem) -> Exact:
    dx, dscale, dshift = composition(wide(p.dy), *standardised(wide(p.x)), wide(p.scale))
    return [largest(dx, (-1,)), largest(dscale, (0, 1)), largest(dshift, (0, 1))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", ADA_LAYER_NORM_BACKWARD, ids=str)
def test_ada_layer_norm_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
