"""Print the worst error of each backward function over all traps, and PyTorch's float32 errors beside it.

Run as ``python tests/gradient_accuracy_table.py``. One unit is u times the largest magnitude of the group
(dx, or rstd max|dy weight| where dx cancels) or of the array (dweight, dbias); 16 are promised. PyTorch is
given the statistics that its own forward pass saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cnorm
import gradient_oracle
import layouts
from gradients import BACKWARDS, BOUND, Backward, Case, upstream, worst_units
from norms import GROUPS
from traps import TRAPS

try:
    import torch
except ImportError:  # the table then has our columns only
    torch = None

SIZES = ((15, 2), (15, 9), (15, 255), (5, 4099))
LAYOUTS = {
    "contiguous": layouts.contiguous,
    "channels last": layouts.channels_last,
    "transposed view": layouts.channels_last_view,
    "(N, C)": layouts.flattened_batch,
    "strided": layouts.steps,
}
#: Traps with a column of their own.
SHOWN = ("normal", "mean 1e4, spread 1")
MASK = [True, True, True]


def _tensor(array: np.ndarray | None) -> Any:
    return None if array is None else torch.from_numpy(np.array(array))


def _layer_norm(dy: Any, x: Any, weight: Any, case: Case) -> Any:
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, x.shape[-1:], weight, None, case.eps)
    bias = torch.zeros_like(weight)
    return torch.ops.aten.native_layer_norm_backward(dy, x, x.shape[-1:], mean, rstd, weight, bias, MASK)


def _rms_norm(dy: Any, x: Any, weight: Any, case: Case) -> Any:
    """Through autograd: PyTorch has no backward operator for it on the CPU."""
    inputs = x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, case.eps)
    return *torch.autograd.grad(y, inputs, dy), None


def _by_groups(dy: Any, x: Any, weight: Any, eps: float, groups: int) -> Any:
    dy, x = dy.contiguous(), x.contiguous()  # it takes no other three-dimensional input
    sizes = x.shape[0], x.shape[1], x[0, 0].numel()
    bias = torch.zeros_like(weight)
    _, mean, rstd = torch.ops.aten.native_group_norm(x, weight, bias, *sizes, groups, eps)
    return torch.ops.aten.native_group_norm_backward(dy, x, mean, rstd, weight, *sizes, groups, MASK)


def _group_norm(dy: Any, x: Any, weight: Any, case: Case) -> Any:
    return _by_groups(dy, x, weight, case.eps, GROUPS)


def _instance_norm(dy: Any, x: Any, weight: Any, case: Case) -> Any:
    """As PyTorch does it: batch norm of one sample with N C channels."""
    batch, channels = x.shape[:2]
    dx, dweight, dbias = _batch_norm(
        *(v.reshape(1, batch * channels, *v.shape[2:]) for v in (dy, x)), weight.repeat(batch), case
    )
    return dx.reshape(x.shape), dweight.reshape(batch, channels).sum(0), dbias.reshape(batch, channels).sum(0)


def _batch_norm(dy: Any, x: Any, weight: Any, case: Case) -> Any:
    ops, frozen = torch.ops.aten, case.p.running_mean is not None
    mean, var = _tensor(case.p.running_mean), _tensor(case.p.running_var)
    bias = torch.zeros_like(weight)
    _, *saved = ops.native_batch_norm(x, weight, bias, mean, var, not frozen, 0.1, case.eps)
    return ops.native_batch_norm_backward(dy, x, weight, mean, var, *saved, not frozen, case.eps, MASK)


PEERS: dict[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
}


def _peer(backward: Backward, case: Case) -> cnorm.Gradients:
    """PyTorch's gradients for the same numbers, channels first."""
    dy, x = (
        _tensor(np.moveaxis(v, case.axis, 1) if backward.norm.channels else v) for v in (case.dy, case.x)
    )
    dx, dweight, dbias = PEERS[backward.norm.op](dy, x, _tensor(case.p.weight), case)
    if backward.norm.channels:
        dx = torch.movedim(dx, 1, case.axis)
    return cnorm.Gradients(dx.numpy(), dweight.numpy(), None if dbias is None else dbias.numpy())


