"""Bounds for the statistics that come with a result.

mean: one rounding of the mean, and the error of the sum, which counts in spreads: 2u(|mean| + std); where the
means of blocks are subnormal, each of them and the merged one has half a spacing of error: two spacings.

rstd: the relative error of y where |xhat| is large is that of rstd and some roundings, and 6u are promised:
6u. Where 1/std is beyond the type's largest number, infinity is its right rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle

Array = NDArray[Any]


def assert_mean(mean: Array, exact: oracle.Exact) -> None:
    u = oracle.unit(mean.dtype)
    spacings = 2 * float(np.finfo(mean.dtype).smallest_subnormal)
    allowed = 2 * u * (np.abs(exact.mean) + np.sqrt(exact.var)) + spacings
    assert (np.abs(mean.astype(oracle.Long) - exact.mean) <= allowed).all()


def assert_rstd(rstd: Array, exact: oracle.Exact) -> None:
    u = oracle.unit(rstd.dtype)
    wanted = oracle.round_to(exact.rstd, rstd.dtype)
    overflows = np.isinf(wanted)
    np.testing.assert_array_equal(np.isposinf(rstd), overflows)
    allowed = 6 * u * exact.rstd + float(np.finfo(rstd.dtype).smallest_subnormal)
    error = np.abs(rstd.astype(oracle.Long) - exact.rstd)
    assert (error <= allowed)[~overflows].all()


def assert_running(
    new: Array, old: Array, batch: Array, momentum: float, spread: Array | float = 0.0
) -> None:
    """``new = (1 - momentum) old + momentum batch``: three roundings, and the error of the batch's statistic.

    The mean's error counts in spreads of the data, as in :func:`assert_mean`; the variance's in units."""
    u = oracle.unit(new.dtype)
    exact = oracle.running(old, batch, momentum)
    allowed = u * (4 * np.abs((1 - momentum) * old) + momentum * (6 * np.abs(batch) + 4 * spread))
    assert (np.abs(new.astype(oracle.Long) - exact) <= allowed).all()
