"""Gradient of vectors divided by their norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _vectors
from cnorm._gradients import NormalizeGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def normalize_backward(
    dy: ArrayLike,
    x: ArrayLike,
    p: float = 2.0,
    axis: int = -1,
    eps: float = 1e-12,
    *,
    out: Array | None = None,
) -> NormalizeGradients:
    """Gradient of `normalize` with respect to its input.

    With ``norm = sum(abs(x)**p)**(1/p)`` of a vector, and where that is at least `eps`::

        dx = (dy - direction * sum(dy * x) / norm) / norm

    where ``direction`` is the gradient of the norm: ``sign(x) * (abs(x) / norm)**(p - 1)``, for ``p=2`` that
    is ``x / norm``. For ``p=inf`` it is the sign at the largest magnitude, shared equally if several elements
    have it. Elements that are 0 have a direction of 0. Where the norm is less than `eps`, ``dx = dy / eps``.

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, with at least one axis
        What was normalised, in any memory layout and byte order.
    p, axis, eps
        As they were given to `normalize`.
    out : array, optional
        Where to write the gradient: of the shape and dtype of `x`, and either `dy` itself or memory of its
        own.

    Returns
    -------
    NormalizeGradients
        Named tuple ``(x,)``, with an array of the shape, dtype and memory order of the argument `x`; it is
        `out` if that was given. A vector of zeros without `eps` has a gradient of 0. A vector with a
        non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, `p`, `axis` or `eps` is no number, or `out` has another dtype than `x`.
    ValueError
        If `dy` has another shape than `x`, `x` has no axes, `axis` is none of them, `p` is not more than 0,
        `eps` is negative or not finite, or `out` is read-only, has another shape, or overlaps an input other
        than `dy` itself.

    References
    ----------
    H. Wang et al., "NormFace: L2 Hypersphere Embedding for Face Verification", 2017, arXiv:1704.06369.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[3, 4], [6, 8]], np.float32)
    >>> cnorm.normalize_backward(np.ones_like(x), x).x.round(3)
    array([[ 0.032, -0.024],
           [ 0.016, -0.012]], dtype=float32)
    """
    result: NormalizeGradients | None = _backend.fast_normalize_backward(dy, x, p, axis, eps, out)
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    order = _arguments.order(p)
    at = _arguments.axis_of("x", x, "axis", axis)
    eps = _arguments.epsilon(eps)
    dx = _arguments.only_gradient(out, dy, x)

    def kernel(dyt: Array, xt: Array, dxt: Array) -> None:
        _backend.active.normalize_backward(dyt, xt, order, eps, dxt)

    if x.size:
        _vectors.run_vectors((dy, x), dx, at, dtype, kernel)
    return NormalizeGradients(dx if out is None else out)
