"""Cosine norm: a linear layer of unit vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._blas import serial_blocks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]
DType = np.dtype[Any]


def checked(x: Any, weight: Any) -> tuple[Array, Array, DType]:
    """Return the two arrays and the dtype to compute in."""
    x, dtype = _arguments.floating("x", x)
    weight = _arguments.floating("weight", weight)[0]
    if x.ndim == 0:
        raise ValueError("x: expected at least 1 axis, got shape ()")
    if weight.ndim != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(f"weight: expected shape (out_features, {x.shape[-1]}), got shape {weight.shape}")
    return x, weight, dtype


def as_matrix(array: Array, dtype: DType) -> Array:
    """Return the rows of `array`, contiguous and of the compute dtype: a view where possible."""
    rows = math.prod(array.shape[:-1])
    return _layouts.compact(array, dtype).reshape(rows, array.shape[-1])


#: Norms between these bounds, and products of two of them, can be divided by as they are.
ORDINARY = {np.dtype(np.float32): (2.0**-30, 2.0**60), np.dtype(np.float64): (2.0**-400, 2.0**490)}


def norms_of(rows: Array) -> Array:
    """Return the norms of contiguous rows."""
    norms = np.zeros(len(rows), rows.dtype)
    for block in serial_blocks(rows) if rows.size else ():
        _backend.active.normalize(rows[block, :, np.newaxis], 2.0, 0.0, None, norms[block])
    return norms


def are_ordinary(norms: Array) -> bool:
    """Tell whether all norms are finite, and neither very small nor very large."""
    least, most = ORDINARY[norms.dtype]
    return bool(norms.min() >= least and norms.max() <= most)


def unit_rows(rows: Array) -> tuple[Array, Array]:
    """Return the rows divided by their norms, zeros for zeros, and the norms."""
    hat, norms = _backend.empty(rows.shape, rows.dtype), np.zeros(len(rows), rows.dtype)
    for block in serial_blocks(rows) if rows.size else ():
        x, x_hat = rows[block, :, np.newaxis], hat[block, :, np.newaxis]
        _backend.active.normalize(x, 2.0, 0.0, x_hat, norms[block])
    return hat, norms


def any_below(eps: float, x_norms: Array, weight_norms: Array) -> bool:
    """Whether a product of two norms is less than `eps`."""
    smallest = (float(np.min(norms, initial=np.inf)) for norms in (x_norms, weight_norms))
    return eps > 0 and not math.prod(smallest) >= eps


def products_over(eps: float, x: Array, weight: Array) -> Array:
    """Return ``norm(x) * norm(weight) / eps`` of every pair of rows, of norms at any magnitude."""
    from cnorm.fallback.vectors import vectors  # rarely needed, and a part of the NumPy backend

    a, b = vectors(x, 2), vectors(weight, 2)
    fraction, exponent = math.frexp(eps)
    return np.ldexp(a.norm * b.norm.T / fraction, a.exponent + b.exponent.T - exponent)


def cosine_norm(x: ArrayLike, weight: ArrayLike, eps: float = 1e-8, *, out: Array | None = None) -> Array:
    """Cosines of the angles between the vectors of `x` and the rows of `weight`.

    ::

        y[..., k] = sum(x * weight[k]) / max(norm(x) * norm(weight[k]), eps),   norm(v) = sqrt(sum(v**2))

    where sums run over the last axis.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (..., in_features)
        In any memory layout and byte order.
    weight : array of any floating dtype, shape (out_features, in_features)
        Used in the dtype computed in: float64 for an `x` of float64, else float32.
    eps : float
        At least 0. Products of two norms that are smaller count as `eps`.
    out : array, optional
        Where to write the result: of its shape and the dtype of `x`, with memory of its own.

    Returns
    -------
    y : array, shape (..., out_features)
        Of the dtype of `x`, in C order; `out` if that was given. Every value is in [-1, 1], 0 where a vector
        is zero, and NaN where it has a non-finite value.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If `x` has no axes, `weight` another shape, `eps` is negative or not finite, or `out` is read-only,
        has another shape, or overlaps an input.

    See Also
    --------
    cosine_norm_backward : The gradients.
    CosineLinear : The function as a layer.

    Notes
    -----
    The matrix product is NumPy's: its BLAS decides on the order of that sum. It is divided by the products of
    the norms; where a norm is very small, very large, or not a number, all vectors are divided by theirs
    before the product.

    References
    ----------
    C. Luo et al., "Cosine Normalization: Using Cosine Similarity Instead of Dot Product in Neural Networks",
    2017, arXiv:1702.05870.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[3, 4], [0, 0]], np.float32)
    >>> cnorm.cosine_norm(x, np.array([[1, 0], [0, -7], [6, 8]], np.float32)).round(3)
    array([[ 0.6, -0.8,  1. ],
           [ 0. ,  0. ,  0. ]], dtype=float32)
    """
    x, weight, dtype = checked(x, weight)
    eps = _arguments.epsilon(eps)
    y = _arguments.separate_output(out, (*x.shape[:-1], len(weight)), x.dtype, x=x, weight=weight)
    if not y.size:
        return y if out is None else out

    x_rows, weight_rows = as_matrix(x, dtype), as_matrix(weight, dtype)
    ready = _layouts.is_ready(y, dtype)
    shape = (len(x_rows), len(weight_rows))
    target = y.reshape(shape) if ready else np.empty(shape, dtype)
    x_norms, weight_norms = norms_of(x_rows), norms_of(weight_rows)
    if are_ordinary(x_norms) and are_ordinary(weight_norms):
        np.matmul(x_rows, weight_rows.T, out=target)
        for block in serial_blocks(target):
            _backend.active.cosine_norm(target[block], x_norms[block], weight_norms, eps)
    else:
        _cosines_of_any(x_rows, weight_rows, eps, target)
    if not ready:
        _layouts.convert(y, target.reshape(y.shape))
    return y if out is None else out


@np.errstate(all="ignore")
def _cosines_of_any(x: Array, weight: Array, eps: float, y: Array) -> None:
    """Of vectors at any magnitude, and of those that are not finite."""
    (x_hat, x_norms), (weight_hat, weight_norms) = unit_rows(x), unit_rows(weight)
    np.matmul(x_hat, weight_hat.T, out=y)
    np.clip(y, -1, 1, out=y)
    if any_below(eps, x_norms, weight_norms):
        np.multiply(y, np.minimum(products_over(eps, x, weight), 1), out=y)
