"""Gradients of group norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import Gradients, ParameterSums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def group_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    *,
    axis: int = 1,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `group_norm` with respect to its input, weight and bias.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * weight``, where averages are over a group, which is
    ``channels / num_groups`` neighbouring channels at all positions of one sample, and sums over all samples
    and positions of a channel::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was normalised, in any memory layout and byte order. Channels may be another axis, see `axis`.
    mean, rstd : array of any floating dtype, shape (batch, num_groups)
        As `group_norm` returned them. What the rounding of the mean left in `xhat` is removed.
    num_groups : int
        A divisor of the number of channels.
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
        the dtype computed in: float64 for float64, else float32. In a constant group `xhat` is 0; a group
        with a non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `num_groups` or `axis`
        is no integer, or `out` has another dtype than `x`.
    ValueError
        If `dy`, a statistic or the weight has another shape, `num_groups` does not divide the channels,
        `axis` is not an axis of `x`, `need` has an unknown name, or `out` is read-only, has another shape,
        overlaps an input other than `dy` itself, or is given where the gradient of `x` is not needed.

    References
    ----------
    Y. Wu, K. He, "Group Normalization", 2018, arXiv:1803.08494.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2], [3, 4], [50, 70], [90, 110]]], np.float32)
    >>> weight = np.array([1, 2, 1, 2], np.float32)
    >>> y, mean, rstd = cnorm.group_norm(x, 2, weight, return_stats=True)
    >>> grads = cnorm.group_norm_backward(np.ones_like(y), x, mean, rstd, 2, weight)
    >>> grads.weight.round(3)
    array([-1.789,  1.789, -1.789,  1.789], dtype=float32)
    >>> grads.x[0, :2].round(3)
    array([[ 0.089, -0.268],
           [ 0.268, -0.089]], dtype=float32)
    """
    result: Gradients | None = _backend.fast_group_norm_backward(
        dy, x, mean, rstd, num_groups, weight, axis, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    axis = _arguments.channel_axis(x, axis, first=1)
    batch, channels = x.shape[0], x.shape[axis]
    num_groups = _arguments.groups(num_groups, channels)
    means = _arguments.statistic("mean", mean, (batch, num_groups), dtype).reshape(batch, num_groups)
    rstds = _arguments.statistic("rstd", rstd, (batch, num_groups), dtype).reshape(batch, num_groups)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    needed = _arguments.needed(need, weight)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, weight=weight)
    sums = ParameterSums(needed, (channels,), dtype)
    per_group = channels // num_groups
    form = _layouts.channel_form(x, axis, pooled=False)

    def kernel(dyt: Array, xt: Array, dxt: Array | None, samples: slice, some: slice) -> None:
        groups = slice(some.start // per_group, some.stop // per_group)
        with sums.part(some) as (dweight, dbias):
            _backend.active.group_norm_backward(
                dyt,
                xt,
                _layouts.part(means, (samples, groups)),
                _layouts.part(rstds, (samples, groups)),
                _layouts.part(scale, some),
                groups.stop - groups.start,
                form.channels_last,
                dxt,
                dweight,
                dbias,
            )

    if x.size and needed:
        _layouts.run_channels((dy, x), dx, form, dtype, kernel, "samples", per_group)
    return sums.gradients(dx if out is None else out)
