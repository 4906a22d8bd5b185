"""whiten's mean and covariance, read from float64 running statistics that the batch's replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from test_whiten import BOUND, SHAPES, mixed
from whitening_oracle import by_group

MEAN_BOUND = 2.0


def _assert_statistics(x: np.ndarray, axis: int, groups: int, bound: float, mean_bound: float) -> None:
    channels, dtype = x.shape[axis], x.dtype
    d = channels // groups
    mean, covariance = np.zeros(channels), np.zeros((groups, d, d))
    cnorm.whiten(x, mean, covariance, momentum=1.0, groups=groups, axis=axis)
    wide = by_group(x, groups, axis).astype(np.longdouble)
    exact_mean = wide.mean(axis=2)
    centred = wide - exact_mean[:, :, np.newaxis]
    exact = centred @ centred.transpose(0, 2, 1) / centred.shape[2]
    spread = np.sqrt(np.diagonal(exact, axis1=1, axis2=2))
    units = np.abs(covariance - exact) / (spread[:, :, np.newaxis] * spread[:, np.newaxis, :])
    assert units.max() <= bound * oracle.unit(dtype)
    error = np.abs(mean - exact_mean.reshape(-1))
    assert (error <= mean_bound * oracle.unit(dtype) * spread.reshape(-1) + 2.0**-53 * np.abs(mean)).all()


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize(("shape", "axis", "groups"), [*SHAPES, ((6000, 5), 1, 1), ((9, 40, 300), 1, 2)])
def test_mean_and_covariance(
    shape: tuple[int, ...], axis: int, groups: int, offset: float, dtype: Any
) -> None:
    """Within 6 units of sqrt(c_ii c_jj), the mean within 2 of the spread."""
    _assert_statistics(mixed(shape, axis, dtype, offset), axis, groups, BOUND, MEAN_BOUND)


#: Columns far from the mean of those before them; the block of each is centred on its way.
UNSTEADY = {
    "a drift": lambda x, t: x + 1e4 * t / 3000,
    "steps": lambda x, t: x + 1e4 * (t // 256),
    "a jump": lambda x, t: np.where(t < 256, 0, 1e4) + x,
    "a late outlier": lambda x, t: np.where(t == 2990, 1e6, 0) + x,
    "an early outlier": lambda x, t: np.where(t == 0, 1e6, 0) + x,
    "constant first": lambda x, t: np.where(t < 256, 7, np.where(t > 2000, x, 0)),
    "two values": lambda x, _: 1000 + np.sign(x) / 10,
}


def test_a_group_far_from_its_mean_leaves_the_bits_of_others(dtype: Any) -> None:
    """Narrow groups are multiplied together; each channel is centred by itself."""
    x = np.random.default_rng(0).standard_normal((3000, 16)).astype(dtype)
    wanted = cnorm.whiten(x, groups=4)
    for number in (np.nan, 1e4):
        x[300:, 1] = number
        np.testing.assert_array_equal(cnorm.whiten(x, groups=4)[:, 4:], wanted[:, 4:])


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("channels", [3, 40])
@pytest.mark.parametrize("kind", UNSTEADY)
def test_covariance_of_unsteady_data(kind: str, channels: int, dtype: Any) -> None:
    """Within 9 units, the mean 3, since equal values round alike. The fallback has BLAS's products."""
    x = np.random.default_rng(0).standard_normal((3000, channels))
    _assert_statistics(UNSTEADY[kind](x, np.arange(3000)[:, np.newaxis]).astype(dtype), 1, 1, 9, 3)
