"""Batch norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts, _running

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Normalise each channel to mean 0 and variance 1 over the batch and all positions, then scale and shift.

    With the mean and biased variance of the batch in training, else with the running statistics::

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order. Channels may be another axis, see `axis`; both contiguous
        arrays with channels last and transposed views of such are taken as they lie.
    running_mean, running_var : array of any floating dtype, shape (channels,), optional
        Both or neither. In training they are updated in place::

            running = (1 - momentum) * running + momentum * new

        where new is the mean of the batch, or its variance. They have to be writeable NumPy arrays with
        memory of their own then. Without `training` they are needed, and left alone.
    weight, bias : array of any floating dtype, shape (channels,), optional
        By default 1 and 0.
    training : bool
        Whether to normalise by the statistics of `x`; else by the running ones.
    momentum : float
        Weight of the new value in the running statistics: 0 leaves them, 1 replaces them.
    eps : float
        At least 0. Added to the variance, inside the square root.
    axis : int
        The channel axis. The batch axis is the first of the others.
    unbiased : bool
        Whether the variance that goes into `running_var` is divided by n - 1 instead of n, where n is the
        number of values of a channel. `y` always uses the latter.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``mean`` and ``rstd = 1 / sqrt(var + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. In training, a constant
        channel gives exactly `bias`, one with a non-finite value NaN throughout.
    mean, rstd : array, shape (channels,)
        Only with `return_stats`: those `x` was normalised by. Their dtype is the one computed in: float64
        for float64, else float32. `rstd` is 0 where ``var + eps`` is 0, and both are 0 for an empty batch
        in training.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If a parameter or a running statistic has another shape, is missing or cannot be updated, `axis` is
        not an axis of `x`, `eps` is negative or not finite, `momentum` is not finite, or `out` is
        read-only, has another shape, or overlaps an input in part; in training, if there is one value per
        channel. No running statistic has changed then.

    References
    ----------
    S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015, arXiv:1502.03167.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> running_mean, running_var = np.zeros(2, np.float32), np.ones(2, np.float32)
    >>> cnorm.batch_norm(x, running_mean, running_var, training=True).round(3)
    array([[-1.342, -1.342],
           [-0.447, -0.447],
           [ 0.447,  0.447],
           [ 1.342,  1.342]], dtype=float32)
    >>> running_mean
    array([0.25, 2.5 ], dtype=float32)
    >>> cnorm.batch_norm(x, running_mean, running_var).round(3)
    array([[0.726, 1.789],
           [1.694, 4.175],
           [2.663, 6.561],
           [3.631, 8.947]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_batch_norm(
        x, running_mean, running_var, weight, bias, training, momentum, eps, axis, unbiased, out, return_stats
    )
    if result is not None:
        return result

    call = check_call(x, running_mean, running_var, weight, bias, training, momentum, eps, axis, out)
    x, dtype, axis, y, running = call.x, call.dtype, call.axis, call.y, call.running
    eps, momentum, scale, shift, channels = call.eps, call.momentum, call.weight, call.bias, call.channels
    if training:
        _arguments.several_values(call.values, "channel")

    mean = np.zeros(channels, dtype) if return_stats else None
    rstd = np.zeros(channels, dtype) if return_stats else None
    if running is not None and not training:
        known = _running.compact(running, dtype)
        if x.size:
            _running.normalize(x, y, axis, known, scale, shift, eps)
        if mean is not None and rstd is not None:
            mean[:], rstd[:] = known[0], _running.rstd(known[1], eps)
    elif x.size:
        updated = running if momentum else None
        _normalize_channels(x, y, axis, scale, shift, eps, mean, rstd, updated, momentum, unbiased, dtype)
    y = y if out is None else out
    return y if mean is None or rstd is None else (y, mean, rstd)


class Call(NamedTuple):
    """The checked arguments of a call: ready parameters, running statistics as given, and where y goes."""

    x: Array
    dtype: np.dtype[Any]
    axis: int
    weight: Array | None
    bias: Array | None
    running: tuple[Array, Array] | None
    momentum: float
    eps: float
    y: Array

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.x.shape[self.axis]

    @property
    def values(self) -> int:
        """The number of values of a channel."""
        return math.prod(self.x.shape[: self.axis] + self.x.shape[self.axis + 1 :])


def check_call(
    x: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    training: bool,
    momentum: float,
    eps: float,
    axis: int,
    out: Array | None,
) -> Call:
    """Check what batch norm is given, over one process or several."""
    x, dtype = _arguments.floating("x", x)
    axis = _arguments.channel_axis(x, axis, first=0)
    channels = x.shape[axis]
    eps = _arguments.epsilon(eps)
    momentum = _arguments.number("momentum", momentum)
    scale = _arguments.parameter("weight", weight, (channels,), dtype)
    shift = _arguments.parameter("bias", bias, (channels,), dtype)
    running = _arguments.running_statistics(
        running_mean,
        running_var,
        channels,
        needed=not training,
        updated=bool(training),
        x=x,
        weight=weight,
        bias=bias,
    )
    y = _arguments.output(
        out, x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    return Call(x, dtype, axis, scale, shift, running, momentum, eps, y)


def _normalize_channels(
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
    unbiased: bool,
    dtype: np.dtype[Any],
) -> None:
    form = _layouts.channel_form(x, axis, pooled=True)
    running_mean, running_var = (None, None) if running is None else _running.compact(running, dtype)

    def kernel(xt: Array, yt: Array, _: slice, some: slice) -> None:
        _backend.active.batch_norm_training(
            xt,
            _layouts.part(weight, some),
            _layouts.part(bias, some),
            eps,
            form.channels_last,
            yt,
            _layouts.part(mean, some),
            _layouts.part(rstd, some),
            _layouts.part(running_mean, some),
            _layouts.part(running_var, some),
            momentum,
            bool(unbiased),
        )

    _layouts.run_channels((x,), y, form, dtype, kernel, "channels")
    if running is not None and running_mean is not None and running_var is not None:
        _running.store(running, (running_mean, running_var))