def _errors(gradients: cnorm.Gradients, exact: gradient_oracle.ExactGradients) -> np.ndarray:
    """Of dx, dweight and dbias; -1 for one that there is not."""
    return np.array([*worst_units(gradients, exact), -1.0][:3])


@dataclass
class Worst:
    """The worst errors of dx, dweight and dbias."""

    ours: np.ndarray
    #: PyTorch's on a trap of this name, and its worst finite ones.
    theirs: dict[str, np.ndarray]
    #: Traps where one of PyTorch's is NaN or infinite, or not 0 where the exact gradient is.
    lost: int


def _worst(backward: Backward, layout: layouts.Layout, dtype: Any) -> Worst:
    worst = Worst(np.full(3, -1.0), {name: np.full(3, -1.0) for name in (*SHOWN, "all")}, 0)
    for trap in TRAPS:
        finite = True
        for rows, elements in SIZES:
            x = trap(rows, elements, dtype)
            case = backward.case(x, upstream(x), trap.eps, layout)
            exact = backward.exact(case)
            worst.ours = np.maximum(worst.ours, _errors(backward.of(case), exact))
            if torch is None or dtype != np.float32:
                continue
            errors = _errors(_peer(backward, case), exact)
            if trap.name in SHOWN:
                worst.theirs[trap.name] = np.maximum(worst.theirs[trap.name], errors)
            finite = finite and bool(np.isfinite(errors).all())
            worst.theirs["all"] = np.maximum(worst.theirs["all"], np.where(np.isfinite(errors), errors, -1))
        worst.lost += not finite
    return worst


def _numbers(units: np.ndarray) -> str:
    return " / ".join("-" if v < 0 else f"{v:.1f}" if v < 100 else f"{v:.0e}" for v in units)


def _peers(worst: Worst) -> list[str]:
    if torch is None:
        return ["-"] * len(worst.theirs)
    cells = [_numbers(errors) for errors in worst.theirs.values()]
    cells[-1] += f"; lost {worst.lost}" if worst.lost else ""
    return cells


def main() -> None:
    begin = time.perf_counter()
    peer = "not installed" if torch is None else torch.__version__
    print(f"Worst errors of dx / dweight / dbias over {len(TRAPS)} traps x {len(SIZES)} sizes, in units of u")
    print("times the largest magnitude of the group (dx) or array (dweight, dbias).")
    print(f"cnorm {cnorm.__version__}, {cnorm.backend} backend, {cnorm.isa()}. PyTorch {peer} in float32: on")
    print(
        "two of the traps, its worst finite errors on all, and on how many traps it is lost: NaN or infinite,"
    )
    print("or not 0 where the exact gradient is.\n")
    heads = [f"PyTorch, {name}" for name in (*SHOWN, "all")]
    print("| op | layout | cnorm float32 | cnorm float64 | " + " | ".join(heads) + " |")
    print("|---|---|---:|---:|---:|---:|---:|")
    largest = 0.0
    for backward in BACKWARDS:
        for name, layout in LAYOUTS.items():
            if name in ("channels last", "transposed view") and not backward.norm.channels:
                continue
            if name == "(N, C)" and backward.norm.op != "batch_norm":
                continue
            single, double = (_worst(backward, layout, dtype) for dtype in (np.float32, np.float64))
            largest = max(largest, *single.ours, *double.ours)
            cells = [backward.name, name, _numbers(single.ours), _numbers(double.ours), *_peers(single)]
            print("| " + " | ".join(cells) + " |")
    seconds = time.perf_counter() - begin
    print(f"\nWorst of cnorm: {largest:.1f} units; {BOUND:.0f} are promised. {seconds:.0f} s.")


if __name__ == "__main__":
    main()
