"""The layers of a small convolutional network in NumPy, with their gradients, to use beside cnorm's.

They keep the protocol of cnorm's layers: `layer(x)`; `layer.backward(dy)`, which returns dx and adds the
gradients of the parameters to `layer.grads`, until `zero_grad()`; `parameters()`, and `state_dict()` with
PyTorch's names. Images are (batch, channels, height, width); a convolution returns them with their channels
last in memory, as the matrix product leaves them, and all layers after it, the norms too, keep them so.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]


class Layer(Protocol):
    """What a network is made of."""

    grads: Arrays

    def __call__(self, x: Array) -> Array: ...
    def backward(self, dy: Array) -> Array: ...
    def parameters(self) -> Arrays: ...
    def state_dict(self) -> Arrays: ...
    def zero_grad(self) -> None: ...
    def train(self, mode: bool = True) -> Any: ...


class Plain:
    """A layer that is the same in training as afterwards; without parameters, unless they are given."""

    def __init__(self, **parameters: Array) -> None:
        self._parameters = parameters
        self.grads: Arrays = {}

    def parameters(self) -> Arrays:
        return self._parameters

    def state_dict(self) -> Arrays:
        return {name: parameter.copy() for name, parameter in self._parameters.items()}

    def zero_grad(self) -> None:
        self.grads.clear()

    def train(self, mode: bool = True) -> Any:
        return self

    def add_gradient(self, name: str, gradient: Array) -> None:
        self.grads[name] = self.grads[name] + gradient if name in self.grads else gradient


class Conv2d(Plain):
    """Convolution with a square kernel of odd side, with zeros around the image: the size stays."""

    def __init__(
        self, channels: int, filters: int, side: int, rng: np.random.Generator, bias: bool = True
    ) -> None:
        weight = he_normal((filters, channels, side, side), rng)
        super().__init__(weight=weight, **({"bias": np.zeros(filters, np.float32)} if bias else {}))

    def __call__(self, x: Array) -> Array:
        self.columns = unfold(x, self._parameters["weight"].shape[2])
        y = correlate(self.columns, self._parameters["weight"])
        if "bias" in self._parameters:
            y += self._parameters["bias"][:, None, None]
        return y

    def backward(self, dy: Array) -> Array:
        weight = self._parameters["weight"]
        filters, channels, side, _ = weight.shape
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, filters)
        dweight = rows.T @ self.columns.reshape(len(rows), -1)
        dweight = dweight.reshape(filters, side, side, channels).transpose(0, 3, 1, 2)
        self.add_gradient("weight", dweight)
        if "bias" in self._parameters:
            self.add_gradient("bias", rows.sum(axis=0))
        # Input (i + a, j + b) met weight (a, b) for output (i, j): the same sum with the kernel turned round.
        return correlate(unfold(dy, side), weight[:, :, ::-1, ::-1].swapaxes(0, 1))


class Linear(Plain):
    """y = x weight^T + bias on (batch, features)."""

    def __init__(self, features: int, outputs: int, rng: np.random.Generator) -> None:
        super().__init__(weight=he_normal((outputs, features), rng), bias=np.zeros(outputs, np.float32))

    def __call__(self, x: Array) -> Array:
        self.x = x
        return x @ self._parameters["weight"].T + self._parameters["bias"]

    def backward(self, dy: Array) -> Array:
        self.add_gradient("weight", dy.T @ self.x)
        self.add_gradient("bias", dy.sum(axis=0))
        return dy @ self._parameters["weight"]


class ReLU(Plain):
    """max(x, 0)."""

    def __call__(self, x: Array) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy: Array) -> Array:
        return dy * self.positive


class MeanPool2d(Plain):
    """The mean of each square of side x side, which tile the image."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def __call__(self, x: Array) -> Array:
        batch, channels, height, width = x.shape
        squares = x.reshape(batch, channels, height // self.side, self.side, width // self.side, self.side)
        return squares.mean(axis=(3, 5))

    def backward(self, dy: Array) -> Array:
        shares = dy.transpose(0, 2, 3, 1) / self.side**2
        return shares.repeat(self.side, axis=1).repeat(self.side, axis=2).transpose(0, 3, 1, 2)


class Flatten(Plain):
    """(batch, ...) as (batch, features)."""

    def __call__(self, x: Array) -> Array:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy: Array) -> Array:
        return dy.reshape(self.shape)


class Sequential:
    """Layers one after the other; names are "0.weight", "1.running_mean" and so on, as PyTorch has them."""

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = layer(x)
        return x

    def backward(self, dy: Array) -> Array:
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy

    @property
    def grads(self) -> Arrays:
        return named(layer.grads for layer in self.layers)

    def parameters(self) -> Arrays:
        return named(layer.parameters() for layer in self.layers)

    def state_dict(self) -> Arrays:
        return named(layer.state_dict() for layer in self.layers)

    def zero_grad(self) -> None:
        for layer in self.layers:
            layer.zero_grad()

    def train(self, mode: bool = True) -> "Sequential":
        for layer in self.layers:
            layer.train(mode)
        return self


def named(dictionaries: Iterable[Arrays]) -> Arrays:
    return {f"{n}.{name}": array for n, arrays in enumerate(dictionaries) for name, array in arrays.items()}


def he_normal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw weights that keep the variance through a ReLU (He and others, 2015): shape (outputs, ...)."""
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))


def unfold(x: Array, side: int) -> Array:
    """Gather what each output pixel looks at: (batch, height, width, side, side, channels)."""
    border = side // 2
    padded = np.pad(x.transpose(0, 2, 3, 1), ((0, 0), (border, border), (border, border), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(1, 2))
    return np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3))


def correlate(columns: Array, weight: Array) -> Array:
    """Multiply unfolded images by (filters, channels, side, side): (batch, filters, height, width)."""
    batch, height, width = columns.shape[:3]
    matrix = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1)
    y = columns.reshape(-1, matrix.shape[1]) @ matrix.T
    return y.reshape(batch, height, width, -1).transpose(0, 3, 1, 2)
