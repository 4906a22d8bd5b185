"""The arrays of vector norms' cases, and their exact results."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Case
from bench.cases_vectors import VectorCase
from bench.composed import wide
from bench.problem import Array, Problem, build


@dataclass(frozen=True)
class VectorProblem(Problem):
    """A case with what comes in on the way back, a factor for each channel, and a head of cosines."""

    dy: Array
    g: Array
    head: Array

    @property
    def dim(self) -> int:
        """The axis of the vectors, or of the channels."""
        assert isinstance(self.case, VectorCase)
        return self.case.dim

    @property
    def p(self) -> float:
        """The order of the norm."""
        assert isinstance(self.case, VectorCase)
        return self.case.p

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that a channel's norm runs over."""
        return tuple(axis for axis in range(self.x.ndim) if axis != self.dim)


def prepare(case: Case) -> VectorProblem:
    """Return the arrays of a case; dy has mean 0.1 and spread 1."""
    assert isinstance(case, VectorCase)
    problem, rng = build(case), np.random.default_rng(20240612)
    y_shape = (*case.shape[:-1], case.outputs) if case.outputs else case.shape
    g_shape = [size if axis == case.dim else 1 for axis, size in enumerate(case.shape)]
    dy, g, head = (
        rng.normal(mean, 1.0, shape).astype(case.dtype)
        for mean, shape in ((0.1, y_shape), (2.0, g_shape), (0.0, (case.outputs, case.shape[-1])))
    )
    return VectorProblem(**vars(problem), dy=dy, g=g, head=head)


def norm(x: Any, p: float, axes: Any) -> Any:
    """Norms with kept axes, as NumPy's users write them."""
    if p == 2:
        return np.sqrt((x * x).sum(axes, keepdims=True))
    return abs(x).max(axes, keepdims=True) if np.isinf(p) else abs(x).sum(axes, keepdims=True)


def gradient(dy: Array, x: Array, p: float, axes: Any, factor: Any = 1) -> Array:
    """Gradient of `factor` times x over its norm."""
    n = norm(x, p, axes)
    if p == 2:
        direction = x / n
    elif p == 1:
        direction = np.sign(x)
    else:
        largest = abs(x) == n
        direction = np.sign(x) * largest / largest.sum(axes, keepdims=True)
    result: Array = factor / n * (dy - direction * (dy * x).sum(axes, keepdims=True) / n)
    return result


def exact_gradient(problem: VectorProblem, axes: Any, factor: Any = 1) -> tuple[Array, Array]:
    """The gradient in a wider type, counted in the largest of its vector, or of the terms that cancel."""
    x, dy = wide(problem.x), wide(problem.dy)
    result = gradient(dy, x, problem.p, axes, factor)
    terms = abs(factor / norm(x, problem.p, axes) * dy)
    return result, np.maximum(abs(result), terms).max(axes, keepdims=True)
