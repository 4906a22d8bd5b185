"""AdaIN's gradients of content and style."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench import bench_adain
from bench.bench_adain import EPS, StyleProblem, adain_of_tensors, as_images
from bench.cases import Case
from bench.cases_adain import ADAIN_BACKWARD
from bench.check_backward import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, largest, wide
from bench.measure import Call, Effort
from bench.problem import Array


@dataclass(frozen=True)
class StyleGradientProblem(StyleProblem):
    """A backward case; `statistics` are the four that the forward pass returns."""

    dy: Array
    statistics: tuple[Array, Array, Array, Array]


def prepare(case: Case) -> StyleGradientProblem:
    problem = bench_adain.prepare(case)
    dy = np.random.default_rng(20240610).normal(0.1, 1.0, problem.x.shape).astype(case.dtype)
    _, *statistics = cnorm.adain(problem.x, problem.style, EPS, axis=case.axis, return_stats=True)
    return StyleGradientProblem(**vars(problem), dy=dy, statistics=(*statistics,))


def with_cnorm(p: StyleGradientProblem, out: Array | None) -> Call:
    return partial(cnorm.adain_backward, p.dy, p.x, p.style, *p.statistics, axis=p.case.axis, out=out)


def composition(
    p: StyleGradientProblem, dy: Array, content: Array, style: Array, statistics: tuple[Array, ...]
) -> tuple[Array, Array]:
    mean, rstd, style_mean, style_rstd = (np.expand_dims(s, p.positions) for s in statistics)
    n = content.size // mean.size
    xhat, style_hat = (content - mean) * rstd, (style - style_mean) * style_rstd
    to_mean, to_std = dy.sum(p.positions, keepdims=True), (dy * xhat).sum(p.positions, keepdims=True)
    dcontent = rstd / style_rstd * (dy - to_mean / n - xhat * (to_std / (n - 1)))
    return dcontent, to_mean / n + style_hat * (to_std / (n - 1))


def with_numpy(p: StyleGradientProblem) -> Call:
    return partial(composition, p, p.dy, p.x, p.style, p.statistics)


def with_torch(p: StyleGradientProblem, torch: Any) -> Call:
    dy, content, style = as_images(p, torch, p.dy, p.x, p.style)
    inputs = content.requires_grad_(), style.requires_grad_()
    y = adain_of_tensors(*inputs)

    def call() -> tuple[Any, ...]:
        gradients = torch.autograd.grad(y, inputs, dy, retain_graph=True)
        return tuple(g.movedim(1, -1) for g in gradients) if p.case.channels_last else gradients

    return call


def exact(p: StyleGradientProblem) -> Exact:
    content, style = wide(p.x), wide(p.style)
    statistics = [s for x in (content, style) for s in (x.mean(p.positions), x.var(p.positions, ddof=1))]
    mean, var, style_mean, style_var = statistics
    known = mean, 1 / np.sqrt(var + EPS), style_mean, 1 / np.sqrt(style_var + EPS)
    dcontent, dstyle = composition(p, wide(p.dy), content, style, known)
    # The gradient of the style is made of sums over a channel, and is counted as those of parameters are.
    return [largest(dcontent, p.positions), largest(dstyle, tuple(range(dstyle.ndim)))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", ADAIN_BACKWARD, ids=str)
def test_adain_backward(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
