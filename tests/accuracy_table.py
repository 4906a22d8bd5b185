"""Print the worst error of each op, layout and dtype over all traps, in units of N1, and PyTorch's beside it.

Run as ``python tests/accuracy_table.py``. One unit is ``u (max(1, |xhat|) |weight| + |bias|)``; 6 are
promised.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import cnorm
import layouts
import oracle
from norms import GROUPS, NORMS, Norm, Parameters
from traps import TRAPS

try:
    import torch
except ImportError:  # the table then has our columns only
    torch = None

SIZES = ((15, 9), (15, 255), (5, 4099))
LAYOUTS = {
    "contiguous": layouts.contiguous,
    "channels last": layouts.channels_last,
    "transposed view": layouts.channels_last_view,
    "(N, C)": layouts.flattened_batch,
    "strided": layouts.steps,
}


def _peer(norm: Norm, x: np.ndarray, p: Parameters, eps: float, axis: int) -> np.ndarray:
    """PyTorch's result for the same numbers, strides included."""
    functional = torch.nn.functional
    tensor = torch.from_numpy(x if axis == 1 else np.moveaxis(x, axis, 1))
    weight, bias, mean, var = (None if v is None else torch.from_numpy(v) for v in vars(p).values())
    if norm.op == "layer_norm":
        y = functional.layer_norm(tensor, x.shape[-1:], weight, bias, eps)
    elif norm.op == "rms_norm":
        y = functional.rms_norm(tensor, x.shape[-1:], weight, eps)
    elif norm.op == "group_norm":
        y = functional.group_norm(tensor, GROUPS, weight, bias, eps)
    elif norm.op == "instance_norm":
        y = functional.instance_norm(tensor, None, None, weight, bias, True, 0.1, eps)
    else:
        y = functional.batch_norm(tensor, mean, var, weight, bias, not norm.running, 0.1, eps)
    return np.moveaxis(y.numpy(), 1, axis)


def _worst(norm: Norm, layout: layouts.Layout, dtype: Any) -> tuple[float, float, int]:
    """Our worst error, PyTorch's worst finite one, and the number of traps where it has none."""
    ours, theirs, lost = 0.0, 0.0, 0
    for trap in TRAPS:
        peers = [0.0]
        for rows, elements in SIZES:
            x, axis = layout(norm.arrange(trap(rows, elements, dtype)))
            plain = np.ascontiguousarray(x)
            p = norm.parameters(plain, axis=axis)
            if norm.op == "rms_norm":
                p.bias = None  # PyTorch's has none
            exact = norm.exact(plain, p, trap.eps, axis)
            ours = max(ours, oracle.worst_units(norm.call(x, p, trap.eps, axis), exact))
            refuses = norm.groups_cross_samples and trap.eps == 0
            if torch is not None and not refuses:
                peers.append(oracle.worst_units(_peer(norm, x, p, trap.eps, axis), exact))
        lost += not np.isfinite(max(peers))
        theirs = max(theirs, *(units for units in peers if np.isfinite(units)))
    return ours, theirs, lost


def _number(units: float) -> str:
    if not np.isfinite(units):
        return "not finite"
    return f"{units:.2f}" if units < 100 else f"{units:.1e}"


def _peers_number(units: float, lost: int) -> str:
    if torch is None:
        return "-"
    return _number(units) + (f"; {lost} not finite" if lost else "")


def main() -> None:
    begin = time.perf_counter()
    peer = "not installed" if torch is None else torch.__version__
    print(f"Worst error over {len(TRAPS)} traps x {len(SIZES)} sizes, in units of")
    print("u (max(1, |xhat|) |weight| + |bias|).")
    print(
        f"cnorm {cnorm.__version__}, {cnorm.backend} backend, {cnorm.isa()}. PyTorch {peer}: its worst finite"
    )
    print("error, and on how many traps it gives NaN or infinity for a number.\n")
    print("| op | layout | cnorm float32 | cnorm float64 | PyTorch float32 | PyTorch float64 |")
    print("|---|---|---:|---:|---:|---:|")
    worst = 0.0
    for norm in NORMS:
        for name, layout in LAYOUTS.items():
            if name in ("channels last", "transposed view") and not norm.channels:
                continue
            if name == "(N, C)" and norm.op != "batch_norm":
                continue
            cells = [_worst(norm, layout, dtype) for dtype in (np.float32, np.float64)]
            worst = max(worst, *(cell[0] for cell in cells))
            values = [_number(cell[0]) for cell in cells] + [_peers_number(*cell[1:]) for cell in cells]
            print(f"| {norm.name} | {name} | " + " | ".join(values) + " |")
    print(f"\nWorst of cnorm: {worst:.2f} units; 6 are promised. {time.perf_counter() - begin:.0f} s.")


if __name__ == "__main__":
    main()
