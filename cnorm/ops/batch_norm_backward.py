"""Gradients of batch norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import Gradients, ParameterSums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]
DType = np.dtype[Any]


def batch_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    training: bool = True,
    axis: int = 1,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `batch_norm` with respect to its input, weight and bias.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * weight``, where averages and sums are over the batch and
    all positions of a channel::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))    in training
        dx = rstd * g                                              with running statistics
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was normalised, in any memory layout and byte order. Channels may be another axis, see `axis`.
    mean, rstd : array of any floating dtype, shape (channels,)
        As `batch_norm` returned them. What the rounding of the mean left in `xhat` is removed in training;
        running statistics are used as given.
    weight : array of any floating dtype, shape (channels,), optional
        By default 1.
    training : bool
        Whether `x` was normalised by its own statistics; else by running ones, which do not depend on `x`.
    axis : int
        The channel axis. The batch axis is the first of the others.
    need : iterable of {"x", "weight", "bias"}, or one of them, optional
        Which gradients to compute. By default that of `x`, and with a weight the parameters' too.
    out : array, optional
        Where to write the gradient of `x`: of the shape and dtype of `x`, and either `dy` itself or memory of
        its own.

    Returns
    -------
    Gradients
        Named tuple ``(x, weight, bias)``, None where not needed. ``x`` has the shape, dtype and memory order
        of the argument `x`; it is `out` if that was given. ``weight`` and ``bias`` have shape (channels,) and
        the dtype computed in: float64 for float64, else float32. In training, `xhat` of a constant channel is
        0, and a channel with a non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `axis` is no integer,
        or `out` has another dtype than `x`.
    ValueError
        If `dy`, a statistic or the weight has another shape, `axis` is not an axis of `x`, `need` has an
        unknown name, or `out` is read-only, has another shape, overlaps an input other than `dy` itself, or
        is given where the gradient of `x` is not needed.

    References
    ----------
    S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015, arXiv:1502.03167.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> y, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)
    >>> dy = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.float32)
    >>> grads = cnorm.batch_norm_backward(dy, x, mean, rstd, np.array([1, 100], np.float32))
    >>> grads.x.round(3)
    array([[ 0.268,  1.789],
           [-0.358, -0.894],
           [-0.089, -3.578],
           [ 0.179,  2.683]], dtype=float32)
    >>> grads.weight.round(3)
    array([-1.342,  1.342], dtype=float32)
    >>> grads.bias
    array([1., 1.], dtype=float32)
    """
    result: Gradients | None = _backend.fast_batch_norm_backward(
        dy, x, mean, rstd, weight, training, axis, need, out
    )
    if result is not None:
        return result

    c = check_gradient_call(dy, x, mean, rstd, weight, axis, need, out)
    sums = ParameterSums(c.needed, (c.channels,), c.dtype)
    form = _layouts.channel_form(c.x, c.axis, pooled=True)

    def kernel(dyt: Array, xt: Array, dxt: Array | None, _: slice, some: slice) -> None:
        with sums.part(some) as (dweight, dbias):
            _backend.active.batch_norm_backward(
                dyt,
                xt,
                c.mean[some],
                c.rstd[some],
                _layouts.part(c.weight, some),
                bool(training),
                form.channels_last,
                dxt,
                dweight,
                dbias,
            )

    if c.x.size and c.needed:
        _layouts.run_channels(
            (c.dy, c.x), c.dx, form, c.dtype, kernel, "channels" if training else "elements"
        )
    return sums.gradients(c.dx if out is None else out)


class GradientCall(NamedTuple):
    """Arguments that are checked, and the array for the gradient of `x` where that is needed."""

    dy: Array
    x: Array
    mean: Array
    rstd: Array
    weight: Array | None
    dx: Array | None
    needed: frozenset[str]
    axis: int
    channels: int
    dtype: DType


def check_gradient_call(
    dy: Any, x: Any, mean: object, rstd: object, weight: object, axis: Any, need: Any, out: object
) -> GradientCall:
    """Check everything but what tells training from inference; nothing is read or written before."""
    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    axis = _arguments.channel_axis(x, axis, first=0)
    channels = x.shape[axis]
    means = _arguments.statistic("mean", mean, (channels,), dtype)
    rstds = _arguments.statistic("rstd", rstd, (channels,), dtype)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    needed = _arguments.needed(need, weight)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, weight=weight)
    return GradientCall(dy, x, means, rstds, scale, dx, needed, axis, channels, dtype)
