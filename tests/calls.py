"""One table of every function of cnorm, forward and backward, for tests of what holds for any call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import layouts
from gradients import BACKWARDS, Backward, upstream
from norms import NORMS, Norm, Parameters

Array = NDArray[Any]


@dataclass(frozen=True)
class Call:
    """A function with its arguments.

    ``results(out=...)`` is the list of all the arrays it returns, ``mistaken()`` the same call with the wrong
    value of its last argument, which is a ValueError.
    """

    inputs: list[Array]
    results: Callable[..., list[Array]]
    mistaken: Callable[..., Any]

    @property
    def x(self) -> Array:
        return self.inputs[0]


def _forward(norm: Norm, rows: Array, eps: float, layout: layouts.Layout, affine: bool) -> Call:
    x, axis = layout(norm.arrange(rows))
    p = norm.parameters(np.ascontiguousarray(x), axis=axis)
    if not affine:
        p = Parameters(None, None, p.running_mean, p.running_var)
    return Call(
        [x, *(v for v in vars(p).values() if v is not None)],
        lambda **options: list(norm.call(x, p, eps, axis, return_stats=True, **options)),
        lambda **options: norm.call(x, p, -1.0, axis, **options),
    )


def _backward(backward: Backward, rows: Array, eps: float, layout: layouts.Layout, affine: bool) -> Call:
    case = backward.case(rows, upstream(rows), eps, layout)
    if not affine:
        case = case.without_weight()
    weights = [] if case.p.weight is None else [case.p.weight]
    return Call(
        [case.x, case.dy, *case.statistics, *weights],
        lambda **options: list(backward.of(case, **options)),
        lambda **options: backward.of(case, need="y", **options),
    )


@dataclass(frozen=True)
class Function:
    """A function whose ``call`` is made from rows (groups, elements); ``name`` tells which."""

    name: str
    kind: Norm | Backward

    def call(
        self,
        rows: Array,
        eps: float = 1e-5,
        layout: layouts.Layout = layouts.contiguous,
        affine: bool = True,
    ) -> Call:
        if isinstance(self.kind, Backward):
            return _backward(self.kind, rows, eps, layout, affine)
        return _forward(self.kind, rows, eps, layout, affine)


FUNCTIONS = [Function(norm.name, norm) for norm in NORMS]
FUNCTIONS += [Function(f"{backward.name} backward", backward) for backward in BACKWARDS]
