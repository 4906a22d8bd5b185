"""Batch norm's gradients of images whose runs are blocks of their own, 32 x 32 and more.

In training, neighbouring channels are summed and written together, image by image; with constant statistics
every image is taken as it lies in memory. Neither may be seen in the results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
from gradients import BOUND, upstream, worst_units
from norms import far_from_one

Array = np.ndarray

# Eight channels together, five, one; three, of two blocks an image; more images than blocks of samples.
SHAPES = [(5, 21, 32, 32), (3, 13, 57, 56), (2, 3, 129, 128), (2, 5, 64, 65), (70, 3, 32, 33)]

pytestmark = pytest.mark.usefixtures("native")  # NumPy's sums are in an order of their own

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_training = pytest.mark.parametrize("training", [True, False], ids=["training", "frozen"])


def _batch(shape: tuple[int, ...], dtype: Any, training: bool) -> tuple[Array, ...]:
    """dy, x, mean, rstd and weight; without training the statistics are not those of x."""
    rng = np.random.default_rng(shape[-1])
    x = (rng.standard_normal(shape) * 3 - 7).astype(dtype)
    _, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)
    if not training:
        mean, rstd = mean * dtype.type(0.75), rstd * dtype.type(1.25)
    return upstream(x), x, mean, rstd, far_from_one(rng, shape[1], dtype)


def _exact(batch: tuple[Array, ...], training: bool) -> gradient_oracle.ExactGradients:
    dy, x, mean, rstd, weight = batch
    if training:
        return gradient_oracle.batch_norm(dy, x, weight)
    return gradient_oracle.batch_norm_frozen(dy, x, mean, rstd, weight)


@each_training
@each_shape
def test_they_are_exact_alone_and_among_others(shape: tuple[int, ...], training: bool, dtype: Any) -> None:
    batch = _batch(shape, dtype, training)
    whole = cnorm.batch_norm_backward(*batch, training=training)
    assert max(worst_units(whole, _exact(batch, training))) <= BOUND
    for first in range(min(3, shape[1])):
        some = slice(first, first + shape[1] // 2)
        dy, x, *parameters = batch
        own = (dy[:, some], x[:, some], *(p[some] for p in parameters))
        few = cnorm.batch_norm_backward(*own, training=training)
        np.testing.assert_array_equal(few.x, whole.x[:, some])
        np.testing.assert_array_equal(few.weight, whole.weight[some])
        np.testing.assert_array_equal(few.bias, whole.bias[some])


@each_training
@each_shape
def test_threads_and_places_do_not_matter(shape: tuple[int, ...], training: bool, dtype: Any) -> None:
    """On three threads; dx where dy was; without dx; dx alone."""
    dy, *rest = _batch(shape, dtype, training)
    whole = cnorm.batch_norm_backward(dy, *rest, training=training)
    in_place = dy.copy()
    with cnorm.num_threads(3):
        for kept in (
            cnorm.batch_norm_backward(dy, *rest, training=training),
            cnorm.batch_norm_backward(in_place, *rest, training=training, out=in_place),
        ):
            for ours, wanted in zip(kept, whole, strict=True):
                np.testing.assert_array_equal(ours, wanted)
    only = cnorm.batch_norm_backward(dy, *rest, training=training, need=("weight", "bias"))
    np.testing.assert_array_equal(only.weight, whole.weight)
    np.testing.assert_array_equal(only.bias, whole.bias)
    alone = cnorm.batch_norm_backward(dy, *rest, training=training, need=("x",))
    np.testing.assert_array_equal(alone.x, whole.x)


@each_training
def test_a_channel_that_takes_the_careful_way(training: bool, dtype: Any) -> None:
    """Beside channels taken with it one leaves the range, and one has a NaN."""
    shape, out_of_range, with_nan = (3, 11, 33, 32), 4, 5
    others = [c for c in range(shape[1]) if c not in (out_of_range, with_nan)]
    dy, x, mean, rstd, weight = _batch(shape, dtype, training)
    plain = cnorm.batch_norm_backward(dy, x, mean, rstd, weight, training=training)
    large = dtype.type(1e30 if dtype == np.float32 else 1e250)
    x[:, out_of_range] *= large
    dy[:, out_of_range] *= large
    x[1, with_nan, 3, 3] = dy[1, with_nan, 3, 3] = np.nan
    if training:
        _, mean, rstd = cnorm.batch_norm(x, training=True, return_stats=True)
    else:
        mean[out_of_range] *= large
        rstd[out_of_range] /= large
    ours = cnorm.batch_norm_backward(dy, x, mean, rstd, weight, training=training)
    for changed, before in zip(ours, plain, strict=True):
        axis = 1 if changed.ndim > 1 else 0
        np.testing.assert_array_equal(changed.take(others, axis), before.take(others, axis))
    assert np.isnan([ours.weight[with_nan], ours.bias[with_nan]]).all()
    assert np.isnan(ours.x[:, with_nan]).sum() == (ours.x[:, with_nan].size if training else 1)
    part = [out_of_range]
    batch = (dy[:, part], x[:, part], mean[part], rstd[part], weight[part])
    few = cnorm.Gradients(ours.x[:, part], ours.weight[part], ours.bias[part])
    assert max(worst_units(few, _exact(batch, training))) <= BOUND
