"""Instance norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts, _running

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def instance_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def instance_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def instance_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Normalise each channel of each sample to mean 0 and variance 1, then scale and shift by channel.

    With the mean and biased variance over all positions of one channel of one sample, or with running
    statistics::

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order. Channels may be another axis, see `axis`; both contiguous
        arrays with channels last and transposed views of such are taken as they lie.
    running_mean, running_var : array of any floating dtype, shape (channels,), optional
        Both or neither. With `use_input_stats` they are updated in place::

            running = (1 - momentum) * running + momentum * average

        where average is that over the batch of the means, or of the unbiased variances. They have to be
        writeable NumPy arrays with memory of their own then. Without `use_input_stats` they are needed, and
        left alone.
    weight, bias : array of any floating dtype, shape (channels,), optional
        By default 1 and 0.
    use_input_stats : bool
        Whether to normalise by the statistics of `x`; else by the running ones.
    momentum : float
        Weight of the new value in the running statistics: 0 leaves them, 1 replaces them.
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
        Of the shape, dtype and memory order of `x`; `out` if that was given. A constant channel gives
        exactly `bias`, one with a non-finite value NaN throughout.
    mean, rstd : array, shape (batch, channels)
        Only with `return_stats`. Their dtype is the one computed in: float64 for float64, else float32.
        `rstd` is 0 where ``var + eps`` is 0, and both are 0 if channels are empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If a parameter or a running statistic has another shape, is missing or cannot be updated, `axis` is
        not an axis of `x`, `eps` is negative or not finite, `momentum` is not finite, or `out` is
        read-only, has another shape, or overlaps an input in part; if running statistics are to be updated
        from channels of one value, whose unbiased variance is not defined. No running statistic has changed
        then.

    References
    ----------
    D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization: The Missing Ingredient for Fast
    Stylization", 2016, arXiv:1607.08022.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2, 3, 4], [8, 8, 8, 8]]], np.float32)
    >>> cnorm.instance_norm(x, bias=np.array([0, 0.5])).round(3)
    array([[[-1.342, -0.447,  0.447,  1.342],
            [ 0.5  ,  0.5  ,  0.5  ,  0.5  ]]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_instance_norm(
        x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps, axis, out, return_stats
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    axis = _arguments.channel_axis(x, axis, first=1)
    batch, channels = x.shape[0], x.shape[axis]
    eps = _arguments.epsilon(eps)
    momentum = _arguments.number("momentum", momentum)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    shift = _arguments.parameter("bias", bias, (channels,), dtype)
    running = _arguments.running_statistics(
        running_mean,
        running_var,
        channels,
        needed=not use_input_stats,
        updated=bool(use_input_stats),
        x=x,
        weight=weight,
        bias=bias,
    )
    if running is not None and use_input_stats and x.size:
        _arguments.several_values(x.size // (batch * channels), "channel and sample")
    y = _arguments.output(
        out, x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )

    mean = np.zeros((batch, channels), dtype) if return_stats else None
    rstd = np.zeros((batch, channels), dtype) if return_stats else None
    if running is not None and not use_input_stats:
        known = _running.compact(running, dtype)
        if x.size:
            _running.normalize(x, y, axis, known, scale, shift, eps)
        if mean is not None and rstd is not None:
            mean[:], rstd[:] = known[0], _running.rstd(known[1], eps)
    elif x.size:
        updated = running if momentum else None
        _normalize_instances(x, y, axis, scale, shift, eps, mean, rstd, updated, momentum, dtype)
    y = y if out is None else out
    return y if mean is None or rstd is None else (y, mean, rstd)


def _normalize_instances(
    x: Array,
    y: Array,
    axis: int,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    mean: Array | None,
    rstd: Array | None,
    running: tuple[Array, Array] | None,
    momentum: float,
    dtype: np.dtype[Any],
) -> None:
    form = _layouts.channel_form(x, axis, pooled=False)
    running_mean, running_var = (None, None) if running is None else _running.compact(running, dtype)

    def kernel(xt: Array, yt: Array, samples: slice, some: slice) -> None:
        tile = samples, some
        tile_mean, tile_rstd = _layouts.part(mean, tile), _layouts.part(rstd, tile)
        _backend.active.instance_norm(
            xt,
            _layouts.part(weight, some),
            _layouts.part(bias, some),
            eps,
            form.channels_last,
            yt,
            tile_mean,
            tile_rstd,
            _layouts.part(running_mean, some),
            _layouts.part(running_var, some),
            momentum,
        )
        # Some of the channels of several samples are no contiguous piece, and were computed in a copy.
        for whole, piece in ((mean, tile_mean), (rstd, tile_rstd)):
            if whole is not None and piece is not None:
                whole[tile] = piece.reshape(whole[tile].shape)

    # The average over the batch that goes into running statistics is taken by one call.
    _layouts.run_channels((x,), y, form, dtype, kernel, "samples" if running is None else "channels")
    if running is not None and running_mean is not None and running_var is not None:
        _running.store(running, (running_mean, running_var))
