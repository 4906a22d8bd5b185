"""Gradients of layer norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import Gradients, ParameterSums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def layer_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    normalized_shape: int | Sequence[int] | None = None,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `layer_norm` with respect to its input, weight and bias.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * weight``, where averages are over a row and sums over all
    rows::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (..., *normalized_shape)
        What was normalised, in any memory layout and byte order.
    mean, rstd : array of any floating dtype, shape ``x.shape[:-k] + (1,) * k`` where k axes make a row
        As `layer_norm` returned them. What the rounding of the mean left in `xhat` is removed.
    weight : array of any floating dtype, shape `normalized_shape`, optional
        By default 1.
    normalized_shape : int or tuple of int, optional
        The shape of a row: the trailing axes of `x`. By default that of `weight`, or else the last axis.
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
        `normalized_shape` and the dtype computed in: float64 for float64, else float32. In a constant row
        `xhat` is 0; a row with a non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, or `out` has another
        dtype than `x`.
    ValueError
        If `dy`, a statistic or the weight has another shape, `normalized_shape` is not how the shape of `x`
        ends, `need` has an unknown name, or `out` is read-only, has another shape, overlaps an input other
        than `dy` itself, or is given where the gradient of `x` is not needed.

    References
    ----------
    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016, arXiv:1607.06450.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2, 3, 4], [7, 7, 7, 7]], np.float32)
    >>> weight = np.array([1, 1, 1, 2], np.float32)
    >>> y, mean, rstd = cnorm.layer_norm(x, weight=weight, return_stats=True)
    >>> grads = cnorm.layer_norm_backward(np.ones_like(y), x, mean, rstd, weight)
    >>> grads.weight.round(3)
    array([-1.342, -0.447,  0.447,  1.342], dtype=float32)
    >>> grads.bias
    array([2., 2., 2., 2.], dtype=float32)
    >>> grads.x[0].round(3)
    array([ 0.179, -0.089, -0.358,  0.268], dtype=float32)
    """
    result: Gradients | None = _backend.fast_layer_norm_backward(
        dy, x, mean, rstd, weight, normalized_shape, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    row = _arguments.trailing_shape(x, normalized_shape, weight)
    stats_shape = x.shape[: x.ndim - len(row)] + (1,) * len(row)
    means = _arguments.statistic("mean", mean, stats_shape, dtype)
    rstds = _arguments.statistic("rstd", rstd, stats_shape, dtype)
    scale = _arguments.parameter("weight", weight, row, dtype)
    needed = _arguments.needed(need, weight)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, weight=weight)
    sums = ParameterSums(needed, row, dtype)

    def kernel(dyt: Array, xt: Array, dxt: Array | None, rows: slice) -> None:
        with sums.part() as (dweight, dbias):
            _backend.active.layer_norm_backward(dyt, xt, means[rows], rstds[rows], scale, dxt, dweight, dbias)

    if x.size and needed:
        _layouts.run_rows((dy, x), dx, len(row), dtype, kernel)
    return sums.gradients(dx if out is None else out)
