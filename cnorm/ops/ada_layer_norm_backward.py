"""Gradients of adaptive layer norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import AdaLayerNormGradients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def ada_layer_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    scale: ArrayLike,
    *,
    need: Iterable[str] = ("x", "scale", "shift"),
    out: Array | None = None,
) -> AdaLayerNormGradients:
    """Gradients of `ada_layer_norm` with respect to its input, and the scale and shift of each sample.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * (1 + scale)``, where averages are over a row, and sums
    over the rows of a sample::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))
        dscale = sum(dy * xhat)
        dshift = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, ..., cols)
        What was normalised, in any memory layout and byte order.
    mean, rstd : array of any floating dtype, shape (batch, ..., 1)
        As `ada_layer_norm` returned them. What the rounding of the mean left in `xhat` is removed.
    scale : array of any floating dtype, shape (batch, cols) or (batch, 1, ..., 1, cols)
        As given to `ada_layer_norm`.
    need : iterable of {"x", "scale", "shift"}, or one of them
        Which gradients to compute.
    out : array, optional
        Where to write the gradient of `x`: of the shape and dtype of `x`, and either `dy` itself or memory of
        its own.

    Returns
    -------
    AdaLayerNormGradients
        Named tuple ``(x, scale, shift)``, None where not needed. ``x`` has the shape, dtype and memory order
        of the argument `x`; it is `out` if that was given. ``scale`` and ``shift`` have the shape of `scale`
        and the dtype computed in: float64 for float64, else float32. In a constant row `xhat` is 0; one with
        a non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, or `out` has another
        dtype than `x`.
    ValueError
        If `x` has less than two axes, `dy`, a statistic or `scale` has another shape, `need` has an unknown
        name, or `out` is read-only, has another shape, overlaps an input other than `dy` itself, or is given
        where the gradient of `x` is not needed.

    References
    ----------
    W. Peebles, S. Xie, "Scalable Diffusion Models with Transformers", 2023, arXiv:2212.09748.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2, 3, 4], [7, 7, 7, 7]]], np.float32)
    >>> scale = np.array([[0, 1, -1, 0.5]])
    >>> y, mean, rstd = cnorm.ada_layer_norm(x, scale, 0 * scale, return_stats=True)
    >>> grads = cnorm.ada_layer_norm_backward(np.ones_like(y), x, mean, rstd, scale)
    >>> grads.scale.round(3)
    array([[-1.342, -0.447,  0.447,  1.342]], dtype=float32)
    >>> grads.x[0, 0].round(3)
    array([-0.179,  0.76 , -0.984,  0.402], dtype=float32)
    """
    result: AdaLayerNormGradients | None = _backend.fast_ada_layer_norm_backward(
        dy, x, mean, rstd, scale, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    _arguments.samples_of_rows(x)
    dy = _arguments.incoming(dy, x)
    stats_shape = (*x.shape[:-1], 1)
    by_sample = (x.shape[0], math.prod(x.shape[1:-1]))
    means = _arguments.statistic("mean", mean, stats_shape, dtype).reshape(by_sample)
    rstds = _arguments.statistic("rstd", rstd, stats_shape, dtype).reshape(by_sample)
    scales = _arguments.modulation("scale", scale, x, dtype)
    needed = _arguments.names_of(need, AdaLayerNormGradients._fields)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, scale=scale)
    sums = [np.zeros(scales.shape) if name in needed else None for name in ("scale", "shift")]

    def kernel(dyt: Array, xt: Array, dxt: Array | None, samples: slice, rows: slice) -> None:
        tile = samples, rows
        pieces = [None if total is None else np.empty_like(scales[samples]) for total in sums]
        _backend.active.ada_layer_norm_backward(
            dyt, xt, _layouts.part(means, tile), _layouts.part(rstds, tile), scales[samples], dxt, *pieces
        )
        with np.errstate(all="ignore"):
            for total, piece in zip(sums, pieces, strict=True):
                if total is not None and piece is not None:
                    total[samples] += piece

    if x.size and needed:
        _layouts.run_samples((dy, x), dx, dtype, kernel)
    shape = _arguments.array("scale", scale).shape
    with np.errstate(all="ignore"):
        dscale, dshift = (None if total is None else total.astype(dtype).reshape(shape) for total in sums)
    return AdaLayerNormGradients(dx if out is None else out, dscale, dshift)
