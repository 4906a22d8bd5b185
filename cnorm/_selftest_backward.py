"""The gradients' part of the check behind ``python -m cnorm``, against extended precision.

The error is counted in units of u times the largest magnitude of the group (x) or array (weight, bias), of
which 16 are promised; where that cancels, the scale is that of its terms. Constant groups must give the
weight a gradient of exactly 0, and every instruction-set level and number of threads the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm
from cnorm._selftest import (
    COLUMN_LAYOUTS,
    IMAGE_LAYOUTS,
    RANKS_LAYOUTS,
    ROW_LAYOUTS,
    TRAPS,
    Groups,
    Verdict,
    along,
    batches,
    each_element,
    halves,
    instances,
    on_ranks,
    rows,
    running_statistics,
    standardise,
    two_parts,
    variants,
)

Array = NDArray[Any]

UNITS = 16.0
LARGE = 100_000  # elements that take extended precision long: the first two traps are enough
NEED = ("x", "weight", "bias")


@dataclass(frozen=True)
class Backward:
    """A backward function in one configuration.

    `run` is given (dy, x, weight, eps, channel axis) and returns the gradients; `layouts` are pairs of a
    shape and its channel axis. Frozen statistics are those of `running_statistics`. The op adds
    `weight_offset` to the weight.
    """

    name: str
    run: Callable[[Array, Array, Array, float, int], cnorm.Gradients]
    groups: Callable[[Array, int], Groups]
    layouts: tuple[tuple[tuple[int, ...], int], ...]
    centred: bool = True
    frozen: bool = False
    weight_offset: float = 0.0


def _layer_norm(dy: Array, x: Array, w: Array, eps: float, _: int) -> cnorm.Gradients:
    statistics = cnorm.layer_norm(x, eps=eps, return_stats=True)[1:]
    return cnorm.layer_norm_backward(dy, x, *statistics, w, need=NEED)


def _ada_layer_norm(dy: Array, x: Array, w: Array, eps: float, _: int) -> cnorm.Gradients:
    scale = w[np.newaxis]
    statistics = cnorm.ada_layer_norm(x[np.newaxis], scale, scale, eps, return_stats=True)[1:]
    grads = cnorm.ada_layer_norm_backward(dy[np.newaxis], x[np.newaxis], *statistics, scale)
    return cnorm.Gradients(*(None if g is None else g[0] for g in grads))


def _rms_norm(dy: Array, x: Array, w: Array, eps: float, _: int) -> cnorm.Gradients:
    rstd = cnorm.rms_norm(x, eps=eps, return_stats=True)[1]
    return cnorm.rms_norm_backward(dy, x, rstd, w, need=NEED)


def _group_norm(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
    statistics = cnorm.group_norm(x, 2, eps=eps, axis=axis, return_stats=True)[1:]
    return cnorm.group_norm_backward(dy, x, *statistics, 2, w, axis=axis, need=NEED)


def _instance_norm(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
    statistics = cnorm.instance_norm(x, eps=eps, axis=axis, return_stats=True)[1:]
    return cnorm.instance_norm_backward(dy, x, *statistics, w, axis=axis, need=NEED)


def _batch_norm(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
    statistics = cnorm.batch_norm(x, training=True, eps=eps, axis=axis, return_stats=True)[1:]
    return cnorm.batch_norm_backward(dy, x, *statistics, w, axis=axis, need=NEED)


def _frozen_statistics(x: Array, eps: float, axis: int) -> tuple[Array, Array]:
    mean, var = running_statistics(x, axis)
    return mean, (1 / np.sqrt(var + eps)).astype(x.dtype)


def _batch_norm_frozen(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
    statistics = _frozen_statistics(x, eps, axis)
    return cnorm.batch_norm_backward(dy, x, *statistics, w, training=False, axis=axis, need=NEED)


def _spade(norm: str) -> Callable[[Array, Array, Array, float, int], cnorm.Gradients]:
    def run(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
        gamma = each_element(w, x, axis)
        options: dict[str, Any] = {"norm": norm, "gamma_offset": 0.0, "axis": axis}
        _, mean, rstd = cnorm.spade(x, gamma, gamma, eps, return_stats=True, **options)
        dx, *others = cnorm.spade_backward(dy, x, mean, rstd, gamma, **options)
        by_channel = tuple(i for i in range(x.ndim) if i != axis)
        return cnorm.Gradients(dx, *(g.sum(by_channel, np.longdouble) for g in others if g is not None))

    return run


def _sync_batch_norm(dy: Array, x: Array, w: Array, eps: float, axis: int) -> cnorm.Gradients:
    """Of two ranks: dx of their samples, and the sums of what is each one's share."""
    statistics = cnorm.batch_norm(x, training=True, eps=eps, axis=axis, return_stats=True)[1:]
    xs, dys = two_parts(x), two_parts(dy)
    first, second = on_ranks(
        2,
        lambda rank, comm: cnorm.sync_batch_norm_backward(
            dys[rank], xs[rank], *statistics, w, comm=comm, axis=axis, need=NEED
        ),
    )
    dx = np.concatenate([first.x, second.x])
    return cnorm.Gradients(dx, first.weight + second.weight, first.bias + second.bias)


