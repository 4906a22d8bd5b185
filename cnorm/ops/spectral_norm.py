"""Spectral norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def spectral_norm(
    weight: ArrayLike,
    u: ArrayLike,
    v: ArrayLike,
    *,
    n_power_iterations: int = 1,
    dim: int = 0,
    eps: float = 1e-12,
    training: bool = True,
    out: Array | None = None,
) -> tuple[Array, float]:
    """Divide a weight by an estimate of its largest singular value.

    The weight is seen as a matrix W: its rows run along the axis `dim`, its columns along all other axes, in
    order. In training, `u` and `v` first approach the singular vectors of the largest singular value, by
    `n_power_iterations` times::

        v = W^T u / max(norm(W^T u), eps)
        u = W v / max(norm(W v), eps)

    Then, in training or not::

        sigma = u^T W v
        w = weight / sigma

    Parameters
    ----------
    weight : array of float16, bfloat16, float32 or float64, at least 1-D
        In any memory layout and byte order. Those of transposed convolutions, (in, out, ...), have `dim` 1.
    u : array, shape (weight.shape[dim],)
        Estimate of the left singular vector. In training a writeable array of the dtype computed in (float64
        for float64, else float32), which is updated in place; else of any floating dtype and not changed.
    v : array, shape (weight.size // weight.shape[dim],)
        Estimate of the right one, as `u`.
    n_power_iterations : int
        At least 1. With `u` and `v` kept from call to call, one is enough while the weight changes slowly.
    dim : int
        The axis of the rows; negative ones count from the last.
    eps : float
        At least 0. A product whose norm is less is divided by `eps` instead, so that it does not become a
        unit vector. With 0, weights of any magnitude are normalised.
    training : bool
        Whether to update `u` and `v`.
    out : array, optional
        Where to write the result: of the shape and dtype of `weight`, and either `weight` itself or memory of
        its own.

    Returns
    -------
    w : array
        Of the shape, dtype and memory order of `weight`; `out` if that was given. 0 where sigma is 0. If the
        weight or a vector has a non-finite value, w, sigma and the updated vectors are NaN throughout.
    sigma : float
        In double precision whatever the dtype.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `n_power_iterations` or `dim` is no integer,
        `out` has another dtype than `weight`, or in training a vector has another dtype than the one computed
        in.
    ValueError
        If `u` or `v` has another shape, `dim` is not an axis of `weight`, `n_power_iterations` is less than
        1, `eps` is negative or not finite, `out` is read-only, has another shape, or overlaps an input in
        part, or in training a vector is read-only or shares memory with another argument.

    See Also
    --------
    cnorm.SpectralNorm : Keeps the vectors.

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
    >>> round(sigma, 6)
    4.854102
    >>> w.round(3)
    array([[0.618, 0.618],
           [0.   , 0.618]], dtype=float32)
    """
    result: tuple[Array, float] | None = _backend.fast_spectral_norm(
        weight, u, v, n_power_iterations, dim, eps, training, out
    )
    if result is not None:
        return result

    weight, dtype = _arguments.floating("weight", weight)
    axis, cols = matrix_shape(weight, dim)
    iterations = _arguments.integer("n_power_iterations", n_power_iterations)
    if iterations < 1:
        raise ValueError(f"n_power_iterations: expected an integer >= 1, got {iterations}")
    eps = _arguments.epsilon(eps)
    lengths = {"u": (weight.shape[axis],), "v": (cols,)}
    if training:
        first = _arguments.updated("u", u, lengths["u"], dtype, weight=weight)
        second = _arguments.updated("v", v, lengths["v"], dtype, weight=weight, u=first)
        left, right = _layouts.compact(first, dtype), _layouts.compact(second, dtype)
    else:
        left, right = (
            _arguments.statistic(name, value, lengths[name], dtype) for name, value in (("u", u), ("v", v))
        )
    y = _arguments.output(out, weight, "weight", u=u, v=v)

    shape = (math.prod(weight.shape[:axis]), weight.shape[axis], math.prod(weight.shape[axis + 1 :]))
    target = y if _layouts.is_ready(y, dtype) else np.empty(weight.shape, dtype)
    source = _layouts.compact(weight, dtype).reshape(shape)
    sigma = _backend.active.spectral_norm(
        source, left, right, iterations if training else 0, eps, target.reshape(shape)
    )
    if training:
        for given, used in ((first, left), (second, right)):
            if not np.shares_memory(given, used):
                _layouts.convert(given, used)
    if target is not y:
        _layouts.convert(y, target)
    return (y if out is None else out), sigma


def matrix_shape(weight: Array, dim: object) -> tuple[int, int]:
    """Return the axis of a weight's rows, counted from the front, and the number of its columns."""
    if weight.ndim == 0:
        raise ValueError("weight: expected at least 1 axis, got shape ()")
    given = _arguments.integer("dim", dim)
    axis = given + weight.ndim if given < 0 else given
    if not 0 <= axis < weight.ndim:
        raise ValueError(f"dim: expected an axis of weight, which has {weight.ndim}, got {given}")
    return axis, math.prod(weight.shape[:axis]) * math.prod(weight.shape[axis + 1 :])
