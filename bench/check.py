"""Is a result right? Its distance from a wider composition, in the units of promise N1.

A benchmark of wrong results is worth nothing, so every contestant's result is looked at after it was timed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.problem import Array, Problem

Index = npt.NDArray[np.intp]

UNITS_ALLOWED = 6.0
UNITS_OF_PEERS = 1e5  # they promise nothing; a peer further off was not asked the same question
SAMPLE = 1 << 22  # elements compared, at most; whole groups, evenly spread over the array


@dataclass(frozen=True)
class Groups:
    """Which elements an op normalises together.

    Attributes
    ----------
    view : tuple of int
        x is looked at in this shape.
    over : tuple of int
        The axes of the view that statistics reduce; empty when they are given (batch norm inference).
    pick : int
        An axis of the view that groups do not extend along: some of its indices are some whole groups.
    parameters : tuple of int
        The shape that makes weight and bias broadcast against the view.
    rms : bool
        Root mean square: no mean is subtracted and no bias added.
    """

    view: tuple[int, ...]
    over: tuple[int, ...]
    pick: int
    parameters: tuple[int, ...]
    rms: bool = False

    @property
    def parameter_axes(self) -> tuple[int, ...]:
        """The axes of the view along which weight and bias broadcast."""
        return tuple(axis for axis, size in enumerate(self.parameters) if size == 1)


def worst_units(problem: Problem, groups: Groups, eps: float, y: Array) -> float:
    """Return the largest ``|y - y*| / (u (max(1, |xhat*|) |weight| + |bias|))``.

    A result that is not finite is infinitely far off.
    """
    index = sample(problem, groups)
    x = picked(problem.x, groups.view, groups, index)
    wide = x.dtype.type
    weight, bias, mean, var = (
        picked(array, groups.parameters, groups, index)
        for array in (problem.weight, problem.bias, problem.running_mean, problem.running_var)
    )
    if groups.rms:
        mean, bias = np.zeros(1, wide), np.zeros(1, wide)
    elif groups.over:
        mean = x.mean(groups.over, keepdims=True)
    if groups.over:
        var = np.square(x - mean).mean(groups.over, keepdims=True)
    xhat = (x - mean) / np.sqrt(var + eps)
    unit = np.finfo(problem.x.dtype).eps / 2
    error = abs(picked(y, groups.view, groups, index) - (xhat * weight + bias))
    units = error / (unit * (np.maximum(1, abs(xhat)) * abs(weight) + abs(bias)))
    return float(units.max()) if np.isfinite(units).all() else float("inf")


def sample(problem: Problem, groups: Groups) -> Index:
    """Which of the groups' indices along `groups.pick` to compare: evenly spread ones."""
    count = groups.view[groups.pick]
    keep = max(1, min(count, SAMPLE * count // problem.x.size))
    return np.unique(np.linspace(0, count - 1, keep).astype(int))


def picked(array: Array, shape: tuple[int, ...], groups: Groups, index: Index) -> Array:
    """Return the part at `index` along `groups.pick`, all of it where it broadcasts, in a wider dtype."""
    wide = np.longdouble if array.dtype == np.float64 else np.float64
    array = array.reshape(shape)
    return (array.take(index, groups.pick) if shape[groups.pick] > 1 else array).astype(wide)
