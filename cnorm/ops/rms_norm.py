"""RMS norm."""

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
def rms_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    eps: float | None = None,
    *,
    bias: ArrayLike | None = None,
    weight_offset: float = 0.0,
    casting: Literal["once", "llama"] = "once",
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def rms_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    eps: float | None = None,
    *,
    bias: ArrayLike | None = None,
    weight_offset: float = 0.0,
    casting: Literal["once", "llama"] = "once",
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array]: ...
def rms_norm(
    x: ArrayLike,
    normalized_shape: int | Sequence[int] | None = None,
    weight: ArrayLike | None = None,
    eps: float | None = None,
    *,
    bias: ArrayLike | None = None,
    weight_offset: float = 0.0,
    casting: Literal["once", "llama"] = "once",
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array]:
    """Divide each row by its root mean square, then scale and shift its elements.

    With the mean over a row, which is the last axis of `x` or its last few::

        y = x / sqrt(mean(x**2) + eps) * (weight_offset + weight) + bias

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (..., *normalized_shape)
        In any memory layout and byte order.
    normalized_shape : int or tuple of int, optional
        The shape of a row: the trailing axes of `x`. By default that of `weight`, or else the last axis.
    weight, bias : array of any floating dtype, shape `normalized_shape`, optional
        Without a weight, the factor is 1, whatever `weight_offset` is. Without a bias, nothing is added.
    eps : float, optional
        At least 0. Added to the mean square, inside the square root. By default the machine epsilon of the
        dtype computed in: that of float64 for float64, else that of float32.
    weight_offset : float
        Added to the weight, in the dtype computed in: 1.0 for models that keep ``weight - 1``.
    casting : {"once", "llama"}
        When to round to the dtype of `x`, if that has 16 bits: once, at the end; or also before the weight is
        applied, as Llama models are trained to expect.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``rstd = 1 / sqrt(mean(x**2) + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A row of zeros gives exactly
        `bias`, a row with a non-finite value NaN throughout.
    rstd : array, shape ``x.shape[:-k] + (1,) * k`` where k axes make a row
        Only with `return_stats`. Its dtype is the one computed in. It is 0 where ``mean(x**2) + eps`` is 0,
        and if rows are empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If `normalized_shape` is not how the shape of `x` ends, a parameter has another shape, `eps` is
        negative or not finite, `casting` is another word, or `out` is read-only, has another shape, or
        overlaps an input in part.

    References
    ----------
    B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2, 3, 4], [10, 20, 30, 40]], np.float32)
    >>> cnorm.rms_norm(x, weight=np.array([1, 1, 1, 2], np.float32)).round(3)
    array([[0.365, 0.73 , 1.095, 2.921],
           [0.365, 0.73 , 1.095, 2.921]], dtype=float32)
    """
    result: Array | tuple[Array, Array] | None = _backend.fast_rms_norm(
        x, normalized_shape, weight, eps, bias, weight_offset, casting, out, return_stats
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    row = _arguments.trailing_shape(x, normalized_shape, weight)
    eps = _arguments.epsilon(np.finfo(dtype).eps if eps is None else eps)
    offset = _arguments.number("weight_offset", weight_offset)
    twice = _arguments.choice("casting", casting, ("once", "llama")) == "llama" and x.dtype.itemsize == 2
    scale = _arguments.parameter("weight", weight, row, dtype)
    shift = _arguments.parameter("bias", bias, row, dtype)
    y = _arguments.output(out, x, weight=weight, bias=bias)

    lead = x.shape[: x.ndim - len(row)]
    rstd = np.zeros(math.prod(lead), dtype) if return_stats else None

    def kernel(xt: Array, yt: Array, rows: slice) -> None:
        _backend.active.rms_norm(xt, scale, shift, eps, offset, yt, _layouts.part(rstd, rows))

    def twice_rounding_kernel(xt: Array, yt: Array, rows: slice) -> None:
        _backend.active.rms_norm(xt, None, None, eps, 0.0, yt, _layouts.part(rstd, rows))
        with np.errstate(all="ignore"):
            yt[:] = yt.astype(y.dtype)
            if scale is not None:
                yt *= scale + dtype.type(offset)
            if shift is not None:
                yt += shift

    if x.size:
        _layouts.run_rows((x,), y, len(row), dtype, twice_rounding_kernel if twice else kernel)
    y = y if out is None else out
    return y if rstd is None else (y, rstd.reshape(lead + (1,) * len(row)))
