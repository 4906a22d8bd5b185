"""Gradient of spectral norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm.ops.spectral_norm import matrix_shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def spectral_norm_backward(
    dw: ArrayLike,
    weight: ArrayLike,
    u: ArrayLike,
    v: ArrayLike,
    sigma: float,
    *,
    dim: int = 0,
    out: Array | None = None,
) -> Array:
    """Gradient of `spectral_norm` with respect to its weight.

    It goes through sigma, with `u` and `v` constant::

        dweight = dw / sigma - sum(dw * weight) / sigma**2 * u v^T

    Parameters
    ----------
    dw : array of float16, bfloat16, float32 or float64, shape of `weight`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `weight`.
    weight : array of float16, bfloat16, float32 or float64, at least 1-D
        What was normalised, in any memory layout and byte order.
    u : array of any floating dtype, shape (weight.shape[dim],)
        As `spectral_norm` left it. Copy it where another call may update it before this one.
    v : array of any floating dtype, shape (weight.size // weight.shape[dim],)
        As `u`.
    sigma : float
        As `spectral_norm` returned it.
    dim : int
        The axis of the rows; negative ones count from the last.
    out : array, optional
        Where to write the gradient: of the shape and dtype of `weight`, and either `dw` itself or memory of
        its own.

    Returns
    -------
    dweight : array
        Of the shape, dtype and memory order of `weight`; `out` if that was given. 0 where sigma is 0, and NaN
        throughout if something is not finite.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `sigma` is no number, `dim` no integer, or
        `out` has another dtype than `weight`.
    ValueError
        If `dw`, `u` or `v` has another shape, `dim` is not an axis of `weight`, or `out` is read-only, has
        another shape, or overlaps an input other than `dw` itself.

    References
    ----------
    T. Miyato, T. Kataoka, M. Koyama, Y. Yoshida, "Spectral Normalization for Generative Adversarial
    Networks", 2018, arXiv:1802.05957.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> weight = np.array([[3, 3], [0, 3]], np.float32)
    >>> u, v = np.array([1, 0], np.float32), np.array([1, 0], np.float32)
    >>> w, sigma = cnorm.spectral_norm(weight, u, v, n_power_iterations=20)
    >>> cnorm.spectral_norm_backward(w, weight, u, v, sigma).round(3)
    array([[ 0.022, -0.043],
           [-0.065,  0.022]], dtype=float32)
    """
    result: Array | None = _backend.fast_spectral_norm_backward(dw, weight, u, v, sigma, dim, out)
    if result is not None:
        return result

    weight, dtype = _arguments.floating("weight", weight)
    dw, _ = _arguments.floating("dw", dw)
    if dw.shape != weight.shape:
        raise ValueError(f"dw: expected shape {weight.shape}, that of weight, got shape {dw.shape}")
    axis, cols = matrix_shape(weight, dim)
    left = _arguments.statistic("u", u, (weight.shape[axis],), dtype)
    right = _arguments.statistic("v", v, (cols,), dtype)
    divisor = _number(sigma)
    y = _arguments.only_gradient(out, dw, weight, "weight", "dw", u=u, v=v)

    shape = (math.prod(weight.shape[:axis]), weight.shape[axis], math.prod(weight.shape[axis + 1 :]))
    target = y if _layouts.is_ready(y, dtype) else np.empty(weight.shape, dtype)
    upstream, source = (_layouts.compact(array, dtype).reshape(shape) for array in (dw, weight))
    _backend.active.spectral_norm_backward(upstream, source, left, right, divisor, target.reshape(shape))
    if target is not y:
        _layouts.convert(y, target)
    return y if out is None else out


def _number(sigma: Any) -> float:
    """Return `sigma` as a float: NaN and infinity are the results of some weights, and pass."""
    if not hasattr(type(sigma), "__float__") or (isinstance(sigma, np.ndarray) and sigma.ndim):
        raise TypeError(f"sigma: expected a number, got {type(sigma).__name__}")
    return float(sigma)
