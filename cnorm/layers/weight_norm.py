"""Weight norm as a layer: a weight in two parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.layer import IncompatibleKeys, Layer
from cnorm.ops.weight_norm import channel_shape, weight_norm
from cnorm.ops.weight_norm_backward import weight_norm_backward

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]

# What torch.nn.utils.parametrizations.weight_norm calls them.
_OTHER_NAMES = {
    "parametrizations.weight.original0": "weight_g",
    "parametrizations.weight.original1": "weight_v",
}


class WeightNorm(Layer):
    """A weight as its directions and norms: calling the layer gives ``weight_g * weight_v / norm(weight_v)``.

    Parameters
    ----------
    weight : array of float16, bfloat16, float32 or float64
        The weight to begin with, which is copied.
    dim : int or None
        The axis of the channels, each of which has a norm; None: one norm over everything.
    dtype : dtype, optional
        That of the parameters; by default that of `weight`.

    Attributes
    ----------
    weight_v : array, shape of `weight`
        The directions, at first `weight` itself.
    weight_g : array, of size 1 on every axis but `dim`, or of shape () without `dim`
        The norms, at first those of `weight`.

    See Also
    --------
    cnorm.weight_norm : The function, its formula and its errors.
    cnorm.weight_norm_backward : The gradients.

    Notes
    -----
    The names of the parameters are those of ``torch.nn.utils.weight_norm``. `load_state_dict` also takes
    those of ``torch.nn.utils.parametrizations.weight_norm``, ``parametrizations.weight.original0`` and
    ``original1``.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.WeightNorm(np.array([[3, 4], [0, 2]], np.float32))
    >>> layer.weight_g
    array([[5.],
           [2.]], dtype=float32)
    >>> layer.weight_g[0] = 10
    >>> layer()
    array([[6., 8.],
           [0., 2.]], dtype=float32)
    >>> layer.backward(np.ones((2, 2), np.float32)).round(2)
    array([[ 0.32, -0.24],
           [ 1.  ,  0.  ]], dtype=float32)
    >>> layer.grads["weight_g"]
    array([[1.4],
           [1. ]], dtype=float32)
    >>> plain = layer.bake()
    """

    parameter_names = ("weight_g", "weight_v")

    def __init__(self, weight: ArrayLike, dim: int | None = 0, dtype: DTypeLike | None = None) -> None:
        super().__init__()
        given, _ = _arguments.floating("weight", weight)
        kind, compute = _checks.dtypes(given.dtype if dtype is None else dtype)
        self.dim = dim
        self.weight_v: Array = np.array(given, kind.newbyteorder("="), order="C")
        _, shape = channel_shape(self.weight_v, dim)
        # The gradient of the norms, where that of the weight is v itself: v . v / norm(v).
        norms = weight_norm_backward(self.weight_v, self.weight_v, np.ones(shape, compute), dim, need="g").g
        assert norms is not None
        self.weight_g: Array = np.asarray(norms).astype(kind.newbyteorder("="))

    def __call__(self, *, save: bool = True) -> Array:  # type: ignore[override]
        """Return the weight.

        Parameters
        ----------
        save : bool
            Whether to remember the call for `backward`, which takes the gradient of the weight, adds those of
            the parameters to `grads`, and returns that of `weight_v`.

        Returns
        -------
        w : array
            Of the shape and dtype of `weight_v`.

        Raises
        ------
        ValueError
            If a parameter was replaced by one whose shape does not fit.
        """
        w, gradients = self._forward(self.weight_v)
        self._gradients = gradients if save else None
        return w

    def bake(self) -> Array:
        """Return the weight as a plain array, for inference; the layer and its last call stay as they are."""
        return weight_norm(self.weight_v, self.weight_g, self.dim)

    def load_state_dict(self, mapping: Mapping[str, ArrayLike], strict: bool = True) -> IncompatibleKeys:
        """Copy values into the parameters: `Layer.load_state_dict`, with either set of names."""
        if isinstance(mapping, Mapping):
            mapping = {_OTHER_NAMES.get(name, name): mapping[name] for name in mapping}
        return super().load_state_dict(mapping, strict)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        g, dim = self.weight_g, self.dim

        def gradients(dw: Any) -> Any:
            grads = weight_norm_backward(dw, x, g, dim)
            return _WeightGradients(grads.v, grads.g, grads.v)

        return weight_norm(x, g, dim), gradients

    def _settings(self) -> str:
        return f"{self.weight_v.shape}, dim={self.dim}"


class _WeightGradients(NamedTuple):
    """What `Layer.backward` expects; this layer has no input but its directions."""

    x: Array | None
    weight_g: Array | None
    weight_v: Array | None
