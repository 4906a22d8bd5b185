"""Gradients of what is summed in one step: rows and images of at most eight vectors, the rest of longer ones.

They have ways of their own: several folded side by side, small images of several channels written together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
from gradients import BACKWARDS, BOUND, Backward, upstream, worst_units
from norms import far_from_one

#: Whole vectors of 16 and one element more or less, up to two steps, and some between.
LENGTHS = (*(16 * n + more for n in range(5, 17) for more in (-1, 0, 1)), 72, 90, 101, 122, 196)

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)


def _rows(rows: int, length: int, dtype: Any) -> np.ndarray:
    return (np.random.default_rng(length).standard_normal((rows, length)) * 3 - 7).astype(dtype)


@each_backward
def test_every_number_of_vectors(backward: Backward, dtype: Any) -> None:
    for length in LENGTHS:
        x = _rows(15, length, dtype)
        for case in (whole := backward.case(x, upstream(x), 1e-5), whole.without_weight()):
            worst = worst_units(backward.of(case), backward.exact(case))
            assert max(worst) <= BOUND, (length, worst)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_row_is_the_same_among_any_others(name: str, dtype: Any) -> None:
    """Alone, at each place among the four that are taken together, and one of too few for four."""
    for length in LENGTHS:
        x = _rows(11, length, dtype)
        dy, weight = upstream(x), far_from_one(np.random.default_rng(1), length, dtype)
        if name == "layer_norm":
            statistics = cnorm.layer_norm(x, length, return_stats=True)[1:]
        else:
            statistics = cnorm.rms_norm(x, length, return_stats=True)[1:]
        call = getattr(cnorm, name + "_backward")
        whole = call(dy, x, *statistics, weight).x
        for first in range(11):
            part = slice(first, first + 6)
            some = call(dy[part], x[part], *(s[part] for s in statistics), weight).x
            np.testing.assert_array_equal(some, whole[part], err_msg=str(length))


# With 256 channels and a multiple of four elements images are whole pages large.
@pytest.mark.parametrize("channels", [13, 256])
@pytest.mark.parametrize("spatial", [1, 3, 9, 16, 49, 64, 81, 100, 128, 144, 196, 256, 289])
def test_batches_of_small_images(spatial: int, channels: int, dtype: Any) -> None:
    rng = np.random.default_rng(spatial)
    shape = (6, channels, spatial)
    x = (rng.standard_normal(shape) * 3 - 7).astype(dtype)
    dy, weight = upstream(x), far_from_one(rng, channels, dtype)
    _, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)
    whole = cnorm.batch_norm_backward(dy, x, mean, rstd, weight)
    in_place = dy.copy()
    cnorm.batch_norm_backward(in_place, x, mean, rstd, weight, out=in_place)
    np.testing.assert_array_equal(in_place, whole.x)
    with cnorm.num_threads(3):
        for ours, wanted in zip(cnorm.batch_norm_backward(dy, x, mean, rstd, weight), whole, strict=True):
            np.testing.assert_array_equal(ours, wanted)
    some = slice(5, 12)
    few = cnorm.batch_norm_backward(dy[:, some], x[:, some], mean[some], rstd[some], weight[some])
    np.testing.assert_array_equal(few.x, whole.x[:, some])
    exact = gradient_oracle.batch_norm(dy[:, some], x[:, some], weight[some])
    assert max(worst_units(few, exact)) <= BOUND


def test_small_images_with_a_channel_that_takes_the_careful_way(dtype: Any) -> None:
    """Among channels that are written together one leaves the range, and one has a NaN."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 24, 7, 7)).astype(dtype)
    dy = upstream(x)
    plain = cnorm.batch_norm_backward(dy, x, *cnorm.batch_norm(x, training=True, return_stats=True)[1:])
    x[:, 10] *= 1e30 if dtype == np.float32 else 1e250
    x[1, 11, 3, 3] = np.nan
    _, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)
    ours = cnorm.batch_norm_backward(dy, x, mean, rstd)
    in_place = dy.copy()
    cnorm.batch_norm_backward(in_place, x, mean, rstd, out=in_place)
    np.testing.assert_array_equal(in_place, ours.x)
    others = [c for c in range(24) if c not in (10, 11)]
    np.testing.assert_array_equal(ours.x[:, others], plain.x[:, others])
    assert np.isnan(ours.x[:, 11]).all()
    exact = gradient_oracle.batch_norm(dy[:, [10]], x[:, [10]])
    assert gradient_oracle.units(ours.x[:, [10]], exact.x) <= BOUND
