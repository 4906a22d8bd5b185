"""Group norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Normalise groups of channels of each sample to mean 0 and variance 1, then scale and shift by channel.

    A group is ``channels / num_groups`` neighbouring channels at all positions of one sample. With its mean
    and biased variance::

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order. Channels may be another axis, see `axis`; both contiguous
        arrays with channels last and transposed views of such are taken as they lie.
    num_groups : int
        A divisor of the number of channels.
    weight, bias : array of any floating dtype, shape (channels,), optional
        By default 1 and 0.
    eps : float
        At least 0. Added to the variance, inside the square root.
    axis : int
        The channel axis. The batch axis is 0.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``mean`` and ``rstd = 1 / sqrt(var + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A constant group gives exactly
        `bias`, a group with a non-finite value NaN throughout.
    mean, rstd : array, shape (batch, num_groups)
        Only with `return_stats`. Their dtype is the one computed in: float64 for float64, else float32.
        `rstd` is 0 where ``var + eps`` is 0, and both are 0 if groups are empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, `num_groups` or `axis` is no integer, or something is not an array.
    ValueError
        If `num_groups` does not divide the channels, a parameter has another shape, `axis` is not an axis
        of `x`, `eps` is negative or not finite, or `out` is read-only, has another shape, or overlaps an
        input in part.

    References
    ----------
    Y. Wu, K. He, "Group Normalization", 2018, arXiv:1803.08494.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2], [3, 4], [50, 70], [90, 110]]], np.float32)
    >>> cnorm.group_norm(x, 2).round(3)
    array([[[-1.342, -0.447],
            [ 0.447,  1.342],
            [-1.342, -0.447],
            [ 0.447,  1.342]]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_group_norm(
        x, num_groups, weight, bias, eps, axis, out, return_stats
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    axis = _arguments.channel_axis(x, axis, first=1)
    batch, channels = x.shape[0], x.shape[axis]
    num_groups = _arguments.groups(num_groups, channels)
    eps = _arguments.epsilon(eps)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    shift = _arguments.parameter("bias", bias, (channels,), dtype)
    y = _arguments.output(out, x, weight=weight, bias=bias)

    mean = np.zeros((batch, num_groups), dtype) if return_stats else None
    rstd = np.zeros((batch, num_groups), dtype) if return_stats else None
    per_group = channels // num_groups
    form = _layouts.channel_form(x, axis, pooled=False)

    def kernel(xt: Array, yt: Array, samples: slice, some: slice) -> None:
        groups = slice(some.start // per_group, some.stop // per_group)
        _backend.active.group_norm(
            xt,
            _layouts.part(scale, some),
            _layouts.part(shift, some),
            groups.stop - groups.start,
            eps,
            form.channels_last,
            yt,
            _layouts.part(mean, (samples, groups)),
            _layouts.part(rstd, (samples, groups)),
        )

    if x.size:
        _layouts.run_channels((x,), y, form, dtype, kernel, "samples", per_group)
    y = y if out is None else out
    return y if mean is None or rstd is None else (y, mean, rstd)
