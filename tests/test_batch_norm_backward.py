"""batch_norm_backward: training and frozen, channel axes, what is needed, PyTorch, finite differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
from backward_checks import (
    NAMES,
    assert_any_dy_layout,
    assert_differences,
    assert_dx_goes_to_out,
    assert_gradients,
    assert_parity,
    assert_reads_only,
    autograd,
)
from gradients import BOUND, worst_units
from norms import far_from_one
from peer import tensor, torch

SHAPES = [(33, 5), (2, 1), (3, 5, 33), (1, 7, 2), (1, 3, 2, 1), (9, 4, 1, 1), (2, 3, 7, 9), (2, 33, 3, 5, 7),
          (2, 2, 1, 3, 1, 5), (3, 2, 4099)]  # fmt: skip

each_mode = pytest.mark.parametrize("training", [True, False], ids=["training", "frozen"])


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-1, 1, (1, shape[1], *(1 for _ in shape[2:])))
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _weight(channels: int, dtype: Any) -> np.ndarray:
    return far_from_one(np.random.default_rng(1), channels, dtype)


def _running(channels: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return rng.standard_normal(channels).astype(dtype), rng.uniform(0.1, 9, channels).astype(dtype)


def _statistics(x: np.ndarray, training: bool, axis: int = 1, eps: float = 1e-5) -> tuple[Any, Any]:
    """What the forward function returns with its result: of x, or the running ones."""
    running = (None, None) if training else _running(x.shape[axis], x.dtype)
    _, mean, rstd = cnorm.batch_norm(x, *running, training=training, eps=eps, axis=axis, return_stats=True)
    return mean, rstd


def _exact(
    dy: np.ndarray,
    x: np.ndarray,
    statistics: Any,
    weight: Any,
    training: bool,
    axis: int = 1,
    eps: float = 1e-5,
) -> gradient_oracle.ExactGradients:
    if training:
        return gradient_oracle.batch_norm(dy, x, weight, eps, axis=axis)
    return gradient_oracle.batch_norm_frozen(dy, x, *statistics, weight, axis=axis)


@each_mode
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
def test_every_rank_axis_and_need(
    shape: tuple[int, ...], with_weight: bool, training: bool, dtype: Any
) -> None:
    first, upstream = _input(shape, dtype), _upstream(shape, dtype)
    weight = _weight(shape[1], dtype) if with_weight else None
    for axis in range(len(shape)):
        x, dy = (np.ascontiguousarray(np.moveaxis(v, 1, axis)) for v in (first, upstream))
        statistics = _statistics(x, training, axis)
        exact = _exact(dy, x, statistics, weight, training, axis)
        for named in (axis, axis - len(shape)):
            call = partial(
                cnorm.batch_norm_backward, dy, x, *statistics, weight, training=training, axis=named
            )
            grads = assert_gradients(call, exact, with_weight)
            assert grads.x.dtype == grads.weight.dtype == grads.bias.dtype == dtype


def test_training_is_the_default(dtype: Any) -> None:
    x, dy = _input((3, 5, 7), dtype), _upstream((3, 5, 7), dtype)
    statistics = _statistics(x, training=True)
    wanted = cnorm.batch_norm_backward(dy, x, *statistics, training=True)
    np.testing.assert_array_equal(cnorm.batch_norm_backward(dy, x, *statistics).x, wanted.x)
    assert (cnorm.batch_norm_backward(dy, x, *statistics, training=False).x != wanted.x).any()


def test_frozen_dx_is_dy_weight_rstd_and_nothing_else(dtype: Any) -> None:
    """x has no part in it, not even a NaN; the statistics are as given and not made to fit x."""
    x, dy, weight = _input((3, 5, 7), dtype), _upstream((3, 5, 7), dtype), _weight(5, dtype)
    x[1, 2, 3] = np.nan
    mean, rstd = np.full(5, 1e3, dtype), np.full(5, 0.25, dtype)
    grads = cnorm.batch_norm_backward(dy, x, mean, rstd, weight, training=False)
    np.testing.assert_array_equal(grads.x, dy * (weight / 4)[:, None])
    exact = (dy.astype(np.longdouble) * (x.astype(np.longdouble) - 1000) / 4).sum(axis=(0, 2))
    np.testing.assert_array_equal(np.isnan(grads.weight), [False, False, True, False, False])
    keep = [0, 1, 3, 4]
    np.testing.assert_allclose(grads.weight[keep], exact[keep].astype(dtype), rtol=1e-5)


def test_frozen_running_statistics_are_untouched(dtype: Any) -> None:
    x, dy = _input((3, 5, 7), dtype), _upstream((3, 5, 7), dtype)
    mean, var = _running(5, dtype)
    before = mean.copy(), var.copy()
    _, *statistics = cnorm.batch_norm(x, mean, var, return_stats=True)
    cnorm.batch_norm_backward(dy, x, *statistics, training=False)
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])


@each_mode
@pytest.mark.parametrize("axis", [1, 2])
def test_nothing_that_is_given_is_written_to(axis: int, training: bool, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((3, 5, 11), dtype), 1, axis).copy(), _weight(5, dtype)
    dy, (mean, rstd) = _upstream(x.shape, dtype), _statistics(x, training, axis)
    call = partial(cnorm.batch_norm_backward, dy, x, mean, rstd, weight, training=training, axis=axis)
    assert_reads_only(call, dy, x, mean, rstd, weight)


@each_mode
@pytest.mark.parametrize("axis", [1, 2])
def test_out_receives_dx(axis: int, training: bool, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((3, 5, 11), dtype), 1, axis).copy(), _weight(5, dtype)
    statistics = _statistics(x, training, axis)

    def call(dy: np.ndarray, **options: Any) -> cnorm.Gradients:
        return cnorm.batch_norm_backward(dy, x, *statistics, weight, training=training, axis=axis, **options)

    assert_dx_goes_to_out(call, _upstream(x.shape, dtype))


@each_mode
@pytest.mark.parametrize("x_layout", ["contiguous", "columns", "steps", "unaligned", "channels last view"])
def test_x_and_dy_may_lie_differently(x_layout: str, training: bool, dtype: Any) -> None:
    x, dy, weight = _input((3, 6, 5, 7), dtype), _upstream((3, 6, 5, 7), dtype), _weight(6, dtype)
    statistics = _statistics(x, training)
    placed, _ = (layouts.ANY | layouts.CHANNELS)[x_layout](x)

    def call(dy: np.ndarray) -> cnorm.Gradients:
        return cnorm.batch_norm_backward(dy, placed, *statistics, weight, training=training)

    assert_any_dy_layout(call, dy, _exact(dy, x, statistics, weight, training), channels=True)


@each_mode
@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_any_eps(eps: float, training: bool, dtype: Any) -> None:
    """The backward function knows eps from rstd alone."""
    x, dy, weight = _input((3, 5, 11), dtype), _upstream((3, 5, 11), dtype), _weight(5, dtype)
    statistics = _statistics(x, training, eps=eps)
    grads = cnorm.batch_norm_backward(dy, x, *statistics, weight, training=training)
    exact = _exact(dy, x, statistics, weight, training, eps=eps)
    assert max(worst_units(grads, exact)) <= BOUND


@pytest.mark.peers
@each_mode
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_pytorch_float64_agrees(
    shape: tuple[int, ...], with_weight: bool, with_bias: bool, training: bool
) -> None:
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight = _weight(shape[1], np.float64) if with_weight else None
    bias = np.ones(shape[1]) if with_bias else None
    batch_norm, running = torch().nn.functional.batch_norm, _running(shape[1], np.float64)

    def forward(x: Any, weight: Any, bias: Any) -> Any:
        return batch_norm(x, tensor(running[0]), tensor(running[1]), weight, bias, training, 0.1, 0.3)

    theirs = autograd(forward, dy, x, weight, bias)
    statistics = _statistics(x, training, eps=0.3)
    grads = cnorm.batch_norm_backward(dy, x, *statistics, weight, training=training, need=NAMES)
    assert_parity(grads, theirs, _exact(dy, x, statistics, weight, training, eps=0.3))


@each_mode
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 5), (2, 2, 3, 2), (2, 2, 1, 3, 2)])
def test_finite_differences(shape: tuple[int, ...], training: bool) -> None:
    """Of sum(dy * y) with cnorm's own y, in x, in weight and in bias."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight, bias = _weight(shape[1], np.float64), np.arange(1.0, shape[1] + 1)
    grads = cnorm.batch_norm_backward(dy, x, *_statistics(x, training), weight, training=training)

    def loss(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
        running = (None, None) if training else _running(shape[1], np.float64)
        return (dy * cnorm.batch_norm(x, *running, weight, bias, training)).sum()

    assert_differences(grads.x, lambda x: loss(x, weight, bias), x)
    assert_differences(grads.weight, lambda w: loss(x, w, bias), weight)
    assert_differences(grads.bias, lambda b: loss(x, weight, b), bias)


@each_mode
@pytest.mark.parametrize("shape", [(0, 5), (0, 5, 7), (3, 5, 0)])
def test_empty_batches(shape: tuple[int, ...], training: bool, dtype: Any) -> None:
    x, weight = np.empty(shape, dtype), np.ones(5, dtype)
    grads = cnorm.batch_norm_backward(x, x, np.zeros(5, dtype), np.ones(5, dtype), weight, training=training)
    assert grads.x.shape == shape
    np.testing.assert_array_equal(grads.weight, np.zeros(5, dtype), strict=True)
    np.testing.assert_array_equal(grads.bias, np.zeros(5, dtype), strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [1, -1], ids=["first", "last"])
@pytest.mark.parametrize("spatial", [2, 70, 1100])
@each_mode
def test_dbias_may_overflow_alone(training: bool, spatial: int, axis: int, dtype: Any) -> None:
    """Where the sum of dy leaves the range, that of dy xhat need not: infinity times 0 is no part of it."""
    x = np.full(spatial, 1e-3) if not training else np.resize([-1.0, 1.0], spatial)
    shape = (1, 1, spatial) if axis == 1 else (1, spatial, 1)
    x = x.astype(dtype).reshape(shape)
    dy = np.full(shape, 0.8 * float(np.finfo(dtype).max), dtype)
    zero, one = np.zeros(1, dtype), np.ones(1, dtype)
    with np.errstate(over="ignore"):
        _, dweight, dbias = cnorm.batch_norm_backward(dy, x, zero, one, one, training=training, axis=axis)
    assert dbias[0] == np.inf
    # Of two by two opposites the exact sum is 0.
    expected = 0 if training else (spatial * dy.ravel()[0].astype(np.longdouble) * x.ravel()[0]).astype(dtype)
    assert abs(dweight[0] - expected) <= 2 * np.finfo(dtype).eps * abs(expected)
