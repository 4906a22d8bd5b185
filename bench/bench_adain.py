"""AdaIN of features, with a style of the same size."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases import Case
from bench.cases_adain import ADAIN
from bench.check import UNITS_ALLOWED
from bench.compare import compare
from bench.composed import ComposedOp, Exact, wide
from bench.measure import Call, Effort
from bench.problem import Array, Problem, build

EPS = 1e-5


@dataclass(frozen=True)
class StyleProblem(Problem):
    """A case with its style, whose channels differ from those of x."""

    style: Array

    @property
    def positions(self) -> tuple[int, ...]:
        """The axes that statistics run over."""
        last = self.case.channels_last
        return tuple(range(1, self.x.ndim - 1)) if last else tuple(range(2, self.x.ndim))


def prepare(case: Case) -> StyleProblem:
    problem = build(case)
    values = np.random.default_rng(20240609).normal(-0.3, 1.5, problem.x.size).astype(case.dtype)
    return StyleProblem(**vars(problem), style=values.reshape(case.shape))


def with_cnorm(p: StyleProblem, out: Array | None) -> Call:
    return partial(cnorm.adain, p.x, p.style, EPS, axis=p.case.axis, out=out)


def composition(p: StyleProblem, content: Array, style: Array) -> Array:
    means, stds = (
        [f(p.positions, keepdims=True) for f in functions]
        for functions in (
            (content.mean, style.mean),
            (partial(content.var, ddof=1), partial(style.var, ddof=1)),
        )
    )
    content_std, style_std = (np.sqrt(var + EPS) for var in stds)
    y: Array = (content - means[0]) / content_std * style_std + means[1]
    return y


def with_numpy(p: StyleProblem) -> Call:
    return partial(composition, p, p.x, p.style)


def calc_mean_std(x: Any) -> tuple[Any, Any]:
    """As the paper's code and those after it compose them."""
    n, c = x.shape[:2]
    rows = x.reshape(n, c, -1)
    std = (rows.var(dim=2) + EPS).sqrt()
    return rows.mean(dim=2).view(n, c, 1, 1), std.view(n, c, 1, 1)


def adain_of_tensors(content: Any, style: Any) -> Any:
    (mean, std), (style_mean, style_std) = calc_mean_std(content), calc_mean_std(style)
    return (content - mean) / std * style_std + style_mean


def as_images(p: StyleProblem, torch: Any, *arrays: Array) -> list[Any]:
    """Tensors that share the arrays' memory, with channels at axis 1."""
    tensors = [torch.from_numpy(array) for array in arrays]
    return [t.movedim(-1, 1) for t in tensors] if p.case.channels_last else tensors


def with_torch(p: StyleProblem, torch: Any) -> Call:
    content, style = as_images(p, torch, p.x, p.style)

    def call() -> Any:
        y = adain_of_tensors(content, style)
        return y.movedim(1, -1) if p.case.channels_last else y

    return call


def exact(p: StyleProblem) -> Exact:
    """The result, and the natural scale of promise N1."""
    content, style = wide(p.x), wide(p.style)
    y = composition(p, content, style)
    mean, std = (f(p.positions, keepdims=True) for f in (style.mean, partial(style.std, ddof=1)))
    xhat = (y - mean) / std
    return [(y, np.maximum(1, abs(xhat)) * std + abs(mean))]


OP = ComposedOp(UNITS_ALLOWED, prepare, with_cnorm, with_numpy, with_torch, exact)


@pytest.mark.parametrize("case", ADAIN, ids=str)
def test_adain(benchmark: Any, case: Case, effort: Effort) -> None:
    compare(benchmark, case, OP, effort)
