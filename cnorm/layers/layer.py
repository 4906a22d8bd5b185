"""What all layers have in common: parameters, gradients, and their exchange with PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class StateDictError(ValueError, RuntimeError):
    """A state dict that does not fit: a ValueError here, while PyTorch's users expect a RuntimeError."""


class IncompatibleKeys(NamedTuple):
    """What `Layer.load_state_dict` did not find, and what it had no use for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Layer(ABC):
    """A function with parameters, which remembers its last call for the gradients.

    Parameters and buffers are NumPy arrays and plain attributes, None where a layer goes without; they may be
    changed in place or replaced. Layers are in training mode at first. Copies and pickles of a layer do not
    remember its last call.

    Attributes
    ----------
    training : bool
        The mode, see `train`.
    grads : dict of str to array
        Gradients by name of the parameter, see `backward`.
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weight", "bias")
    buffer_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.training = True
        self.grads: dict[str, Array] = {}
        self._gradients: Callable[[Any], Gradients] | None = None

    @abstractmethod
    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        """Return y, and the function from dy to the gradients."""

    @abstractmethod
    def _settings(self) -> str:
        """Return what `repr` puts in parentheses."""

    def __call__(self, x: ArrayLike, *, save: bool = True) -> Array:
        """Normalise `x`.

        Parameters
        ----------
        x : array of float16, bfloat16, float32 or float64
            In any memory layout.
        save : bool
            Whether to remember the call for `backward`. Memory is kept for that: `x` itself, which may
            not be changed meanwhile, and the parameters and small statistics. Without it the layer forgets
            earlier calls too. In inference, that keeps no input alive, and lets threads share the layer.

        Returns
        -------
        y : array
            Of the shape, dtype and memory order of `x`.

        Raises
        ------
        TypeError
            If `x` is no array of one of these dtypes.
        ValueError
            If the shape of `x` does not fit the layer.
        """
        y, gradients = self._forward(_arguments.array("x", x))
        self._gradients = gradients if save else None
        return y

    def backward(self, dy: ArrayLike) -> Array:
        """Return the gradient of the last call's `x`, and add those of the parameters to `grads`.

        Parameters
        ----------
        dy : array of any floating dtype, of the shape of `x`
            The gradient of the call's result.

        Returns
        -------
        dx : array
            Of the shape, dtype and memory order of `x`.

        Raises
        ------
        RuntimeError
            If there is no call to go back through: each is used once, and its memory released.
        TypeError, ValueError
            If `dy` is no such array. The call is still remembered then.

        Notes
        -----
        ``grads[name]`` has the shape of the parameter, and its dtype, or float32 for parameters of 16 bits.
        Where it is there already, the new gradient is added to it in place; `zero_grad` starts afresh.
        """
        gradients = self._take_gradients(dy)
        for name, parameter in self.parameters().items():
            new: Array | None = getattr(gradients, name)
            if new is not None:
                self._add_gradient(name, new, _arguments.floating(name, parameter)[1])
        dx: Array | None = gradients.x
        assert dx is not None  # every layer needs "x"
        return dx

    def _take_gradients(self, dy: Any) -> Any:
        """Go back through the last call, which is forgotten then."""
        if self._gradients is None:
            raise RuntimeError(
                f"{type(self).__name__}.backward: expected a call of the layer first, and one for each "
                "backward; there is none, or it was made with save=False"
            )
        gradients = self._gradients(dy)
        self._gradients = None
        return gradients

    def _add_gradient(self, name: str, new: Array, dtype: np.dtype[Any]) -> None:
        with np.errstate(all="ignore"):
            if name in self.grads:
                self.grads[name] += new
            else:
                self.grads[name] = new.astype(dtype, copy=False)

    def zero_grad(self) -> None:
        """Forget the gradients: `grads` is empty then."""
        self.grads.clear()

    def train(self, mode: bool = True) -> Self:
        """Enter training mode, or leave it with ``mode=False``, and return the layer."""
        self.training = bool(mode)
        return self

    def eval(self) -> Self:
        """Leave training mode and return the layer."""
        return self.train(False)

    def parameters(self) -> dict[str, Array]:
        """Return the parameters by name, themselves and not copies: to be changed in place.

        The names are those in `grads`.
        """
        return self._present(self.parameter_names)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters and buffers, under PyTorch's names.

        They are a snapshot, unlike PyTorch's: training on does not change them. ``safetensors.numpy`` and
        ``numpy.savez`` write them to a file.
        """
        return {name: np.array(value, order="C") for name, value in self._state().items()}

    def load_state_dict(self, mapping: Mapping[str, ArrayLike], strict: bool = True) -> IncompatibleKeys:
        """Copy values into the parameters and buffers, which keep their dtypes.

        Parameters
        ----------
        mapping : mapping of str to array
            Values of any floating dtype by name, as from `state_dict`, PyTorch, or a file. As in PyTorch,
            ``num_batches_tracked`` may be absent.
        strict : bool
            Whether the names have to be those of `state_dict`. Otherwise the layer keeps what is missing.

        Returns
        -------
        IncompatibleKeys
            The names missing in `mapping`, and those of no use here.

        Raises
        ------
        TypeError
            If `mapping` is none, a value is no array, or its dtype not floating (an integer for counters).
        ValueError
            If names are missing or unexpected in a strict call, or a value has another shape; all of these
            are listed. It is a RuntimeError too, as in PyTorch. Nothing has been changed.
        """
        if not isinstance(mapping, Mapping):
            raise TypeError(f"mapping: expected a mapping of names to arrays, got {type(mapping).__name__}")
        state = self._state()
        values = {name: _value(name, mapping[name], state[name]) for name in state if name in mapping}
        missing = [name for name in state if name not in values and name != "num_batches_tracked"]
        unexpected = [name for name in mapping if name not in state]

        wrong = [
            f"{name}: expected shape {state[name].shape}, got shape {value.shape}"
            for name, value in values.items()
            if value.shape != state[name].shape
        ]
        if strict and unexpected:
            wrong.insert(0, f"unexpected keys {_listed(unexpected)}")
        if strict and missing:
            wrong.insert(0, f"missing keys {_listed(missing)}")
        if wrong:
            raise StateDictError(f"mapping for {type(self).__name__}: {'; '.join(wrong)}")
        for name, value in values.items():
            _layouts.convert(state[name], value)
        return IncompatibleKeys(missing, unexpected)

    def _needed(self) -> tuple[str, ...]:
        return ("x", *self.parameters())

    def _state(self) -> dict[str, Array]:
        return self._present(self.parameter_names + self.buffer_names)

    def _present(self, names: tuple[str, ...]) -> dict[str, Array]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gradients": None}


def _value(name: str, value: object, current: Array) -> Array:
    """Return a copy of what is to replace `current`: the values may be views of what they will replace."""
    result = _arguments.array(name, value)
    if current.dtype.kind != "i":
        return _arguments.floating(name, result)[0].copy()
    if result.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected an integer dtype, got {result.dtype}")
    return result.copy()


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
