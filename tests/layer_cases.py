"""One table of layers, by PyTorch's names and arguments, and the two libraries' layers made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cnorm
from peer import tensor, torch


class Case(NamedTuple):
    """A layer's name, arguments, and the shape of an x for it."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    shape: tuple[int, ...]

    def ours(self, dtype: Any = np.float64, **more: Any) -> Any:
        return getattr(cnorm, self.name)(*self.args, **self.options, **more, dtype=dtype)

    def theirs(self, dtype: Any = np.float64) -> Any:
        kind = getattr(torch(), np.dtype(dtype).name)
        return getattr(torch().nn, self.name)(*self.args, **self.options, dtype=kind)

    @property
    def by_channel(self) -> bool:
        """Whether the layer has a channel axis."""
        return self.name not in ("LayerNorm", "RMSNorm")

    @property
    def batched(self) -> bool:
        """Whether x has a batch axis; instance norms take it without one too."""
        return not self.name.startswith("Instance") or len(self.shape) == int(self.name[-2]) + 2

    def draw(self, rng: np.random.Generator, dtype: Any = np.float64) -> np.ndarray:
        """Draw an x whose channels, or elements of a row, differ in mean and spread."""
        wave = np.linspace(0, 3, self.shape[1])
        wave = wave.reshape(1, -1, *(1 for _ in self.shape[2:]))
        return (wave + (1 + wave) * rng.standard_normal(self.shape)).astype(dtype)


CASES = [
    Case("BatchNorm1d", (5,), {}, (4, 5)),
    Case("BatchNorm1d", (5,), {"momentum": None}, (4, 5, 3)),
    Case("BatchNorm1d", (5,), {"track_running_stats": False}, (4, 5, 3)),
    Case("BatchNorm2d", (3, 0.1, 0.3), {}, (4, 3, 5, 2)),
    Case("BatchNorm2d", (3,), {"affine": False, "momentum": 0.0}, (4, 3, 5, 2)),
    Case("BatchNorm2d", (3,), {"bias": False, "momentum": 1.0}, (1, 3, 7, 2)),
    Case("BatchNorm3d", (2,), {}, (3, 2, 2, 3, 4)),
    Case("LayerNorm", (7,), {}, (3, 7)),
    Case("LayerNorm", ((5, 3), 0.1), {"bias": False}, (2, 4, 5, 3)),
    Case("LayerNorm", ([4, 5],), {"elementwise_affine": False}, (2, 4, 5)),
    Case("RMSNorm", (7,), {}, (3, 7)),
    Case("RMSNorm", ((4, 5), 0.1), {}, (2, 4, 5)),
    Case("RMSNorm", (7,), {"elementwise_affine": False}, (3, 7)),
    Case("GroupNorm", (2, 6), {}, (3, 6, 5)),
    Case("GroupNorm", (3, 6, 0.1), {"bias": False}, (3, 6)),
    Case("GroupNorm", (6, 6), {"affine": False}, (3, 6, 2, 2)),
    Case("InstanceNorm1d", (5,), {}, (4, 5, 3)),
    Case("InstanceNorm1d", (4, 0.1), {"affine": True, "bias": False}, (4, 5)),
    Case("InstanceNorm2d", (3, 1e-3, 0.3), {"affine": True, "track_running_stats": True}, (2, 3, 4, 5)),
    Case("InstanceNorm2d", (3,), {"track_running_stats": True}, (3, 4, 5)),
    Case("InstanceNorm3d", (2,), {"affine": True}, (2, 2, 2, 3, 4)),
    Case("InstanceNorm3d", (2,), {"affine": True, "track_running_stats": True}, (2, 3, 4, 2)),
]

NAMES = [f"{case.name} {case.args} {case.options}" for case in CASES]


def step(layer: Any, x: np.ndarray, dy: np.ndarray, rate: float) -> dict[str, np.ndarray]:
    """Make a step of gradient descent with our layer and return what came out."""
    layer.zero_grad()
    y = layer(x)
    dx = layer.backward(dy)
    results = {"y": y, "dx": dx, **{f"d{name}": g.copy() for name, g in layer.grads.items()}}
    for name, parameter in layer.parameters().items():
        parameter -= rate * layer.grads[name]
    return results


def their_step(layer: Any, x: np.ndarray, dy: np.ndarray, rate: float) -> dict[str, np.ndarray]:
    """Make the same step with PyTorch's layer."""
    layer.zero_grad()
    their_x = tensor(x).requires_grad_()
    y = layer(their_x)
    y.backward(tensor(dy))
    results = {"y": y.detach(), "dx": their_x.grad}
    for name, parameter in layer.named_parameters():
        results[f"d{name}"] = parameter.grad.clone()
        parameter.data -= rate * parameter.grad
    return {name: value.numpy() for name, value in results.items()}


def randomize(layer: Any, seed: int) -> None:
    """Fill our layer's parameters and statistics with numbers far from where they start."""
    rng = np.random.default_rng([17, seed])
    state = layer.state_dict()
    for name, value in state.items():
        state[name] = np.asarray(
            rng.integers(1, 9) if value.dtype == np.int64 else rng.uniform(0.5, 2, value.shape)
        )
    layer.load_state_dict(state)
