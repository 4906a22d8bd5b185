"""One table of the backward functions under test, beside that of the norms (``norms.py``).

A problem is a ``Case``: x and the gradient to y, arranged alike, parameters, and the statistics that the
forward function returned for that x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
import gradient_oracle
import layouts
from norms import GROUPS, NORMS, Norm, Parameters

Array = NDArray[Any]

#: The promise, in units of u times the largest magnitude of the group or array.
BOUND = 16.0

EVERYTHING = ("x", "weight", "bias")


@dataclass(frozen=True)
class Case:
    """What a backward function is given; ``p.bias`` is never used, and ``eps`` only by the exact one."""

    dy: Array
    x: Array
    p: Parameters
    eps: float
    axis: int
    statistics: tuple[Array, ...]

    def without_weight(self) -> Case:
        return replace(self, p=replace(self.p, weight=None))


@dataclass(frozen=True)
class Backward:
    """One backward function in one mode; ``call`` is cnorm's and ``exact`` the oracle's."""

    norm: Norm
    call: Callable[..., cnorm.Gradients]
    exact: Callable[[Case], gradient_oracle.ExactGradients]

    @property
    def name(self) -> str:
        return self.norm.name

    def statistics(self, x: Array, p: Parameters, eps: float, axis: int) -> tuple[Array, ...]:
        """Mean and rstd, or rstd alone, as the forward function returns them."""
        used = Parameters(None, None, p.running_mean, p.running_var)
        return self.norm.call(x, used, eps, axis, return_stats=True)[1:]

    def case(
        self,
        rows: Array,
        upstream: Array,
        eps: float,
        layout: layouts.Layout = layouts.contiguous,
        dy_layout: layouts.Layout | None = None,
    ) -> Case:
        """Rows (groups, elements) of x and of dy as a problem of this function."""
        x, axis = layout(self.norm.arrange(rows))
        dy, _ = (dy_layout or layout)(self.norm.arrange(upstream))
        p = self.norm.parameters(np.ascontiguousarray(x), axis=axis)
        return Case(dy, x, p, eps, axis, self.statistics(x, p, eps, axis))

    def of(self, case: Case, need: Any = EVERYTHING, **options: Any) -> cnorm.Gradients:
        return self.call(case, need=need, **options)


def _layer_norm(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.layer_norm_backward(
        case.dy, case.x, *case.statistics, case.p.weight, normalized_shape=case.x.shape[-1], **options
    )


def _rms_norm(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.rms_norm_backward(
        case.dy, case.x, *case.statistics, case.p.weight, normalized_shape=case.x.shape[-1], **options
    )


def _group_norm(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.group_norm_backward(
        case.dy, case.x, *case.statistics, GROUPS, case.p.weight, axis=case.axis, **options
    )


def _instance_norm(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.instance_norm_backward(
        case.dy, case.x, *case.statistics, case.p.weight, axis=case.axis, **options
    )


def _batch_norm_training(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.batch_norm_backward(
        case.dy, case.x, *case.statistics, case.p.weight, axis=case.axis, **options
    )


def _batch_norm_frozen(case: Case, **options: Any) -> cnorm.Gradients:
    return cnorm.batch_norm_backward(
        case.dy, case.x, *case.statistics, case.p.weight, training=False, axis=case.axis, **options
    )


_CALLS: dict[str, tuple[Callable[..., cnorm.Gradients], Callable[[Case], gradient_oracle.ExactGradients]]] = {
    "layer_norm": (
        _layer_norm,
        lambda c: gradient_oracle.layer_norm(c.dy, c.x, c.p.weight, c.eps),
    ),
    "rms_norm": (
        _rms_norm,
        lambda c: gradient_oracle.rms_norm(c.dy, c.x, c.p.weight, c.eps),
    ),
    "group_norm": (
        _group_norm,
        lambda c: gradient_oracle.group_norm(c.dy, c.x, GROUPS, c.p.weight, c.eps, axis=c.axis),
    ),
    "instance_norm": (
        _instance_norm,
        lambda c: gradient_oracle.instance_norm(c.dy, c.x, c.p.weight, c.eps, axis=c.axis),
    ),
    "batch_norm training": (
        _batch_norm_training,
        lambda c: gradient_oracle.batch_norm(c.dy, c.x, c.p.weight, c.eps, axis=c.axis),
    ),
    "batch_norm inference": (
        _batch_norm_frozen,
        lambda c: gradient_oracle.batch_norm_frozen(c.dy, c.x, *c.statistics, c.p.weight, axis=c.axis),
    ),
}

BACKWARDS = [Backward(norm, *_CALLS[norm.name]) for norm in NORMS]

#: Those whose statistics are x's own.
TRAINING = [backward for backward in BACKWARDS if not backward.norm.running]


def upstream(x: Array, seed: int = 0) -> Array:
    """A standard normal gradient for rows like ``x``, always the same one."""
    rng = np.random.default_rng([seed, *x.shape])
    return rng.standard_normal(x.shape).astype(x.dtype)


def worst_units(gradients: cnorm.Gradients, exact: gradient_oracle.ExactGradients) -> tuple[float, ...]:
    """The errors of dx, dweight and dbias in units; those not asked for are left out."""
    pairs = zip(gradients, (exact.x, exact.weight, exact.bias), strict=True)
    return tuple(gradient_oracle.units(ours, right) for ours, right in pairs if ours is not None)
