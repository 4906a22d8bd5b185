"""Gradients of weight norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import WeightNormGradients
from cnorm.ops.weight_norm import channel_shape, magnitudes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def weight_norm_backward(
    dw: ArrayLike, v: ArrayLike, g: ArrayLike, dim: int | None = 0, *, need: Iterable[str] | None = None
) -> WeightNormGradients:
    """Gradients of `weight_norm` with respect to directions and norms.

    With ``vhat = v / sqrt(sum(v**2))``, and sums over all axes but `dim`::

        dg = sum(dw * vhat)
        dv = g / sqrt(sum(v**2)) * (dw - vhat * dg)

    Parameters
    ----------
    dw : array of float16, bfloat16, float32 or float64, shape of `v`
        The gradient of the loss with respect to the weight. Its memory layout need not be that of `v`.
    v, g, dim
        As they were given to `weight_norm`.
    need : iterable of {"v", "g"}, or one of them, optional
        Which gradients to compute. By default both.

    Returns
    -------
    WeightNormGradients
        Named tuple ``(v, g)``, None where not needed. ``v`` has the shape, dtype and memory order of the
        argument `v`, ``g`` the shape of `g` and the dtype computed in: float64 for float64, else float32. A
        channel of zeros has gradients of 0, one with a non-finite value, also in `dw` and `g`, NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `dim` is neither an integer nor None, or `need`
        holds no strings.
    ValueError
        If `dw` or `g` has another shape, `dim` is no axis of `v`, or `need` has an unknown name.

    References
    ----------
    T. Salimans, D. P. Kingma, "Weight Normalization: A Simple Reparameterization to Accelerate Training of
    Deep Neural Networks", 2016, arXiv:1602.07868.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> v, g = np.array([[3, 4], [0, 0]], np.float32), np.array([[10], [1]], np.float32)
    >>> grads = cnorm.weight_norm_backward(np.ones_like(v), v, g)
    >>> grads.g.round(3)
    array([[1.4],
           [0. ]], dtype=float32)
    >>> grads.v.round(3)
    array([[ 0.32, -0.24],
           [ 0.  ,  0.  ]], dtype=float32)
    """
    result: WeightNormGradients | None = _backend.fast_weight_norm_backward(dw, v, g, dim, need)
    if result is not None:
        return result

    v, dtype = _arguments.floating("v", v)
    shape, g_shape = channel_shape(v, dim)
    norms = magnitudes(g, v, g_shape, dtype)
    dw = _arguments.incoming_like("dw", dw, "v", v.shape)
    needed = _arguments.names_of(
        WeightNormGradients._fields if need is None else need, WeightNormGradients._fields
    )
    dv, dg = np.empty(v.shape, dtype), np.zeros(np.shape(g), dtype)
    if v.size and needed:
        incoming, directions = (_layouts.compact(array, dtype).reshape(shape) for array in (dw, v))
        _backend.active.weight_norm_backward(incoming, directions, norms, dv.reshape(shape), dg.reshape(-1))
    if not _layouts.is_ready(v, dtype) and "v" in needed:
        result_v = _layouts.empty_like(v)
        _layouts.convert(result_v, dv)
        dv = result_v
    return WeightNormGradients(dv if "v" in needed else None, dg if "g" in needed else None)
