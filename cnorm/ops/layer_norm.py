"""Layer norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def layer_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def layer_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def layer_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Normalise each row to mean 0 and variance 1, then scale and shift its elements.

    With the mean and the biased variance of a row, which is the last axis of `x` or its last few::

        y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (..., *normalized_shape)
        In any memory layout and byte order.
    normalized_shape : int or tuple of int, optional
        The shape of a row: the trailing axes of `x`. By default that of `weight`, or else the last axis.
    weight, bias : array of any floating dtype, shape `normalized_shape`, optional
        By default 1 and 0.
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
        `bias`, a row with a non-finite value NaN throughout.
    mean, rstd : array, shape ``x.shape[:-k] + (1,) * k`` where k axes make a row
        Only with `return_stats`. Their dtype is the one computed in: float64 for float64, else float32.
        `rstd` is 0 where ``var + eps`` is 0, and both are 0 if rows are empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If `normalized_shape` is not how the shape of `x` ends, a parameter has another shape, `eps` is
        negative or not finite, or `out` is read-only, has another shape, or overlaps an input in part.

    References
    ----------
    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016, arXiv:1607.06450.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2, 3, 4], [7, 7, 7, 7]], np.float32)
    >>> y = cnorm.layer_norm(x, bias=np.full(4, 0.5))
    >>> y.round(3)
    array([[-0.842,  0.053,  0.947,  1.842],
           [ 0.5  ,  0.5  ,  0.5  ,  0.5  ]], dtype=float32)
    >>> y, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    >>> mean
    array([[2.5],
           [7. ]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_layer_norm(
        x, normalized_shape, weight, bias, eps, out, return_stats
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    row = _arguments.trailing_shape(x, normalized_shape, weight)
    eps = _arguments.epsilon(eps)
    scale = _arguments.parameter("weight", weight, row, dtype)
    shift = _arguments.parameter("bias", bias, row, dtype)
    y = _arguments.output(out, x, weight=weight, bias=bias)

    lead = x.shape[: x.ndim - len(row)]
    mean = np.zeros(math.prod(lead), dtype) if return_stats else None
    rstd = np.zeros(math.prod(lead), dtype) if return_stats else None

    def kernel(xt: Array, yt: Array, rows: slice) -> None:
        stats = _layouts.part(mean, rows), _layouts.part(rstd, rows)
        _backend.active.layer_norm(xt, scale, shift, eps, yt, *stats)

    if x.size:
        _layouts.run_rows((x,), y, len(row), dtype, kernel)
    y = y if out is None else out
    if mean is None or rstd is None:
        return y
    stats_shape = lead + (1,) * len(row)
    return y, mean.reshape(stats_shape), rstd.reshape(stats_shape)
