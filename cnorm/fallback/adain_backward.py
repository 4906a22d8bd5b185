"""Gradients of adaptive instance norm in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, Parts
from cnorm.fallback.adain import freedom, maps_of, to_maps
from cnorm.fallback.gradients import input_gradient, parameter_gradients, standardized


def _deviations(rstd: Parts) -> Parts:
    """``1 / rstd``, or 0 where that is 0: constant values, and eps = 0."""
    return Parts(np.where(rstd.fraction == 0, 0.0, 1 / rstd.fraction), -rstd.exponent)


@np.errstate(all="ignore")
def adain_backward(
    dy: Array,
    content: Array,
    style: Array,
    content_mean: Array,
    content_rstd: Array,
    style_rstd: Array,
    unbiased: bool,
    content_last: bool,
    style_last: bool,
    dcontent: Array | None,
    dstyle: Array | None,
) -> None:
    """Instance norm's gradient by row of the content, with the style's standard deviation as weight.

    The gradient of the style is normalised style, times sum(dy * xhat), plus the mean of dy. `dcontent` may
    replace `dy`, and `dstyle` the style.
    """
    rows, style_rows = maps_of(content, content_last), maps_of(style, style_last)
    dy_rows = maps_of(dy, content_last)
    n, style_n = rows.shape[1], style_rows.shape[1]
    # As if variances were biased ones: rstd is larger then, and both cancel in xhat.
    root, style_root = np.sqrt(freedom(n, unbiased) if n else 1.0), np.sqrt(freedom(style_n, unbiased))
    own = (content_rstd / root).astype(content_rstd.dtype)
    xhat, rstd = standardized(rows, content_mean, own)
    hat, own_rstd = standardized(style_rows, np.zeros(len(rows)), style_rstd)
    smallest = np.finfo(style_rstd.dtype).smallest_normal
    lost = np.isinf(style_rstd) | ((style_rstd > 0) & (style_rstd < smallest))
    share = np.where(lost, style_root, 1.0)[:, np.newaxis]  # what was taken from the style is a biased one
    to_hat, to_mean = np.zeros(len(rows)), np.zeros(len(rows))
    parameter_gradients(dy_rows, xhat, to_hat, to_mean)
    gradients = None
    if dcontent is not None and n:
        std = _deviations(own_rstd)  # its power of two goes through to the result
        gradients = input_gradient(dy_rows, std.fraction / share * root, xhat, rstd.shifted(std.exponent))
    if dstyle is not None:
        slope = (to_hat * root / (style_n * style_root**2))[:, np.newaxis] * share
        to_maps(dstyle, np.ldexp(*hat) * slope + (to_mean / style_n)[:, np.newaxis], style_last)
    if dcontent is not None and gradients is not None:
        to_maps(dcontent, gradients, content_last)
