"""Weight norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts, _vectors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def channel_shape(v: Array, dim: Any) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return `v` as (outer, channels, inner), one channel without `dim`, and the shape of `g`."""
    if dim is None:
        return (1, 1, v.size), ()
    axis = _arguments.axis_of("v", v, "dim", dim)
    return _vectors.three_axes(v.shape, axis), tuple(n if i == axis else 1 for i, n in enumerate(v.shape))


def magnitudes(g: object, v: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return `g` as a 1-D array of the compute dtype; a single number may have as many axes as `v`."""
    given = _arguments.array("g", g)
    single = shape == () and given.shape == (1,) * v.ndim
    return _arguments.statistic("g", given, given.shape if single else shape, dtype)


def weight_norm(v: ArrayLike, g: ArrayLike, dim: int | None = 0, *, out: Array | None = None) -> Array:
    """Return the weight with the directions of `v` and the norms `g`.

    ::

        w = g * v / norm,   norm = sqrt(sum(v**2))

    where the sum runs over all axes but `dim`.

    Parameters
    ----------
    v : array of float16, bfloat16, float32 or float64
        The directions, in any memory layout and byte order.
    g : array of any floating dtype, of size 1 on every axis but `dim`, where it has that of `v`
        The norms. For ``dim=None`` a single number: an array of shape () or with as many axes as `v`.
    dim : int or None
        The axis of the channels, each of which has a norm; counted from the end where negative. None: one
        norm over everything.
    out : array, optional
        Where to write the result: of the shape and dtype of `v`, and either `v` itself or memory of its own.

    Returns
    -------
    w : array
        Of the shape, dtype and memory order of `v`; `out` if that was given. A channel of zeros gives zeros,
        one with a non-finite value, also in `g`, NaN throughout.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `dim` is neither an integer nor None, or `out`
        has another dtype than `v`.
    ValueError
        If `g` has another shape, `dim` is no axis of `v`, or `out` is read-only, has another shape, or
        overlaps an input in part.

    See Also
    --------
    weight_norm_backward : The gradients.
    WeightNorm : The parameters as a layer.

    References
    ----------
    T. Salimans, D. P. Kingma, "Weight Normalization: A Simple Reparameterization to Accelerate Training of
    Deep Neural Networks", 2016, arXiv:1602.07868.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> v = np.array([[3, 4], [0, 2], [0, 0]], np.float32)
    >>> cnorm.weight_norm(v, np.array([[10], [1], [1]], np.float32))
    array([[6., 8.],
           [0., 1.],
           [0., 0.]], dtype=float32)
    """
    result: Array | None = _backend.fast_weight_norm(v, g, dim, out)
    if result is not None:
        return result

    v, dtype = _arguments.floating("v", v)
    shape, g_shape = channel_shape(v, dim)
    norms = magnitudes(g, v, g_shape, dtype)
    w = _arguments.output(out, v, "v", g=g)
    if v.size:
        ready = _layouts.is_ready(w, dtype)
        target = w if ready else np.empty(v.shape, dtype)
        directions = _layouts.compact(v, dtype)
        _backend.active.weight_norm(directions.reshape(shape), norms, target.reshape(shape))
        if not ready:
            _layouts.convert(w, target)
    return w if out is None else out
