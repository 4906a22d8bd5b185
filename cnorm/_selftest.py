"""The check behind ``python -m cnorm``: every op on this machine against extended precision.

The error is counted in units, ``|y - exact| / (u * (max(1, |xhat|) * |weight| + |bias|))`` with u = 2**-24 in
float32 and 2**-53 in float64, of which 6 are promised. Constant groups must give exactly the bias, and every
instruction-set level and number of threads the same bits. Gradients: _selftest_backward.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cnorm

Array = NDArray[Any]
Groups = tuple[tuple[int, ...], tuple[int, ...]]  # a shape to give x, and the axes that a group runs over

UNITS = 6.0
RANKS_LARGE = 20_000  # elements
# The judge is numpy.longdouble; where that is no wider than float64, it errs as much itself on float64.
JUDGE_UNITS = 0.0 if np.finfo(np.longdouble).eps < np.finfo(np.float64).eps else 6.0

ROWS = ((5, 1), (3, 7), (17, 70), (4, 1000), (2, 9001), (1, 300000))
COLUMNS = ((9, 3), (257, 66), (3000, 20))
IMAGES = ((2, 6, 5, 7), (3, 4, 1000), (1, 2, 65, 130), (1, 4, 70003), (6, 40, 2))


@dataclass(frozen=True)
class Trap:
    """A kind of input: standard normal numbers times `spread`, moved by `offset`."""

    spread: float
    offset: float = 0.0
    eps: float = 1e-5

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array of this kind."""
        x: Array = self.offset + self.spread * rng.standard_normal(shape)
        return x.astype(dtype)


TRAPS = {
    "float32": (Trap(1), Trap(1, 1e4), Trap(0, 0.1), Trap(1e30), Trap(1e-30, eps=0)),
    "float64": (Trap(1), Trap(1, 1e8), Trap(0, 0.1), Trap(1e150), Trap(1e-140, eps=0)),
}


def _given(w: Array, b: Array, _: float) -> tuple[Array, Array]:
    return w, b


@dataclass(frozen=True)
class Op:
    """An op in one configuration.

    `run` is given (x, weight, bias, eps, channel axis) and returns y; `exact` is given (x, eps, channel axis)
    and returns xhat in extended precision; `layouts` are pairs of a shape and its channel axis. `affine` is
    given (weight, bias, eps) and returns what xhat is multiplied by, and what is added then.
    """

    name: str
    run: Callable[[Array, Array, Array, float, int], Array]
    exact: Callable[[Array, float, int], Array]
    layouts: tuple[tuple[tuple[int, ...], int], ...]
    affine: Callable[[Array, Array, float], tuple[Array, Array]] = _given


@dataclass
class Verdict:
    """What was found for one op and dtype."""

    name: str
    dtype: str
    promised: float = UNITS
    units: float = 0.0
    constants_are_exact: bool = True
    same_bits: bool = True

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        limit = self.promised + (JUDGE_UNITS if self.dtype == "float64" else 0)
        return self.units <= limit and self.constants_are_exact and self.same_bits

    def see(self, units: Array) -> None:
        """Take note of errors; a NaN stays and fails."""
        self.units = float(np.maximum(self.units, units.max()))

    def __str__(self) -> str:
        remarks = "" if self.constants_are_exact else ", constant groups are not exact"
        remarks += "" if self.same_bits else ", bits differ between levels or numbers of threads"
        verdict = "PASS" if self.passed else "FAIL"
        return f"{verdict}  {self.name:22} {self.dtype}  worst error {self.units:.2f} units{remarks}"


def rows(x: Array, axis: int) -> Groups:
    """Each row is a group."""
    return x.shape, (axis,)


def halves(x: Array, axis: int) -> Groups:
    """Half the channels of a sample are a group."""
    grouped = (*x.shape[:axis], 2, x.shape[axis] // 2, *x.shape[axis + 1 :])
    return grouped, tuple(i for i in range(1, len(grouped)) if i != axis)


def instances(x: Array, axis: int) -> Groups:
    """Each channel of a sample is a group."""
    return x.shape, tuple(i for i in range(1, x.ndim) if i != axis)


def batches(x: Array, axis: int) -> Groups:
    """Each channel is a group."""
    return x.shape, tuple(i for i in range(x.ndim) if i != axis)


def standardise(x: Array, groups: Groups, eps: float, centred: bool = True) -> tuple[Array, Array]:
    """Return xhat and rstd in extended precision, in the groups' shape."""
    grouped, axes = groups
    d = x.astype(np.longdouble).reshape(grouped)
    if centred:
        d -= d[tuple(slice(1 if i in axes else None) for i in range(d.ndim))]  # equal values become exactly 0
        d -= d.mean(axes, keepdims=True)
        d -= d.mean(axes, keepdims=True)  # what the rounding of the first mean left
    root = np.sqrt(np.square(d).mean(axes, keepdims=True) + np.longdouble(eps))
    rstd = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    return d * rstd, rstd


def _exact(
    groups: Callable[[Array, int], Groups], centred: bool = True
) -> Callable[[Array, float, int], Array]:
    """Return the function that is an Op's `exact`."""
    return lambda x, eps, axis: standardise(x, groups(x, axis), eps, centred)[0].reshape(x.shape)


def running_statistics(x: Array, axis: int) -> tuple[Array, Array]:
    """Return some mean and variance (channels,) that suit `x`."""
    mean = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)[:, 0].copy()
    return mean, 1 + abs(mean)