BACKWARDS = (
    Backward("layer_norm", _layer_norm, rows, ROW_LAYOUTS),
    Backward("rms_norm", _rms_norm, rows, ROW_LAYOUTS, centred=False),
    Backward("group_norm", _group_norm, halves, IMAGE_LAYOUTS),
    Backward("instance_norm", _instance_norm, instances, IMAGE_LAYOUTS),
    Backward("batch_norm, training", _batch_norm, batches, IMAGE_LAYOUTS + COLUMN_LAYOUTS),
    Backward("batch_norm, frozen", _batch_norm_frozen, batches, IMAGE_LAYOUTS + COLUMN_LAYOUTS, frozen=True),
    Backward("ada_layer_norm", _ada_layer_norm, rows, ROW_LAYOUTS, weight_offset=1.0),
    Backward("spade, batch", _spade("batch"), batches, IMAGE_LAYOUTS + COLUMN_LAYOUTS),
    Backward("spade, instance", _spade("instance"), instances, IMAGE_LAYOUTS),
    Backward("sync_batch_norm", _sync_batch_norm, batches, RANKS_LAYOUTS),
)


def _scale(exact: Array, terms: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Return the largest magnitude, or that of `terms` where it cancels to less than half of these."""
    largest: Array = abs(exact).max(axes, keepdims=True)
    return np.where(largest < terms / 2, terms, largest)


def _exact(
    op: Backward, dy: Array, x: Array, w: Array, eps: float, axis: int
) -> tuple[tuple[Array, Array], ...]:
    """Return the three gradients in extended precision, each with what its error is counted in."""
    grouped, axes = op.groups(x, axis)
    hat, rstd = standardise(x, (grouped, axes), eps, op.centred)
    if op.frozen:
        mean, rstd = (along(s, x, axis) for s in _frozen_statistics(x, eps, axis))
        hat = (x.astype(np.longdouble) - mean) * rstd
    dy = dy.astype(np.longdouble)
    g = (dy * along(w + w.dtype.type(op.weight_offset), x, axis)).reshape(grouped)
    part = 0 if op.frozen else hat * (g * hat).mean(axes, keepdims=True)
    if op.centred and not op.frozen:
        part = part + g.mean(axes, keepdims=True)
    dx = rstd * (g - part)
    scale = _scale(dx, rstd * abs(g).max(axes, keepdims=True), axes)
    gradients = [(dx.reshape(x.shape), np.broadcast_to(scale, grouped).reshape(x.shape))]
    others = tuple(i for i in range(x.ndim) if i != axis)
    for terms in (dy * hat.reshape(x.shape), dy):
        total = terms.sum(others)
        gradients.append((total, _scale(total, np.sqrt(np.square(terms).sum(others)).max())))
    return tuple(gradients)


def judge(op: Backward, dtype: str) -> Verdict:
    """Run `op` on every layout and trap."""
    verdict = Verdict(op.name, dtype, UNITS)
    roundoff = float(np.finfo(dtype).eps) / 2
    rng = np.random.default_rng(3)
    for shape, axis in op.layouts:
        for trap in TRAPS[dtype][: 2 if math.prod(shape) >= LARGE else None]:
            x = trap.draw(rng, shape, dtype)
            dy = rng.standard_normal(shape).astype(dtype)
            w = rng.uniform(-3, 3, shape[axis]).astype(dtype)
            gradients = op.run(dy, x, w, trap.eps, axis)
            for value, (exact, scale) in zip(gradients, _exact(op, dy, x, w, trap.eps, axis), strict=True):
                error = abs(value - exact)
                verdict.see(np.divide(error, roundoff * scale, out=np.zeros_like(error), where=error != 0))
            if trap.spread == 0 and op.centred and not op.frozen:
                verdict.constants_are_exact &= not np.any(gradients.weight)
            bits = [g.tobytes() for g in gradients if g is not None]
            for _ in variants():
                again = op.run(dy, x, w, trap.eps, axis)
                verdict.same_bits &= [g.tobytes() for g in again if g is not None] == bits
    return verdict


def run() -> bool:
    """Print a line for every op and dtype; return whether all passed."""
    print(f"Gradients of x, weight and bias; at most {UNITS:g} units of the largest are promised:")
    passed = True
    for op in BACKWARDS:
        for dtype in ("float32", "float64"):
            verdict = judge(op, dtype)
            print(verdict)
            passed &= verdict.passed
    return passed
