"""The result of a backward function, and parameter gradients as sums over tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Gradients(NamedTuple):
    """Gradients of a loss, named as the arguments of the forward function; None where not asked for.

    Attributes
    ----------
    x : array or None
        Of the shape, dtype and memory order of `x`.
    weight, bias : array or None
        Of the shape of the parameter and the dtype computed in: float64 for float64, else float32.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2, 3], [6, 5, 1]], np.float32)
    >>> y, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    >>> grads = cnorm.layer_norm_backward(np.ones_like(y), x, mean, rstd, need=("x", "bias"))
    >>> grads.bias
    array([2., 2., 2.], dtype=float32)
    >>> grads.weight is None
    True
    """

    x: Array | None
    weight: Array | None
    bias: Array | None


class SpadeGradients(NamedTuple):
    """Gradients of a loss, named as the arguments of `cnorm.spade`; None where not asked for.

    Attributes
    ----------
    x : array or None
        Of the shape, dtype and memory order of `x`.
    gamma, beta : array or None
        Of the shape of `gamma` and of `beta`, summed over the axes along which they were broadcast, and the
        dtype computed in: float64 for float64, else float32.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2], [3, 4]]], np.float32)
    >>> gamma, beta = np.zeros((2, 1), np.float32), np.zeros((1, 2, 2), np.float32)
    >>> y, mean, rstd = cnorm.spade(x, gamma, beta, norm="layer", return_stats=True)
    >>> dy = np.ones_like(y)
    >>> grads = cnorm.spade_backward(dy, x, mean, rstd, gamma, beta_shape=beta.shape, norm="layer")
    >>> grads.gamma.round(3)
    array([[-1.789],
           [ 1.789]], dtype=float32)
    >>> grads.beta
    array([[[1., 1.],
            [1., 1.]]], dtype=float32)
    """

    x: Array | None
    gamma: Array | None
    beta: Array | None


class WhitenGradients(NamedTuple):
    """Gradient of a loss with respect to the array that was whitened.

    Attributes
    ----------
    x : array
        Of the shape, dtype and memory order of `x`.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1.0, 0], [-1, 0], [0, 2], [0, -2]])
    >>> y, _, factors = cnorm.whiten(x, return_stats=True)
    >>> dx = cnorm.whiten_backward(np.ones_like(y), x, factors).x
    >>> np.allclose(dx, 0)  # the mean of y is 0, whatever x
    True
    """

    x: Array


class ParameterSums:
    """Gradients of weight and bias, to which every tile adds its part in float64; rounded once, at the end.

    Parameters
    ----------
    needed : frozenset of str
        Those of "weight" and "bias" that are wanted.
    shape : tuple of int
        That of the parameters.
    dtype : dtype
        The one computed in.
    """

    def __init__(self, needed: frozenset[str], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.weight = np.zeros(shape) if "weight" in needed else None
        self.bias = np.zeros(shape) if "bias" in needed else None

    @contextmanager
    def part(self, some: slice = slice(None)) -> Iterator[tuple[Array | None, Array | None]]:
        """Give 1-D arrays for a tile's part, where `some` of the parameters occur; add them afterwards."""
        totals = [None if total is None else total.reshape(-1)[some] for total in (self.weight, self.bias)]
        weight, bias = (None if total is None else np.zeros(total.shape, self.dtype) for total in totals)
        yield weight, bias
        with np.errstate(all="ignore"):
            for total, piece in zip(totals, (weight, bias), strict=True):
                if total is not None and piece is not None:
                    total += piece

    def gradients(self, dx: Array | None) -> Gradients:
        """Round the sums, and return them with the gradient of `x`."""
        with np.errstate(all="ignore"):
            weight, bias = (
                None if total is None else total.astype(self.dtype) for total in (self.weight, self.bias)
            )
        return Gradients(dx, weight, bias)


class AdaINGradients(NamedTuple):
    """Gradients of a loss with respect to the inputs of `adain`; None where not asked for.

    Attributes
    ----------
    content, style : array or None
        Each of the shape, dtype and memory order of the argument.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> content, style = np.array([[[1, 2, 6.0]]]), np.array([[[3, 5.0]]])
    >>> y, *statistics = cnorm.adain(content, style, return_stats=True)
    >>> grads = cnorm.adain_backward(np.ones_like(y), content, style, *statistics, need="style")
    >>> grads.style.round(3)
    array([[[1.5, 1.5]]])
    >>> grads.content is None
    True
    """

    content: Array | None
    style: Array | None


class AdaLayerNormGradients(NamedTuple):
    """Gradients of a loss with respect to the inputs of `ada_layer_norm`; None where not asked for.

    Attributes
    ----------
    x : array or None
        Of the shape, dtype and memory order of `x`.
    scale, shift : array or None
        Of the shape of `scale` and the dtype computed in: float64 for float64, else float32.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2, 3], [6, 5, 1]]], np.float32)
    >>> scale = shift = np.zeros((1, 3), np.float32)
    >>> y, mean, rstd = cnorm.ada_layer_norm(x, scale, shift, return_stats=True)
    >>> grads = cnorm.ada_layer_norm_backward(np.ones_like(y), x, mean, rstd, scale, need="shift")
    >>> grads.shift
    array([[2., 2., 2.]], dtype=float32)
    >>> grads.x is None
    True
    """

    x: Array | None
    scale: Array | None
    shift: Array | None


class NormalizeGradients(NamedTuple):
    """Gradient of a loss with respect to the argument of `normalize`.

    Attributes
    ----------
    x : array
        Of the shape, dtype and memory order of `x`.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> grads = cnorm.normalize_backward(np.ones(2), np.array([3.0, 4.0]))
    >>> grads.x.round(3)
    array([ 0.032, -0.024])
    """

    x: Array


class WeightNormGradients(NamedTuple):
    """Gradients of a loss with respect to the arguments of `weight_norm`; None where not asked for.

    Attributes
    ----------
    v : array or None
        Of the shape, dtype and memory order of `v`.
    g : array or None
        Of the shape of `g` and the dtype computed in: float64 for float64, else float32.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> v, g = np.array([[3.0, 4.0]]), np.array([[10.0]])
    >>> grads = cnorm.weight_norm_backward(np.ones_like(v), v, g, need="g")
    >>> grads.g.round(3)
    array([[1.4]])
    >>> grads.v is None
    True
    """

    v: Array | None
    g: Array | None


class CosineNormGradients(NamedTuple):
    """Gradients of a loss with respect to the arguments of `cosine_norm`; None where not asked for.

    Attributes
    ----------
    x : array or None
        Of the shape, dtype and memory order of `x`.
    weight : array or None
        Of the shape of `weight` and the dtype computed in: float64 for float64, else float32.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x, weight = np.array([[3.0, 4.0]]), np.array([[2.0, 0.0]])
    >>> grads = cnorm.cosine_norm_backward(np.ones((1, 1)), x, weight, need="x")
    >>> grads.x.round(3)
    array([[ 0.128, -0.096]])
    >>> grads.weight is None
    True
    """

    x: Array | None
    weight: Array | None
