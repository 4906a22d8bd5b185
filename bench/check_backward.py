"""Are gradients right? Their distance from a wider composition, in units of the largest of its kind.

The statistics are computed anew, in the wider type: a contestant answers for what the rounding of the saved
ones does to its result. Only frozen batch norm is given statistics that are not those of x.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench.check import Groups, Index, picked, sample
from bench.problem import Array, BackwardProblem

UNITS_ALLOWED = 16.0
BLOCK = 1 << 20  # elements at a time


class Exact(NamedTuple):
    """Gradients of some groups: dx, and what they add to dweight and dbias, in `Groups.parameters`' shape."""

    dx: Array
    dweight: Array
    dbias: Array


def judge(problem: BackwardProblem, groups: Groups, eps: float) -> Callable[[tuple[Array, ...]], float]:
    """Return a function that gives the worst error of ``(dx, dweight, dbias)``, or ``(dx, dweight)``.

    Its unit is that of rounding, times the largest magnitude in the element's group (dx) or in the whole
    array (dweight, dbias). A result that is not finite is infinitely far off.
    """
    index = sample(problem, groups)
    dx = exact(problem, groups, eps, index).dx
    scale = abs(dx).max(groups.over, keepdims=True)
    parameters = parameter_gradients(problem, groups, eps)
    unit = np.finfo(problem.x.dtype).eps / 2

    def worst(result: tuple[Array, ...]) -> float:
        errors = [abs(picked(result[0], groups.view, groups, index) - dx) / scale]
        for given, wanted in zip(result[1:], parameters, strict=False):
            errors.append(abs(given.reshape(groups.parameters) - wanted) / abs(wanted).max())
        units = [float(error.max() / unit) for error in errors]
        return max(units) if all(map(math.isfinite, units)) else float("inf")

    return worst


def parameter_gradients(problem: BackwardProblem, groups: Groups, eps: float) -> tuple[Array, Array]:
    """Return dweight and dbias of all of x, a few groups at a time."""
    count = groups.view[groups.pick]
    blocks = np.array_split(np.arange(count), min(count, math.ceil(problem.x.size / BLOCK)))
    parts = [exact(problem, groups, eps, block)[1:] for block in blocks]
    if groups.parameters[groups.pick] == 1:  # every group has a part in every parameter
        dweight, dbias = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))
    else:
        dweight, dbias = (np.concatenate(part, groups.pick) for part in zip(*parts, strict=True))
    return dweight, dbias


def exact(problem: BackwardProblem, groups: Groups, eps: float, index: Index) -> Exact:
    """Return the gradients of the groups at `index`."""
    x, dy = (picked(array, groups.view, groups, index) for array in (problem.x, problem.dy))
    g = dy * picked(problem.weight, groups.parameters, groups, index)

    def average(values: Array) -> Array:
        mean: Array = values.mean(groups.over, keepdims=True)
        return mean

    if groups.over:
        centred = x if groups.rms else x - average(x)
        rstd = 1 / np.sqrt(average(np.square(centred)) + eps)
        xhat = centred * rstd
        dx = rstd * ((g if groups.rms else g - average(g)) - xhat * average(g * xhat))
    else:
        mean, rstd = (
            picked(array, groups.parameters, groups, index) for array in (problem.mean, problem.rstd)
        )
        xhat = (x - mean) * rstd
        dx = g * rstd
    return Exact(dx, *(terms.sum(groups.parameter_axes, keepdims=True) for terms in (dy * xhat, dy)))
