"""Adaptive layer norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def ada_layer_norm(
    x: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def ada_layer_norm(
    x: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def ada_layer_norm(
    x: ArrayLike,
    scale: ArrayLike,
    shift: ArrayLike,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Normalise each row, then scale and shift it by numbers of its sample, as diffusion transformers do.

    With the mean and the biased variance of a row, which is the last axis of `x`::

        y = (x - mean(x)) / sqrt(var(x) + eps) * (1 + scale) + shift

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, ..., cols)
        In any memory layout and byte order; a sample is any number of rows.
    scale, shift : array of any floating dtype, shape (batch, cols) or (batch, 1, ..., 1, cols)
        For each sample. ``1 + scale`` is added up in the dtype computed in.
    eps : float
        At least 0. Added to the variance, inside the square root.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``mean`` and ``rstd = 1 / sqrt(var + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A constant row gives exactly
        `shift`, a row with a non-finite value NaN throughout.
    mean, rstd : array, shape (batch, ..., 1)
        Only with `return_stats`. Their dtype is the one computed in: float64 for float64, else float32.
        `rstd` is 0 where ``var + eps`` is 0, and both are 0 if rows are empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If `x` has less than two axes, `scale` or `shift` another shape, `eps` is negative or not finite, or
        `out` is read-only, has another shape, or overlaps an input in part.

    References
    ----------
    W. Peebles, S. Xie, "Scalable Diffusion Models with Transformers", 2023, arXiv:2212.09748.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2, 3, 4], [7, 7, 7, 7]]], np.float32)
    >>> y = cnorm.ada_layer_norm(x, np.array([[0, 1, -1, 0.5]]), np.array([[0, 0, 5, 1.0]]))
    >>> y.round(3)
    array([[[-1.342, -0.894,  5.   ,  3.012],
            [ 0.   ,  0.   ,  5.   ,  1.   ]]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_ada_layer_norm(
        x, scale, shift, eps, out, return_stats
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    _arguments.samples_of_rows(x)
    eps = _arguments.epsilon(eps)
    scales = _arguments.modulation("scale", scale, x, dtype)
    shifts = _arguments.modulation("shift", shift, x, dtype)
    y = _arguments.output(out, x, scale=scale, shift=shift)

    stats_shape = (x.shape[0], math.prod(x.shape[1:-1]))
    mean = np.zeros(stats_shape, dtype) if return_stats else None
    rstd = np.zeros(stats_shape, dtype) if return_stats else None

    def kernel(xt: Array, yt: Array, samples: slice, rows: slice) -> None:
        stats = _layouts.part(mean, (samples, rows)), _layouts.part(rstd, (samples, rows))
        _backend.active.ada_layer_norm(xt, scales[samples], shifts[samples], eps, yt, *stats)

    if x.size:
        _layouts.run_samples((x,), y, dtype, kernel)
    y = y if out is None else out
    if mean is None or rstd is None:
        return y
    return y, mean.reshape(*x.shape[:-1], 1), rstd.reshape(*x.shape[:-1], 1)
