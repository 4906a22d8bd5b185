"""SPADE: a norm, and then a scale and a shift for each element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts, _modulation, _running
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.group_norm import group_norm

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]
Pair = tuple[Array, Array]


@overload
def spade(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    eps: float = 1e-5,
    *,
    norm: str = "batch",
    gamma_offset: float = 1.0,
    axis: int = 1,
    num_groups: int | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def spade(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    eps: float = 1e-5,
    *,
    norm: str = "batch",
    gamma_offset: float = 1.0,
    axis: int = 1,
    num_groups: int | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def spade(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    eps: float = 1e-5,
    *,
    norm: str = "batch",
    gamma_offset: float = 1.0,
    axis: int = 1,
    num_groups: int | None = None,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Spatially-adaptive normalization: a norm without parameters, then a scale and a shift for each element.

    With the mean and biased variance of a group of elements::

        y = (x - mean) / sqrt(var + eps) * (gamma_offset + gamma) + beta

    where `gamma` and `beta` come from elsewhere: in the paper from a small convolutional network that looks
    at a segmentation map. That network is the caller's. The normalised array is never stored.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order. Channels may be another axis, see `axis`.
    gamma, beta : array of any floating dtype, of a shape that broadcasts to that of `x`
        One value for each element, or fewer: leading axes may be missing, others of size 1. So (N, C, H, W),
        (1, C, H, W), (N, 1, H, W), (N, C, 1, 1) and (C, 1, 1) will do.
    eps : float
        At least 0. Added to the variance, inside the square root.
    norm : {"batch", "instance", "layer", "group"}
        Whose mean and variance: of a channel over batch and positions, of a channel of a sample, of a whole
        sample, or of `num_groups` groups of neighbouring channels of a sample.
    gamma_offset : float
        Added to `gamma` in the dtype computed in; 0 where `gamma` itself is the scale.
    axis : int
        The channel axis. The batch axis is the first of the others.
    num_groups : int, optional
        For ``norm="group"``: a divisor of the number of channels.
    running_mean, running_var : array of any floating dtype, shape (channels,), optional
        For ``norm="batch"``, as in `batch_norm`: both or neither, updated in place in training, and what `x`
        is normalised by otherwise.
    training : bool
        For ``norm="batch"``: whether to normalise by the batch's own statistics. Other norms always do.
    momentum : float
        Weight of the new value in the running statistics: 0 leaves them, 1 replaces them.
    unbiased : bool
        Whether the running variance takes the variance times ``n / (n - 1)``.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``mean`` and ``rstd = 1 / sqrt(var + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A constant group gives exactly
        `beta`, a group with a non-finite value NaN throughout.
    mean, rstd : array
        Only with `return_stats`: of shape (channels,) for ``norm="batch"``, (batch, channels) for
        ``"instance"``, (batch, 1, ...) for ``"layer"`` and (batch, num_groups) for ``"group"``. Their dtype
        is the one computed in: float64 for float64, else float32.

    Raises
    ------
    TypeError
        If a dtype is not floating, `norm` is no string, something is not an array or not a number, or `out`
        has another dtype than `x`.
    ValueError
        If `gamma` or `beta` does not broadcast to the shape of `x`, `norm` is another word, `num_groups` does
        not divide the channels or is given for another norm, a running statistic has another shape, is
        missing, cannot be updated, or is given for another norm; if channels have one value in training,
        `axis` is not an axis of `x`, `eps` is negative or not finite, or `out` is read-only, has another
        shape, or overlaps an input in part.

    References
    ----------
    T. Park, M.-Y. Liu, T.-C. Wang, J.-Y. Zhu, "Semantic Image Synthesis with Spatially-Adaptive
    Normalization", 2019, arXiv:1903.07291.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2], [3, 4]]], np.float32)
    >>> gamma = np.array([[0, 1]], np.float32)
    >>> beta = np.array([[0], [10]], np.float32)
    >>> cnorm.spade(x, gamma, beta, norm="instance").round(3)
    array([[[-1.,  2.],
            [ 9., 12.]]], dtype=float32)
    """
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_spade(
        x,
        gamma,
        beta,
        eps,
        norm,
        gamma_offset,
        axis,
        num_groups,
        running_mean,
        running_var,
        training,
        momentum,
        unbiased,
        out,
        return_stats,
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    pooled = _arguments.choice("norm", norm, _modulation.NORMS) == "batch"
    axis = _arguments.channel_axis(x, axis, first=0 if pooled else 1)
    channels = x.shape[axis]
    groups = _modulation.num_groups(norm, num_groups, channels)
    eps = _arguments.epsilon(eps)
    offset = _arguments.number("gamma_offset", gamma_offset)
    momentum = _arguments.number("momentum", momentum)
    scale, shift = _modulation.modulation("gamma", gamma, x), _modulation.modulation("beta", beta, x)
    given = {"running_mean": running_mean, "running_var": running_var}
    _check_no_running(norm, given)
    running = _arguments.running_statistics(
        **given,
        channels=channels,
        needed=pooled and not training,
        updated=pooled and bool(training),
        x=x,
        gamma=gamma,
        beta=beta,
    )
    if pooled and training:
        _arguments.several_values(math.prod(x.shape[:axis] + x.shape[axis + 1 :]), "channel")
    y = _arguments.output(out, x, gamma=gamma, beta=beta, **given)

    shape = _modulation.statistics_shape(x, axis, norm, groups)
    mean, rstd = (np.zeros(shape, dtype) if return_stats else None for _ in range(2))
    by_channel = all(_modulation.per_channel(array, x, axis, norm) for array in (scale, shift))
    if running is not None and not training:
        known = _running.compact(running, dtype)
        if x.size:
            _modulate_known(x, y, axis, (scale, shift), offset, known, eps)
        if mean is not None and rstd is not None:
            mean[:], rstd[:] = known[0], _running.rstd(known[1], eps)
    elif x.size and by_channel:
        weight, bias = _modulation.weights(scale, offset, dtype), _layouts.compact(shift, dtype)
        if pooled:
            update = running_mean, running_var, weight, bias, True, momentum, eps
            saved = batch_norm(x, *update, axis=axis, unbiased=unbiased, out=y, return_stats=True)
        else:
            saved = _scale_channels(x, y, axis, weight, bias, groups, eps)
        if mean is not None and rstd is not None:
            mean[:], rstd[:] = (values.reshape(shape) for values in saved[1:])
    elif x.size:
        updated = running if momentum else None
        modulation = scale, shift
        statistics = mean, rstd, updated, momentum, bool(unbiased)
        _modulate(x, y, axis, modulation, offset, groups, eps, *statistics, dtype)
    y = y if out is None else out
    return y if mean is None or rstd is None else (y, mean, rstd)


def _check_no_running(norm: str, given: dict[str, ArrayLike | None]) -> None:
    for name, value in given.items():
        if norm != "batch" and value is not None:
            raise ValueError(f"{name}: expected None for norm={norm!r}, got {type(value).__name__}")


def _scale_channels(
    x: Array, y: Array, axis: int, weight: Array, bias: Array, groups: int, eps: float
) -> tuple[Array, Array, Array]:
    """Group norm with a weight and a bias for each channel, or each channel of each sample."""
    batch, channels = x.shape[0], x.shape[axis]
    if weight.size == bias.size == channels:
        return group_norm(x, groups, weight, bias, eps, axis=axis, out=y, return_stats=True)
    weight, bias = (np.broadcast_to(v.reshape(-1, channels), (batch, channels)) for v in (weight, bias))
    if axis == 1 and x.flags.c_contiguous and y.flags.c_contiguous:
        # Samples side by side are one sample with more channels.
        shape = (1, batch * channels, *x.shape[2:])
        x, y = x.reshape(shape), y.reshape(shape)
        return group_norm(
            x, batch * groups, weight.reshape(-1), bias.reshape(-1), eps, out=y, return_stats=True
        )
    saved = [
        group_norm(x[n : n + 1], groups, w, b, eps, axis=axis, out=y[n : n + 1], return_stats=True)[1:]
        for n, (w, b) in enumerate(zip(weight, bias, strict=True))
    ]
    mean, rstd = (np.concatenate(values) for values in zip(*saved, strict=True))
    return y, mean, rstd


def _modulate(
    x: Array,
    y: Array,
    axis: int,
    modulation: tuple[Array, Array],
    offset: float,
    groups: int,
    eps: float,
    mean: Array | None,
    rstd: Array | None,
    running: Pair | None,
    momentum: float,
    unbiased: bool,
    dtype: np.dtype[Any],
) -> None:
    """By the statistics of `x`; without groups they are those of channels."""
    pooled = groups == 0
    form = _layouts.channel_form(x, axis, pooled)
    per_group = 1 if pooled else x.shape[axis] // groups
    arrays = _modulation.Modulations(modulation, x, form, dtype)
    means, rstds = (v if v is None or pooled else v.reshape(x.shape[0], groups) for v in (mean, rstd))
    running_mean, running_var = (None, None) if running is None else _running.compact(running, dtype)

    def kernel(xt: Array, *rest: Any) -> None:
        *tiles, yt, samples, some = rest
        part = slice(some.start // per_group, some.stop // per_group)
        scale, shift = arrays.parts(tuple(tiles), samples, some)
        _backend.active.spade(
            xt,
            scale,
            shift,
            offset,
            0 if pooled else part.stop - part.start,
            eps,
            form.channels_last,
            yt,
            _layouts.part(means, part if pooled else (samples, part)),
            _layouts.part(rstds, part if pooled else (samples, part)),
            _layouts.part(running_mean, some),
            _layouts.part(running_var, some),
            momentum,
            unbiased,
        )

    together: Literal["channels", "samples"] = "channels" if pooled else "samples"
    _layouts.run_channels((x, *arrays.whole), y, form, dtype, kernel, together, per_group)
    if running is not None and running_mean is not None and running_var is not None:
        _running.store(running, (running_mean, running_var))


def _modulate_known(
    x: Array,
    y: Array,
    axis: int,
    modulation: tuple[Array, Array],
    offset: float,
    known: Pair,
    eps: float,
) -> None:
    """By statistics that are known: every element stands alone."""
    mean, var = known
    form = _layouts.channel_form(x, axis, pooled=True)
    arrays = _modulation.Modulations(modulation, x, form, mean.dtype)

    def kernel(xt: Array, *rest: Any) -> None:
        *tiles, yt, samples, some = rest
        scale, shift = arrays.parts(tuple(tiles), samples, some)
        _backend.active.spade_inference(
            xt, mean[some], var[some], scale, shift, offset, eps, form.channels_last, yt
        )

    _layouts.run_channels((x, *arrays.whole), y, form, mean.dtype, kernel, "elements")
