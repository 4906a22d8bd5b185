"""Writes the test vectors of the board check as C: inputs, and what the test suite's oracles make of them.

python vectors.py vectors.c
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import gradient_oracle
import oracle
from traps import TRAPS, Trap

Array = np.ndarray[Any, Any]

FIRST, LAST = 0, 1
GROUPS = 3
NEGLIGIBLE = 1e-6  # units
ROWS = [(5, 7), (3, 1), (3, 33), (1, 131), (2, 64)]  # of layer norm and RMS norm
CHANNELS = [(2, 6, 5), (3, 9, 2), (4, 3, 1), (1, 3, 37)]  # batch, channels, spatial


@dataclass
class Vector:
    """A call, and its exact outputs as (values, unit, allowance)."""

    op: str
    data: str
    sizes: tuple[int, int, int, int]  # batch, channels, spatial, groups
    layout: int
    eps: float
    inputs: dict[str, Array]
    outputs: Sequence[tuple[Array, Array, Array]]
    weight_offset: float = 0.0


@dataclass
class VectorS8:
    """A call of a fixed-point norm, and its exact result in steps."""

    op: str
    x: Array
    weight: Array
    bias: Array
    eps: float
    zeros: tuple[int, int]
    exact: Array
    scales: tuple[float, ...] = field(default=(0.05, 1 / 32767, 1e-6, 0.03))


def parameters(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Weights of both signs and several decades, and biases."""
    weight = rng.standard_normal(n) * 10.0 ** rng.integers(-2, 3, n)
    return weight.astype(np.float32), rng.standard_normal(n).astype(np.float32)


def forward_output(exact: oracle.Exact) -> list[tuple[Array, Array, Array]]:
    one, allowance = oracle.tolerance(exact.y, exact.xhat, exact.weight, exact.bias, np.float32)
    return [(exact.y, one, allowance)]


def gradient_outputs(exact: gradient_oracle.ExactGradients) -> list[tuple[Array, Array, Array]]:
    u = oracle.Long(oracle.unit(np.float32))
    parts = (exact.x, exact.weight, exact.bias)
    return [tuple(np.broadcast_arrays(g.values, u * g.scale, g.allowance)) for g in parts]  # type: ignore[misc]


def representable(v: Vector) -> bool:
    """Nothing beyond float32, neither results nor saved statistics: these are the test suite's business."""
    arrays = (*v.inputs.values(), *(values for values, _, _ in v.outputs))
    return all(np.all(np.abs(values) <= np.finfo(np.float32).max) for values in arrays)


def row_vectors() -> Iterator[Vector]:
    """layer_norm and rms_norm, forward on every trap and backward on some."""
    for i, trap in enumerate(TRAPS):
        rows, cols = ROWS[i % len(ROWS)]
        rng = np.random.default_rng(i)
        x = trap(rows, cols, np.float32)
        weight, bias = parameters(rng, cols)
        dy = rng.standard_normal(x.shape).astype(np.float32)
        sizes, inputs, eps = (rows, cols, 1, 1), {"x": x, "weight": weight, "bias": bias}, trap.eps
        layer = oracle.layer_norm(x, weight, bias, eps)
        rms = oracle.rms_norm(x, weight, bias, eps, weight_offset=1)
        yield Vector("layer_norm", trap.name, sizes, FIRST, eps, inputs, forward_output(layer))
        yield Vector("rms_norm", trap.name, sizes, FIRST, eps, inputs, forward_output(rms), 1)
        if i % 4 == 0:
            back = {"x": x, "dy": dy, "weight": weight, **statistics(layer)}
            exact = gradient_outputs(gradient_oracle.layer_norm(dy, x, weight, eps))
            yield Vector("layer_norm_backward", trap.name, sizes, FIRST, eps, back, exact)
            back = {"x": x, "dy": dy, "weight": weight, "rstd": statistics(rms)["rstd"]}
            exact = gradient_outputs(gradient_oracle.rms_norm(dy, x, weight, eps, weight_offset=1))
            yield Vector("rms_norm_backward", trap.name, sizes, FIRST, eps, back, exact, 1)


def statistics(exact: oracle.Exact) -> dict[str, Array]:
    """Mean and rstd as a forward pass saves them."""
    with np.errstate(over="ignore"):
        return {"mean": exact.mean.astype(np.float32).ravel(), "rstd": exact.rstd.astype(np.float32).ravel()}


def channel_input(trap: Trap, sizes: tuple[int, int, int], layout: int) -> Array:
    batch, channels, spatial = sizes
    x = trap(batch * channels, spatial, np.float32).reshape(sizes)
    return np.ascontiguousarray(np.moveaxis(x, 1, 2)) if layout == LAST else x


def channel_vectors() -> Iterator[Vector]:
    """The norms of images, in both layouts, on some traps."""
    for i, trap in enumerate(TRAPS[::3]):
        for layout in (FIRST, LAST):
            yield from channel_calls(
                trap, CHANNELS[(i + layout) % len(CHANNELS)], layout, backward=i % 3 == 0
            )


