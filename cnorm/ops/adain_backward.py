"""Gradients of adaptive instance norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts
from cnorm._gradients import AdaINGradients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]


def adain_backward(
    dy: ArrayLike,
    content: ArrayLike,
    style: ArrayLike,
    content_mean: ArrayLike,
    content_rstd: ArrayLike,
    style_mean: ArrayLike,
    style_rstd: ArrayLike,
    *,
    axis: int = 1,
    unbiased: bool = True,
    need: Iterable[str] = ("content", "style"),
    out: Array | None = None,
) -> AdaINGradients:
    """Gradients of `adain` with respect to content and style.

    With ``xhat = (x - mean) * rstd`` of either array and ``g = dy / style_rstd``, where averages and sums are
    over the positions of one channel of one sample, of n values in the content::

        dcontent = content_rstd * (g - average(g) - xhat * sum(g * xhat) / m)
        dstyle = sum(dy) / style_n + style_xhat * sum(dy * xhat) / style_m

    where m is n - 1 for unbiased variances (of more than one value), else n; and style_m likewise.

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `content`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `content`.
    content, style : arrays of float16, bfloat16, float32 or float64
        As given to `adain`.
    content_mean, content_rstd, style_mean, style_rstd : array of any floating dtype, shape (batch, channels)
        As `adain` returned them. What the rounding of a mean left in `xhat` is removed: those of the style
        are taken from it again, and `style_mean` is here only to give all that was returned.
    axis : int
        The channel axis of both. The batch axis is 0.
    unbiased : bool
        As given to `adain`.
    need : iterable of {"content", "style"}, or one of them
        Which gradients to compute.
    out : array, optional
        Where to write the gradient of `content`: of its shape and dtype, and either `dy` itself or memory of
        its own.

    Returns
    -------
    AdaINGradients
        Named tuple ``(content, style)``, None where not needed, each of the shape, dtype and memory order of
        the argument; ``content`` is `out` if that was given. In a constant channel `xhat` is 0. A channel
        with a non-finite value gives NaN, to both gradients if it is the content's or that of `dy`.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `axis` is no integer,
        or `out` has another dtype than `content`.
    ValueError
        If `dy`, a statistic or the style has another shape, `axis` is not an axis of content and style,
        `need` has an unknown name, or `out` is read-only, has another shape, overlaps an input other than
        `dy` itself, or is given where the gradient of `content` is not needed.

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
    >>> y, *statistics = cnorm.adain(content, style, return_stats=True)
    >>> dy = np.array([[[1, 0, 0, 0]]], np.float32)
    >>> grads = cnorm.adain_backward(dy, content, style, *statistics)
    >>> grads.content.round(3)
    array([[[ 2.149, -1.819, -1.157,  0.827]]], dtype=float32)
    >>> grads.style.round(3)
    array([[[-0.13 ,  0.796,  0.333]]], dtype=float32)
    """
    result: AdaINGradients | None = _backend.fast_adain_backward(
        dy, content, style, content_mean, content_rstd, style_mean, style_rstd, axis, unbiased, need, out
    )
    if result is not None:
        return result

    content, dtype = _arguments.floating("content", content)
    dy = _arguments.incoming(dy, content, "content")
    place = _arguments.channel_axis(content, axis, first=1, name="content")
    batch, channels = shape = content.shape[0], content.shape[place]
    style, style_place = _arguments.style_maps(style, axis, batch, channels, needed=content.size > 0)
    given = {"content_mean": content_mean, "content_rstd": content_rstd}
    given |= {"style_mean": style_mean, "style_rstd": style_rstd}
    flat = [_arguments.statistic(name, value, shape, dtype) for name, value in given.items()]
    means, rstds, _, style_rstds = (statistic.reshape(shape) for statistic in flat)
    needed = _arguments.names_of(need, AdaINGradients._fields)
    dcontent = _arguments.input_gradient(out, needed, dy, content, "content", style=style, **given)
    dstyle = _layouts.empty_like(style) if "style" in needed else None
    form = _layouts.channel_form(content, place, pooled=False)
    style_form = _layouts.channel_form(style, style_place, pooled=False)

    def kernel(
        dyt: Array, xt: Array, dxt: Array | None, st: Array, dst: Array | None, samples: slice, some: slice
    ) -> None:
        mean, rstd, style_rstd = (_layouts.part(s, (samples, some)) for s in (means, rstds, style_rstds))
        lasts = form.channels_last, style_form.channels_last
        _backend.active.adain_backward(dyt, xt, st, mean, rstd, style_rstd, bool(unbiased), *lasts, dxt, dst)

    if style.size and needed:
        first = _layouts.Maps((dy, content), dcontent, form)
        _layouts.run_channel_pairs(first, _layouts.Maps((style,), dstyle, style_form), dtype, kernel)
    return AdaINGradients(dcontent if out is None else out, dstyle)
