"""The parts of every backward function, in float64, at any magnitude.

With the standardised values ``xhat`` of a group and ``g = dy * weight``::

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat))

and the parameters' gradients are sums of ``dy * xhat`` and of ``dy``. Groups are the rows of 2-D arrays. As
in moments.py, powers of two are kept apart, so that nothing but a result can leave the range.
"""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array, Parts, parts, row_sum
from cnorm.fallback.moments import deviation, row_mean, scaled


def centred(rows: Array) -> Array:
    """`rows` less their mean, and less the mean of what the rounding of that left: equal values become 0."""
    first = rows - row_mean(rows)
    return first - row_mean(first)


def standardized(x: Array, mean: Array | None, rstd: Array) -> tuple[Parts, Parts]:
    """Return ``xhat`` of rows (rows, cols) and rstd (rows, 1), from saved statistics (rows,).

    Centring takes away what the rounding of the saved mean left. Without a mean nothing is subtracted. A rstd
    that its dtype cannot hold with full precision is taken from `x` instead, whose spread is far from any eps
    then.
    """
    d, k = scaled(x, 0.0)
    if mean is not None:
        d = centred(d - np.ldexp(mean.astype(np.float64)[:, np.newaxis], -k))
    limits, rstd = np.finfo(rstd.dtype), rstd[:, np.newaxis]
    lost = np.isinf(rstd) | ((rstd != 0) & (np.abs(rstd) < limits.smallest_normal))
    given, own = parts(rstd), parts(1 / deviation(row_mean(d * d), 0.0, k)).shifted(-k)
    factor = Parts(*(np.where(lost, *either) for either in zip(own, given, strict=True)))
    return parts(d).times(factor).shifted(k), factor


def weighted(dy: Array, weight: Array | None) -> Parts:
    """``dy * weight``, which broadcast."""
    return parts(dy) if weight is None else parts(dy).times(parts(weight))


def input_gradient(
    dy: Array, weight: Array | None, xhat: Parts, rstd: Parts, *, about_mean: bool = True
) -> Array:
    """``dx`` of rows; `weight` broadcasts against them. Norms that subtract no mean have no ``mean(g)``."""
    g, k = weighted(dy, weight).by_row()
    if about_mean:
        g = centred(g)
    values = np.ldexp(*xhat)
    return np.ldexp((g - values * row_mean(g * values)) * rstd.fraction, k + rstd.exponent)


def parameter_gradients(dy: Array, xhat: Parts, dweight: Array | None, dbias: Array | None) -> None:
    """Write the sums of ``dy * xhat`` and of `dy`, both (parameters, terms)."""
    for target, terms in ((dweight, parts(dy).times(xhat)), (dbias, parts(dy))):
        if target is not None:
            values, k = terms.by_row()
            target[:] = np.ldexp(row_sum(np.ascontiguousarray(values)), k)[:, 0]
