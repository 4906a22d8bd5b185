"""Gradients of cosine norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._blas import serial_blocks
from cnorm._gradients import CosineNormGradients
from cnorm.ops.cosine_norm import any_below, as_matrix, checked, products_over, unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def _through_norm(dhat: Array, rows: Array) -> Array:
    """Turn the gradient of unit rows into that of the rows themselves, in place."""
    for block in serial_blocks(rows) if rows.size else ():
        part = dhat[block, :, np.newaxis]
        _backend.active.normalize_backward(part, rows[block, :, np.newaxis], 2.0, 0.0, part)
    return dhat


def cosine_norm_backward(
    dy: ArrayLike, x: ArrayLike, weight: ArrayLike, eps: float = 1e-8, *, need: Iterable[str] | None = None
) -> CosineNormGradients:
    """Gradients of `cosine_norm` with respect to its input and weight.

    With ``xhat = x / norm(x)`` and ``what = weight / norm(weight)`` by row, and where the product of the
    norms is at least `eps`::

        dxhat = dy @ what          dx = (dxhat - xhat * sum(dxhat * xhat)) / norm(x)
        dwhat = dy.T @ xhat        dweight = (dwhat - what * sum(dwhat * what)) / norm(weight)

    Pairs with a smaller product, vectors of zeros among them, have ``y = sum(x * weight) / eps``, and its
    gradients.

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape (..., out_features)
        The gradient of the loss with respect to the result.
    x, weight, eps
        As they were given to `cosine_norm`.
    need : iterable of {"x", "weight"}, or one of them, optional
        Which gradients to compute. By default both.

    Returns
    -------
    CosineNormGradients
        Named tuple ``(x, weight)``, None where not needed. ``x`` has the shape, dtype and memory order of the
        argument `x`, ``weight`` the shape of `weight` and the dtype computed in: float64 for float64, else
        float32.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `need` holds no strings.
    ValueError
        If `x` has no axes, `weight` or `dy` another shape, `eps` is negative or not finite, or `need` has an
        unknown name.

    References
    ----------
    C. Luo et al., "Cosine Normalization: Using Cosine Similarity Instead of Dot Product in Neural Networks",
    2017, arXiv:1702.05870.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x, weight = np.array([[3, 4]], np.float32), np.array([[2, 0]], np.float32)
    >>> grads = cnorm.cosine_norm_backward(np.ones((1, 1), np.float32), x, weight)
    >>> grads.x.round(3)
    array([[ 0.128, -0.096]], dtype=float32)
    >>> grads.weight.round(3)
    array([[0. , 0.4]], dtype=float32)
    """
    x, weight, dtype = checked(x, weight)
    eps = _arguments.epsilon(eps)
    dy = _arguments.incoming_like("dy", dy, "the result", (*x.shape[:-1], len(weight)))
    needed = _arguments.names_of(
        CosineNormGradients._fields if need is None else need, CosineNormGradients._fields
    )

    rows, weights, g = as_matrix(x, dtype), as_matrix(weight, dtype), as_matrix(dy, dtype)
    (x_hat, x_norms), (weight_hat, weight_norms) = unit_rows(rows), unit_rows(weights)
    dx = dweight = None
    with np.errstate(all="ignore"):
        small = None
        if any_below(eps, x_norms, weight_norms):
            below = products_over(eps, rows, weights) < 1
            small, g = np.where(below, g / dtype.type(eps), 0), np.where(below, 0, g)
        if "x" in needed:
            dx = _through_norm(g @ weight_hat, rows)
            if small is not None:
                dx += small @ weights
        if "weight" in needed:
            dweight = _through_norm(g.T @ x_hat, weights)
            if small is not None:
                dweight += small.T @ rows
    if dx is not None:
        result = _layouts.empty_like(x)
        _layouts.convert(result, dx.reshape(x.shape))
        dx = result
    return CosineNormGradients(dx, dweight)