def _exact_inference(x: Array, eps: float, axis: int) -> Array:
    mean, var = (along(statistic, x, axis) for statistic in running_statistics(x, axis))
    return (x.astype(np.longdouble) - mean) / np.sqrt(var.astype(np.longdouble) + np.longdouble(eps))


def _run_inference(x: Array, w: Array, b: Array, eps: float, axis: int) -> Array:
    return cnorm.batch_norm(x, *running_statistics(x, axis), w, b, eps=eps, axis=axis)


def _run_ada_layer_norm(x: Array, w: Array, b: Array, eps: float, _: int) -> Array:
    return cnorm.ada_layer_norm(x[np.newaxis], w[np.newaxis], b[np.newaxis], eps)[0]


def _one_more(w: Array, b: Array, _: float) -> tuple[Array, Array]:
    return w.dtype.type(1) + w, b


def _style(w: Array, b: Array) -> Array:
    """Return two values a channel, around `b` and apart by 2 `w`."""
    return np.stack([b - w, b + w])


def _run_adain(x: Array, w: Array, b: Array, eps: float, axis: int) -> Array:
    style = np.repeat(_style(w, b)[np.newaxis], x.shape[0], axis=0)
    if axis == 1:
        return cnorm.adain(x, style.swapaxes(1, 2), eps, unbiased=False)
    return cnorm.adain(x, style, eps, axis=-1, unbiased=False)


def _style_statistics(w: Array, b: Array, eps: float) -> tuple[Array, Array]:
    style = _style(w, b).astype(np.longdouble)
    return np.sqrt(style.var(axis=0) + np.longdouble(eps)), style.mean(axis=0)


class Replay:
    """A communicator of ranks that run one after the other, twice: first to record what each one sends."""

    def __init__(self, sent: list[Array], rank: int) -> None:
        self.sent = sent
        self.rank = rank

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self.sent)

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        """Give out what is known of the ranks."""
        self.sent[self.rank] = sendbuf.copy()
        for row, sent in zip(recvbuf, self.sent, strict=True):
            row[:] = sent if sent.size else sendbuf


def on_ranks(parts: int, call: Callable[[int, Replay], Any]) -> list[Any]:
    """Call for each rank with a communicator, and return what comes of the messages of all."""
    sent = [np.empty(0)] * parts
    for rank in range(parts):
        call(rank, Replay(sent, rank))
    return [call(rank, Replay(sent, rank)) for rank in range(parts)]


