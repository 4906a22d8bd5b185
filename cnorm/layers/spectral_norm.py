"""Spectral norm of a weight as a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts
from cnorm.layers import _checks
from cnorm.layers.layer import IncompatibleKeys, Layer
from cnorm.ops.spectral_norm import matrix_shape, spectral_norm
from cnorm.ops.spectral_norm_backward import spectral_norm_backward

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]

# What torch.nn.utils.parametrizations.spectral_norm calls them.
_OTHER_NAMES = {
    "parametrizations.weight.original": "weight_orig",
    "parametrizations.weight.0._u": "weight_u",
    "parametrizations.weight.0._v": "weight_v",
}
_FIRST_ITERATIONS = 15  # PyTorch's number, so that sigma means something from the beginning


class SpectralNorm(Layer):
    """Spectral norm around a weight: ``layer()`` divides it by an estimate of its largest singular value.

    In training mode, each call improves the estimate by `n_power_iterations`; in eval mode none changes it.

    Parameters
    ----------
    weight : array of float16, bfloat16, float32 or float64, at least 1-D
        What is normalised; it is copied.
    n_power_iterations : int
        At least 1.
    dim : int
        The axis of the outputs: 0, or 1 for transposed convolutions.
    eps : float
        At least 0. See `cnorm.spectral_norm`.
    rng : numpy.random.Generator or int, optional
        The source of the first vectors, or its seed. They are normal numbers, then improved by 15 iterations,
        unless the weight is 0 or not finite.
    dtype : dtype, optional
        That of the parameter: float16, bfloat16, float32 or float64; by default that of `weight`.

    Attributes
    ----------
    weight_orig : array, shape of `weight`
        The parameter.
    weight_u : array, shape (weight.shape[dim],)
        The estimate of the left singular vector, in the dtype computed in.
    weight_v : array, shape (weight.size // weight.shape[dim],)
        The estimate of the right one.

    See Also
    --------
    cnorm.spectral_norm : The function, its formula and its errors.
    cnorm.spectral_norm_backward : The gradient.

    Notes
    -----
    Names are those of ``torch.nn.utils.spectral_norm``; `load_state_dict` also knows those of
    ``torch.nn.utils.parametrizations.spectral_norm``, ``parametrizations.weight.original`` and so on.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.SpectralNorm(np.array([[3, 3], [0, 3]], np.float32), rng=1)
    >>> w = layer()
    >>> np.linalg.norm(w, 2).round(4)
    np.float32(1.0)
    >>> layer.backward(np.ones_like(w)).shape
    (2, 2)
    """

    parameter_names = ("weight_orig",)
    buffer_names = ("weight_u", "weight_v")

    def __init__(
        self,
        weight: ArrayLike,
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
        *,
        rng: np.random.Generator | int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        given, _ = _arguments.floating("weight", weight)
        kind, compute = _checks.dtypes(given.dtype if dtype is None else dtype)
        self.n_power_iterations = _arguments.integer("n_power_iterations", n_power_iterations)
        if self.n_power_iterations < 1:
            raise ValueError(f"n_power_iterations: expected an integer >= 1, got {n_power_iterations}")
        self.dim, cols = matrix_shape(given, dim)
        self.eps = _arguments.epsilon(eps)
        self.weight_orig: Array = np.empty(given.shape, kind.newbyteorder("="))
        _layouts.convert(self.weight_orig, given)
        generator = np.random.default_rng(rng)
        self.weight_u, self.weight_v = (
            _unit_vector(generator, n, compute) for n in (given.shape[self.dim], cols)
        )
        self._approach()

    def _approach(self) -> None:
        """Improve random vectors; those of a weight that has no direction stay random."""
        u, v = self.weight_u.copy(), self.weight_v.copy()
        _, sigma = spectral_norm(
            self.weight_orig, u, v, n_power_iterations=_FIRST_ITERATIONS, dim=self.dim, eps=self.eps
        )
        if 0 < sigma < math.inf:
            self.weight_u, self.weight_v = u, v

    def __call__(self, *, save: bool = True) -> Array:  # type: ignore[override]
        """Return the normalised weight, after an update of the vectors in training mode.

        Parameters
        ----------
        save : bool
            Whether to remember the call for `backward`, and for that copies of the vectors.

        Returns
        -------
        w : array
            Of the shape and dtype of `weight_orig`.
        """
        w, gradients = self._forward(self.weight_orig)
        self._gradients = gradients if save else None
        return w

    def backward(self, dw: ArrayLike) -> Array:
        """Add the gradient of `weight_orig` to `grads`, and return what is there.

        Parameters
        ----------
        dw : array of any floating dtype, of the shape of `weight_orig`
            The gradient of the last call's result.

        Returns
        -------
        dweight : array
            ``grads["weight_orig"]``, of the shape of `weight_orig`, and its dtype, or float32 for 16 bits.

        Raises
        ------
        RuntimeError
            If there is no call to go back through: each is used once.
        TypeError, ValueError
            If `dw` is no such array. The call is still remembered then.
        """
        super().backward(dw)
        return self.grads["weight_orig"]

    def bake(self) -> Array:
        """Return the normalised weight by the vectors as they are, as a plain array for inference."""
        return self._divided(training=False)[0]

    def load_state_dict(self, mapping: Mapping[str, ArrayLike], strict: bool = True) -> IncompatibleKeys:
        """Copy values into the parameter and the vectors, by either set of names: see `Layer`."""
        if isinstance(mapping, Mapping):
            mapping = {_OTHER_NAMES.get(name, name): mapping[name] for name in mapping}
        return super().load_state_dict(mapping, strict)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        w, sigma = self._divided(self.training)
        u, v, dim = self.weight_u.copy(), self.weight_v.copy(), self.dim

        def gradients(dw: Any) -> Any:
            return _WeightGradient(spectral_norm_backward(dw, x, u, v, sigma, dim=dim))

        return w, gradients

    def _divided(self, training: bool) -> tuple[Array, float]:
        return spectral_norm(
            self.weight_orig,
            self.weight_u,
            self.weight_v,
            n_power_iterations=self.n_power_iterations,
            dim=self.dim,
            eps=self.eps,
            training=training,
        )

    def _settings(self) -> str:
        return (
            f"{self.weight_orig.shape}, n_power_iterations={self.n_power_iterations}, dim={self.dim}, "
            f"eps={self.eps}"
        )


class _WeightGradient:
    """What `Layer.backward` expects; for this layer there is no input but the weight."""

    def __init__(self, gradient: Array) -> None:
        self.x = self.weight_orig = gradient


def _unit_vector(generator: np.random.Generator, n: int, dtype: np.dtype[Any]) -> Array:
    values = generator.standard_normal(n)
    return (values / max(float(np.linalg.norm(values)), 1e-12)).astype(dtype)
