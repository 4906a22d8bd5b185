"""Gradients of instance norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import Gradients, ParameterSums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def instance_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    axis: int = 1,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `instance_norm`, by the statistics of its input, with respect to input, weight and bias.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * weight``, where averages are over all positions of one
    channel of one sample, and sums over all samples and positions of a channel::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was normalised, in any memory layout and byte order. Channels may be another axis, see `axis`.
    mean, rstd : array of any floating dtype, shape (batch, channels)
        As `instance_norm` returned them. What the rounding of the mean left in `xhat` is removed.
    weight : array of any floating dtype, shape (channels,), optional
        By default 1.
    axis : int
        The channel axis. The batch axis is 0.
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
        the dtype computed in: float64 for float64, else float32. In a constant channel `xhat` is 0; one with
        a non-finite value gives NaN.

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
    D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization: The Missing Ingredient for Fast
    Stylization", 2016, arXiv:1607.08022.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2, 3, 4], [8, 8, 8, 8]]], np.float32)
    >>> y, mean, rstd = cnorm.instance_norm(x, return_stats=True)
    >>> dy = np.array([[[1, 0, 0, 0], [0, 0, 0, 0]]], np.float32)
    >>> grads = cnorm.instance_norm_backward(dy, x, mean, rstd, need=("x", "weight"))
    >>> grads.weight.round(3)
    array([-1.342,  0.   ], dtype=float32)
    >>> grads.x[0, 0].round(3)
    array([ 0.268, -0.358, -0.089,  0.179], dtype=float32)
    """
    result: Gradients | None = _backend.fast_instance_norm_backward(
        dy, x, mean, rstd, weight, axis, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    axis = _arguments.channel_axis(x, axis, first=1)
    batch, channels = x.shape[0], x.shape[axis]
    means = _arguments.statistic("mean", mean, (batch, channels), dtype).reshape(batch, channels)
    rstds = _arguments.statistic("rstd", rstd, (batch, channels), dtype).reshape(batch, channels)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    needed = _arguments.needed(need, weight)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, weight=weight)
    sums = ParameterSums(needed, (channels,), dtype)
    form = _layouts.channel_form(x, axis, pooled=False)

    def kernel(dyt: Array, xt: Array, dxt: Array | None, samples: slice, some: slice) -> None:
        with sums.part(some) as (dweight, dbias):
            _backend.active.instance_norm_backward(
                dyt,
                xt,
                _layouts.part(means, (samples, some)),
                _layouts.part(rstds, (samples, some)),
                _layouts.part(scale, some),
                form.channels_last,
                dxt,
                dweight,
                dbias,
            )

    if x.size and needed:
        _layouts.run_channels((dy, x), dx, form, dtype, kernel, "samples")
    return sums.gradients(dx if out is None else out)
