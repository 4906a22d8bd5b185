"""The result of `cnorm.spade_backward`."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]


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