def two_parts(x: Array) -> list[Array]:
    """Cut the samples into those of two ranks: a third, and the rest."""
    return np.split(x, [len(x) // 3])


def _run_two_ranks(x: Array, w: Array, b: Array, eps: float, axis: int) -> Array:
    parts = two_parts(x)
    ys = on_ranks(
        2,
        lambda rank, comm: cnorm.sync_batch_norm(
            parts[rank], weight=w, bias=b, training=True, eps=eps, axis=axis, comm=comm
        ),
    )
    return np.concatenate(ys)


def _run_whiten(x: Array, w: Array, b: Array, eps: float, axis: int) -> Array:
    y = cnorm.whiten(x, eps=eps, groups=x.shape[axis], axis=axis)
    return y * along(w, x, axis) + along(b, x, axis)


def along(parameter: Array, x: Array, axis: int) -> Array:
    """Shape a parameter (channels,) to broadcast against `x`."""
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def each_element(parameter: Array, x: Array, axis: int) -> Array:
    """Write a parameter (channels,) out for each element of `x`."""
    return np.ascontiguousarray(np.broadcast_to(along(parameter, x, axis), x.shape))


def _run_spade(norm: str) -> Callable[[Array, Array, Array, float, int], Array]:
    def run(x: Array, w: Array, b: Array, eps: float, axis: int) -> Array:
        gamma, beta = each_element(w, x, axis), each_element(b, x, axis)
        return cnorm.spade(x, gamma, beta, eps, norm=norm, gamma_offset=0.0, axis=axis)

    return run


ROW_LAYOUTS = tuple((shape, 1) for shape in ROWS)
COLUMN_LAYOUTS = tuple((shape, 1) for shape in COLUMNS)
IMAGE_LAYOUTS = tuple((shape, 1) for shape in IMAGES) + tuple(
    ((n, *spatial, c), 1 + len(spatial)) for n, c, *spatial in IMAGES
)
# The passes over large arrays are batch norm's.
RANKS_LAYOUTS = tuple(
    (shape, axis) for shape, axis in IMAGE_LAYOUTS + COLUMN_LAYOUTS if math.prod(shape) < RANKS_LARGE
)
SMALL_LAYOUTS = tuple((shape, axis) for shape, axis in IMAGE_LAYOUTS if np.prod(shape) < 20_000)

OPS = (
    Op("layer_norm", lambda x, w, b, eps, _: cnorm.layer_norm(x, None, w, b, eps), _exact(rows), ROW_LAYOUTS),
    Op(
        "rms_norm",
        lambda x, w, b, eps, _: cnorm.rms_norm(x, None, w, eps, bias=b),
        _exact(rows, centred=False),
        ROW_LAYOUTS,
    ),
    Op(
        "group_norm",
        lambda x, w, b, eps, axis: cnorm.group_norm(x, 2, w, b, eps, axis=axis),
        _exact(halves),
        IMAGE_LAYOUTS,
    ),
    Op(
        "instance_norm",
        lambda x, w, b, eps, axis: cnorm.instance_norm(x, weight=w, bias=b, eps=eps, axis=axis),
        _exact(instances),
        IMAGE_LAYOUTS,
    ),
    Op(
        "batch_norm, training",
        lambda x, w, b, eps, axis: cnorm.batch_norm(x, None, None, w, b, True, eps=eps, axis=axis),
        _exact(batches),
        IMAGE_LAYOUTS + COLUMN_LAYOUTS,
    ),
    Op("batch_norm, inference", _run_inference, _exact_inference, IMAGE_LAYOUTS + COLUMN_LAYOUTS),
    Op("ada_layer_norm", _run_ada_layer_norm, _exact(rows), ROW_LAYOUTS, _one_more),
    Op("adain", _run_adain, _exact(instances), IMAGE_LAYOUTS, _style_statistics),
    Op("spade, batch", _run_spade("batch"), _exact(batches), IMAGE_LAYOUTS + COLUMN_LAYOUTS),
    Op("spade, instance", _run_spade("instance"), _exact(instances), IMAGE_LAYOUTS),
    Op("sync_batch_norm", _run_two_ranks, _exact(batches), RANKS_LAYOUTS),
    # In groups of one channel, whitening is batch norm; the affine part is added here.
    Op("whiten", _run_whiten, _exact(batches), SMALL_LAYOUTS + COLUMN_LAYOUTS),
)


def variants() -> Iterator[None]:
    """Set every level with the default number of threads, then one thread; restore both at the end."""
    level = cnorm.isa()
    try:
        for name in cnorm.isa_levels():
            cnorm.set_isa(name)
            yield
    finally:
        cnorm.set_isa(level)
    with cnorm.num_threads(1):
        yield


def judge(op: Op, dtype: str) -> Verdict:
    """Run `op` on every layout and trap."""
    verdict = Verdict(op.name, dtype)
    roundoff = float(np.finfo(dtype).eps) / 2
    rng = np.random.default_rng(1)
    for shape, axis in op.layouts:
        for trap in TRAPS[dtype]:
            x = trap.draw(rng, shape, dtype)
            w, b = rng.uniform(-3, 3, (2, shape[axis])).astype(dtype)
            y = op.run(x, w, b, trap.eps, axis)
            xhat = op.exact(x, trap.eps, axis)
            weight, bias = (along(v, x, axis) for v in op.affine(w, b, trap.eps))
            unit = roundoff * (np.maximum(1, abs(xhat)) * abs(weight) + abs(bias))
            verdict.see(abs(y - (xhat * weight + bias)) / unit)
            if trap.spread == 0 and op.name not in ("rms_norm", "adain"):  # their constants are not given
                verdict.constants_are_exact &= bool((y == bias).all())
            for _ in variants():
                again = op.run(x, w, b, trap.eps, axis)
                verdict.same_bits &= again.tobytes() == y.tobytes()
    return verdict


def run() -> bool:
    """Print a line for every op and dtype; return whether all passed."""
    print(f"Self-test, levels {', '.join(cnorm.isa_levels())}; at most {UNITS:g} units are promised:")
    passed = True
    for op in OPS:
        for dtype in ("float32", "float64"):
            verdict = judge(op, dtype)
            print(verdict)
            passed &= verdict.passed
    return passed
