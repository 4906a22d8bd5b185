"""Vectors divided by their norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _vectors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def normalize(
    x: ArrayLike, p: float = 2.0, axis: int = -1, eps: float = 1e-12, *, out: Array | None = None
) -> Array:
    """Divide each vector along an axis by its norm.

    ::

        y = x / max(norm, eps),   norm = sum(abs(x)**p)**(1/p)

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, with at least one axis
        In any memory layout and byte order.
    p : float
        The order of the norm, more than 0: 2 for the Euclidean norm, 1 for the sum of magnitudes, ``inf`` for
        the largest one.
    axis : int
        The axis along which vectors lie; counted from the end where negative.
    eps : float
        At least 0. Norms that are smaller count as `eps`. With 0, vectors of zeros still give zeros.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A vector with a non-finite value
        is NaN throughout.

    Raises
    ------
    TypeError
        If the dtype of `x` is not floating, `p`, `axis` or `eps` is no number, or `out` has another dtype.
    ValueError
        If `x` has no axes, `axis` is none of them, `p` is not more than 0, `eps` is negative or not finite,
        or `out` is read-only, has another shape, or overlaps `x` in part.

    See Also
    --------
    normalize_backward : The gradient.

    Notes
    -----
    Arguments and defaults are those of ``torch.nn.functional.normalize``. Norms are computed at any
    magnitude: no square overflows, and none vanishes.

    References
    ----------
    H. Wang et al., "NormFace: L2 Hypersphere Embedding for Face Verification", 2017, arXiv:1704.06369.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[3, 4], [0, 0], [-1e30, 1e30]], np.float32)
    >>> cnorm.normalize(x).round(3)
    array([[ 0.6  ,  0.8  ],
           [ 0.   ,  0.   ],
           [-0.707,  0.707]], dtype=float32)
    >>> cnorm.normalize(x, p=1).round(3)[0]
    array([0.429, 0.571], dtype=float32)
    """
    result: Array | None = _backend.fast_normalize(x, p, axis, eps, out)
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    order = _arguments.order(p)
    at = _arguments.axis_of("x", x, "axis", axis)
    eps = _arguments.epsilon(eps)
    y = _arguments.output(out, x)

    def kernel(xt: Array, yt: Array) -> None:
        _backend.active.normalize(xt, order, eps, yt, None)

    if x.size:
        _vectors.run_vectors((x,), y, at, dtype, kernel)
    return y if out is None else out
