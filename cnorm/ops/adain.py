"""Adaptive instance norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def adain(
    content: ArrayLike,
    style: ArrayLike,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def adain(
    content: ArrayLike,
    style: ArrayLike,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array, Array, Array]: ...
def adain(
    content: ArrayLike,
    style: ArrayLike,
    eps: float = 1e-5,
    *,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array, Array, Array]:
    """Give each channel of each sample of `content` the mean and standard deviation of that of `style`.

    With means and variances over all positions of one channel of one sample, and ``std = sqrt(var + eps)``::

        y = (content - content_mean) / content_std * style_std + style_mean

    Parameters
    ----------
    content : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order. Channels may be another axis, see `axis`.
    style : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        As many samples and channels as `content`, and any number of positions, at least one. It is used in
        the dtype that `content` is computed in.
    eps : float
        At least 0. Added to both variances, inside the square root.
    axis : int
        The channel axis of both. The batch axis is 0.
    unbiased : bool
        Whether variances of n values are sums of squares over n - 1, as in the paper's code, or over n. One
        value has variance 0 either way.
    out : array, optional
        Where to write the result: of the shape and dtype of `content`, and either `content` itself or memory
        of its own.
    return_stats : bool
        Return the means, and ``rstd = 1 / std``, too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `content`; `out` if that was given. A constant channel becomes
        the mean of the style's. A channel with a non-finite value, in either array, is NaN throughout.
    content_mean, content_rstd, style_mean, style_rstd : array, shape (batch, channels)
        Only with `return_stats`. Their dtype is the one computed in: float64 for float64, else float32.
        `rstd` is 0 where ``var + eps`` is 0. All are 0 if `content` is empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `axis` is no integer, or `out` has another
        dtype than `content`.
    ValueError
        If `style` has another number of samples or channels, or no positions, `axis` is not an axis of both,
        `eps` is negative or not finite, or `out` is read-only, has another shape, or overlaps an input in
        part.

    References
    ----------
    X. Huang, S. Belongie, "Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization", 2017,
    arXiv:1703.06868.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> content = np.array([[[1, 2, 3, 6]]], np.float32)
    >>> style = np.array([[[110, 90, 100]]], np.float32)
    >>> y = cnorm.adain(content, style)
    >>> y.round(2)
    array([[[ 90.74,  95.37, 100.  , 113.89]]], dtype=float32)
    >>> y.mean().round(2), y.std(ddof=1).round(2)
    (np.float32(100.0), np.float32(10.0))
    """
    result: Array | tuple[Array, Array, Array, Array, Array] | None = _backend.fast_adain(
        content, style, eps, axis, unbiased, out, return_stats
    )
    if result is not None:
        return result

    content, dtype = _arguments.floating("content", content)
    place = _arguments.channel_axis(content, axis, first=1, name="content")
    batch, channels = content.shape[0], content.shape[place]
    style, style_place = _arguments.style_maps(style, axis, batch, channels, needed=content.size > 0)
    eps = _arguments.epsilon(eps)
    y = _arguments.output(out, content, "content", style=style)

    stats = [np.zeros((batch, channels), dtype) if return_stats else None for _ in range(4)]
    form = _layouts.channel_form(content, place, pooled=False)
    style_form = _layouts.channel_form(style, style_place, pooled=False)

    def kernel(xt: Array, yt: Array, st: Array, _: None, samples: slice, some: slice) -> None:
        tile = samples, some
        pieces = [_layouts.part(whole, tile) for whole in stats]
        lasts = form.channels_last, style_form.channels_last
        _backend.active.adain(xt, st, eps, bool(unbiased), *lasts, yt, *pieces)
        # Some of the channels of several samples are no contiguous piece, and were computed in a copy.
        for whole, piece in zip(stats, pieces, strict=True):
            if whole is not None and piece is not None:
                whole[tile] = piece.reshape(whole[tile].shape)

    if content.size:
        first = _layouts.Maps((content,), y, form)
        _layouts.run_channel_pairs(first, _layouts.Maps((style,), None, style_form), dtype, kernel)
    y = y if out is None else out
    content_mean, content_rstd, style_mean, style_rstd = stats
    if content_mean is None or content_rstd is None or style_mean is None or style_rstd is None:
        return y
    return y, content_mean, content_rstd, style_mean, style_rstd