def channel_calls(
    trap: Trap, sizes: tuple[int, int, int], layout: int, *, backward: bool
) -> Iterator[Vector]:
    rng = np.random.default_rng([*sizes, layout])
    x, axis, c, eps = channel_input(trap, sizes, layout), 1 if layout == FIRST else 2, sizes[1], trap.eps
    weight, bias = parameters(rng, c)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    mean, var = rng.standard_normal(c).astype(np.float32), rng.random(c).astype(np.float32)
    inputs, all_sizes = {"x": x, "weight": weight, "bias": bias}, (*sizes, GROUPS)
    forward = {
        "group_norm": oracle.group_norm(x, GROUPS, weight, bias, eps, axis=axis),
        "instance_norm": oracle.instance_norm(x, weight, bias, eps, axis=axis),
        "batch_norm": oracle.batch_norm(x, weight, bias, eps, axis=axis),
    }
    if sizes[0] * sizes[2] == 1:
        del forward["batch_norm"]
    for op, exact in forward.items():
        yield Vector(op, trap.name, all_sizes, layout, eps, inputs, forward_output(exact))
    frozen = oracle.batch_norm_inference(x, mean, var, weight, bias, eps, axis=axis)
    given = inputs | {"mean": mean, "rstd": var}
    yield Vector("batch_norm_inference", trap.name, all_sizes, layout, eps, given, forward_output(frozen))
    if not backward:
        return
    gradients = {
        "group_norm": gradient_oracle.group_norm(dy, x, GROUPS, weight, eps, axis=axis),
        "instance_norm": gradient_oracle.instance_norm(dy, x, weight, eps, axis=axis),
        "batch_norm": gradient_oracle.batch_norm(dy, x, weight, eps, axis=axis),
    }
    for op, exact in forward.items():
        given = {"x": x, "dy": dy, "weight": weight, **statistics(exact)}
        outputs = gradient_outputs(gradients[op])
        yield Vector(f"{op}_backward", trap.name, all_sizes, layout, eps, given, outputs)


def fixed_vectors() -> Iterator[VectorS8]:
    """The fixed-point norms: rows of any values, a constant one, one of the two ends."""
    for op in ("layer_norm", "rms_norm"):
        for cols, zeros in ((1, (0, 0)), (7, (-128, 127)), (64, (3, -5)), (131, (127, 0))):
            rng = np.random.default_rng(cols)
            x = rng.integers(-128, 128, (4, cols), np.int8)
            x[1], x[2] = 17, np.where(rng.random(cols) < 0.5, -128, 127)
            weight = rng.integers(-32768, 32768, cols, np.int16)
            bias = rng.integers(-(2**20), 2**20, cols, np.int32)
            vector = VectorS8(op, x, weight, bias, 1e-5, zeros, np.empty(0))
            input_scale, weight_scale, bias_scale, output_scale = vector.scales
            real = input_scale * (x.astype(np.float64) - zeros[0])
            norm = oracle.layer_norm if op == "layer_norm" else oracle.rms_norm
            exact = (
                norm(real, weight_scale * weight, bias_scale * bias, vector.eps).y / output_scale + zeros[1]
            )
            vector.exact = np.clip(exact.astype(np.float64), -128, 127)
            yield vector


class Writer:
    """C arrays under numbered names, each distinct one once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, str] = {}

    def array(self, kind: str, items: list[str]) -> str:
        text = f"static const {kind} %s[] = {{{', '.join(items)}}};"
        if text not in self.known:
            self.known[text] = f"data{len(self.known)}"
            self.lines.append(text % self.known[text])
        return self.known[text]

    def floats(self, values: Array | None) -> str:
        return (
            "NULL" if values is None else self.array("float", [f"{float(v).hex()}f" for v in values.ravel()])
        )

    def integers(self, kind: str, values: Array) -> str:
        return self.array(kind, [str(v) for v in values.ravel()])

    def expected(self, output: tuple[Array, Array, Array]) -> str:
        items = []
        for exact, one, allowance in zip(*(v.ravel() for v in output), strict=True):
            slack = float(allowance / one) if one else 0.0
            slack = min(slack, 1e30) if slack > NEGLIGIBLE else 0.0
            items.append(f"{{{float(exact).hex()}, {float(one).hex()}, {slack!r}f}}")
        return self.array("expected", items)

    def vector(self, v: Vector) -> str:
        inputs = [self.floats(v.inputs.get(name)) for name in ("x", "weight", "bias", "dy", "mean", "rstd")]
        outputs = [self.expected(output) for output in v.outputs]
        fields = [f'"{v.op}"', f'"{v.data}"', *map(str, v.sizes), str(v.layout), repr(v.eps)]
        return f"{{{', '.join([*fields, repr(v.weight_offset), *inputs])}, {{{', '.join(outputs)}}}}},"

    def vector_s8(self, v: VectorS8) -> str:
        arrays = [self.integers("int8_t", v.x), self.integers("int16_t", v.weight)]
        arrays += [self.integers("int32_t", v.bias), self.floats(v.exact)]
        fields = [f'"{v.op}_s8"', *map(str, v.x.shape), repr(v.eps), *map(repr, v.scales), *map(str, v.zeros)]
        return f"{{{', '.join([*fields, *arrays])}}},"


def main(target: Path) -> None:
    writer = Writer()
    calls = [v for v in (*row_vectors(), *channel_vectors()) if representable(v)]
    calls.sort(key=lambda v: v.op)
    tables = {"vector": [writer.vector(v) for v in calls]}
    tables["vector_s8"] = [writer.vector_s8(v) for v in fixed_vectors()]
    lines = ["/* Written by vectors.py. */", '#include "vector.h"', "", *writer.lines]
    for kind, rows in tables.items():
        name = kind.replace("vector", "vectors")
        lines += ["", f"const {kind} {name}[] = {{", *rows, "};", f"const size_t {kind}_count = {len(rows)};"]
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
