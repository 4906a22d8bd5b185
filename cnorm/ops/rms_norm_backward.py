"""Gradients of RMS norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import Gradients, ParameterSums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def rms_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    normalized_shape: int | Sequence[int] | None = None,
    weight_offset: float = 0.0,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `rms_norm` with respect to its input, weight and bias.

    With ``xhat = x * rstd`` and ``g = dy * (weight_offset + weight)``, where the average is over a row and
    sums are over all rows::

        dx = rstd * (g - xhat * average(g * xhat))
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (..., *normalized_shape)
        What was normalised, in any memory layout and byte order.
    rstd : array of any floating dtype, shape ``x.shape[:-k] + (1,) * k`` where k axes make a row
        As `rms_norm` returned it.
    weight : array of any floating dtype, shape `normalized_shape`, optional
        Without a weight, the factor is 1, whatever `weight_offset` is.
    normalized_shape : int or tuple of int, optional
        The shape of a row: the trailing axes of `x`. By default that of `weight`, or else the last axis.
    weight_offset : float
        Added to the weight, in the dtype computed in.
    need : iterable of {"x", "weight", "bias"}, or one of them, optional
        Which gradients to compute. By default that of `x`, and with a weight the parameters' too.
    out : array, optional
        Where to write the gradient of `x`: of the shape and dtype of `x`, and either `dy` itself or memory of
        its own.

    Returns
    -------
    Gradients
        Named tuple ``(x, weight, bias)``, None where not needed. ``x`` has the shape, dtype and memory order
        of the argument `x`; it is `out` if that was given. ``weight`` and ``bias`` have shape
        `normalized_shape` and the dtype computed in: float64 for float64, else float32. A row with a
        non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `weight_offset` is no
        number, or `out` has another dtype than `x`.
    ValueError
        If `dy`, a statistic or the weight has another shape, `normalized_shape` is not how the shape of `x`
        ends, `weight_offset` is not finite, `need` has an unknown name, or `out` is read-only, has another
        shape, overlaps an input other than `dy` itself, or is given where the gradient of `x` is not needed.

    References
    ----------
    B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2, 3, 4], [10, 20, 30, 40]], np.float32)
    >>> weight = np.array([1, 1, 1, 2], np.float32)
    >>> y, rstd = cnorm.rms_norm(x, weight=weight, return_stats=True)
    >>> grads = cnorm.rms_norm_backward(np.ones_like(y), x, rstd, weight)
    >>> grads.weight.round(3)
    array([0.73 , 1.461, 2.191, 2.921], dtype=float32)
    >>> grads.x.round(3)
    array([[ 0.195,  0.024, -0.146,  0.049],
           [ 0.019,  0.002, -0.015,  0.005]], dtype=float32)
    """
    result: Gradients | None = _backend.fast_rms_norm_backward(
        dy, x, rstd, weight, normalized_shape, weight_offset, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    row = _arguments.trailing_shape(x, normalized_shape, weight)
    offset = _arguments.number("weight_offset", weight_offset)
    stats_shape = x.shape[: x.ndim - len(row)] + (1,) * len(row)
    rstds = _arguments.statistic("rstd", rstd, stats_shape, dtype)
    scale = _arguments.parameter("weight", weight, row, dtype)
    needed = _arguments.needed(need, weight)
    dx = _arguments.input_gradient(out, needed, dy, x, rstd=rstd, weight=weight)
    sums = ParameterSums(needed, row, dtype)

    def kernel(dyt: Array, xt: Array, dxt: Array | None, rows: slice) -> None:
        with sums.part() as (dweight, dbias):
            _backend.active.rms_norm_backward(dyt, xt, rstds[rows], scale, offset, dxt, dweight, dbias)

    if x.size and needed:
        _layouts.run_rows((dy, x), dx, len(row), dtype, kernel)
    return sums.gradients(dx if out is None else out)
