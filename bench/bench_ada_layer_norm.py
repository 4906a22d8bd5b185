"""Adaptive layer norm of (samples, tokens, features)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case
from bench.cases_adain import ADA_LAYER_NORM
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array, Problem, build

EPS = 1e-6


@dataclass(frozen=True)
class ModulatedProblem(Problem):
    """A case with scale and shift (samples, features)."""

    scale: Array
    shift: Array


def prepare(case: Case) -> ModulatedProblem:
    rng = np.random.default_rng(20240611)
    scale, shift = rng.normal(0, 0.5, (2, case.shape[0], case.shape[-1])).astype(case.dtype)
    return ModulatedProblem(**vars(build(case)), scale=scale, shift=shift)


def with_cnorm(p: ModulatedProblem, out: Array | None) -> Call:
    return partial(cnorm.ada_layer_norm, p.x, p.scale, p.shift, EPS, out=out)


def standardised(x: Array) -> tuple[Array, Array]:
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + EPS)
    return (x - x.mean(-1, keepdims=True)) * rstd, rstd


def composition(x: Array, scale: Array, shift: Array) -> Array:
    y: Array = standardised(x)[0] * (1 + scale[:, None]) + shift[:, None]
    return y


def with_numpy(p: ModulatedProblem) -> Call:
    return partial(composition, p.x, p.scale, p.shift)


def modulated_tensors(torch: Any, x: Any, scale: Any, shift: Any) -> Any:
    """As diffusion transformers compose it."""
    hat = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)
    return hat * (1 + scale[:, None]) + shift[:, None]


def with_torch(p: ModulatedProblem, torch: Any) -> Call:
    return partial(modulated_tensors, torch, *(torch.from_numpy(a) for a in (p.x, p.scale, p.shift)))


def exact(p: ModulatedProblem) -> Exact:
    """The result, and the natural scale of promise N1."""
    xhat, _ = standardised(wide(p.x))
    weight, bias = wide(p.scale)[:, None] + 1, wide(p.shift)[:, None]
    return [(xhat * weight + bias, np.maximum(1, abs(xhat)) * abs(weight) + abs(bias))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", ADA_LAYER_NORM, ids=str)
def test_ada_layer_norm(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
