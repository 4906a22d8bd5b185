"""group_norm_backward: groups and channel axes, what is needed, PyTorch's gradients, finite differences."""

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
from peer import torch

#: Shapes with the channel axis 1, and numbers of groups.
SHAPES = [((3, 6), 2), ((2, 1, 9), 1), ((2, 6, 5), 6), ((2, 6, 5), 1), ((1, 15, 3, 7), 5),
          ((2, 12, 1, 1), 4), ((2, 12, 1, 1), 12), ((2, 32, 9, 9), 8), ((2, 6, 3, 2, 5), 2), ((1, 70, 33), 7),
          ((1, 4, 4099), 2)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Each channel has a mean and spread of its own, so that a channel in the wrong group shows."""
    rng = np.random.default_rng(seed)
    channels = (1, shape[1], *(1 for _ in shape[2:]))
    scale = 10.0 ** rng.uniform(-1, 1, channels)
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _weight(channels: int, dtype: Any) -> np.ndarray:
    return far_from_one(np.random.default_rng(1), channels, dtype)


@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
def test_every_rank_axis_and_need(shape: tuple[int, ...], groups: int, with_weight: bool, dtype: Any) -> None:
    first, upstream = _input(shape, dtype), _upstream(shape, dtype)
    weight = _weight(shape[1], dtype) if with_weight else None
    for axis in range(1, len(shape)):
        x, dy = (np.ascontiguousarray(np.moveaxis(v, 1, axis)) for v in (first, upstream))
        _, mean, rstd = cnorm.group_norm(x, groups, axis=axis, return_stats=True)
        exact = gradient_oracle.group_norm(dy, x, groups, weight, axis=axis)
        for named in (axis, axis - len(shape)):
            call = partial(cnorm.group_norm_backward, dy, x, mean, rstd, groups, weight, axis=named)
            grads = assert_gradients(call, exact, with_weight)
            assert grads.x.dtype == grads.weight.dtype == grads.bias.dtype == dtype


@pytest.mark.parametrize("axis", [1, 2])
def test_a_channel_belongs_to_the_group_of_its_neighbours(axis: int, dtype: Any) -> None:
    """Channel c is in group c div (C/G): what arrives in one channel reaches its own group's x only."""
    x = np.ascontiguousarray(np.moveaxis(_input((1, 12, 7), dtype), 1, axis))
    _, mean, rstd = cnorm.group_norm(x, 4, axis=axis, return_stats=True)
    dy = np.zeros_like(x)
    np.moveaxis(dy, axis, 1)[0, 4, 2] = 5
    grads = cnorm.group_norm_backward(dy, x, mean, rstd, 4, np.ones(12), axis=axis)
    reached = np.flatnonzero(np.moveaxis(grads.x, axis, 1).any(axis=(0, 2)))
    np.testing.assert_array_equal(reached, [3, 4, 5])
    np.testing.assert_array_equal(np.flatnonzero(grads.weight), [4])
    np.testing.assert_array_equal(np.flatnonzero(grads.bias), [4])


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 12, 13, 16, 30, 33, 64, 67, 130])
def test_every_kind_of_channel_and_group_count(channels: int, dtype: Any) -> None:
    """First and last channel axes; with channels last, kernels run along the channels."""
    for groups in {g for g in (1, 2, 3, 5, 8, 13, 32, channels) if channels % g == 0}:
        first, upstream = _input((2, channels, 37), dtype), _upstream((2, channels, 37), dtype)
        weight = _weight(channels, dtype)
        for axis in (1, -1):
            x, dy = (np.ascontiguousarray(np.moveaxis(v, 1, axis)) for v in (first, upstream))
            _, mean, rstd = cnorm.group_norm(x, groups, axis=axis, return_stats=True)
            grads = cnorm.group_norm_backward(dy, x, mean, rstd, groups, weight, axis=axis)
            exact = gradient_oracle.group_norm(dy, x, groups, weight, axis=axis)
            worst = worst_units(grads, exact)
            assert max(worst) <= BOUND, (groups, axis, worst)


@pytest.mark.parametrize("axis", [1, -1])
def test_dweight_of_one_thread_and_of_many(axis: int, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((5, 16, 4099), dtype), 1, axis))
    dy, weight = _upstream(x.shape, dtype), _weight(16, dtype)
    _, mean, rstd = cnorm.group_norm(x, 4, axis=axis, return_stats=True)
    results = []
    for threads in (1, 2, 3, 7):
        with cnorm.num_threads(threads):
            results.append(cnorm.group_norm_backward(dy, x, mean, rstd, 4, weight, axis=axis))
    for grads in results[1:]:
        for ours, one in zip(grads, results[0], strict=True):
            np.testing.assert_array_equal(ours, one)


@pytest.mark.parametrize("axis", [1, 2])
def test_nothing_that_is_given_is_written_to(axis: int, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((2, 6, 11), dtype), 1, axis).copy(), _weight(6, dtype)
    dy = _upstream(x.shape, dtype)
    _, mean, rstd = cnorm.group_norm(x, 3, axis=axis, return_stats=True)
    call = partial(cnorm.group_norm_backward, dy, x, mean, rstd, 3, weight, axis=axis)
    assert_reads_only(call, dy, x, mean, rstd, weight)


@pytest.mark.parametrize("axis", [1, 2])
def test_out_receives_dx(axis: int, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((2, 6, 11), dtype), 1, axis).copy(), _weight(6, dtype)
    _, mean, rstd = cnorm.group_norm(x, 3, axis=axis, return_stats=True)

    def call(dy: np.ndarray, **options: Any) -> cnorm.Gradients:
        return cnorm.group_norm_backward(dy, x, mean, rstd, 3, weight, axis=axis, **options)

    assert_dx_goes_to_out(call, _upstream(x.shape, dtype))


@pytest.mark.parametrize("x_layout", ["contiguous", "columns", "steps", "unaligned", "channels last view"])
def test_x_and_dy_may_lie_differently(x_layout: str, dtype: Any) -> None:
    x, dy, weight = _input((3, 6, 5, 7), dtype), _upstream((3, 6, 5, 7), dtype), _weight(6, dtype)
    _, mean, rstd = cnorm.group_norm(x, 3, return_stats=True)
    placed, _ = (layouts.ANY | layouts.CHANNELS)[x_layout](x)
    exact = gradient_oracle.group_norm(dy, x, 3, weight)
    assert_any_dy_layout(
        lambda dy: cnorm.group_norm_backward(dy, placed, mean, rstd, 3, weight), dy, exact, channels=True
    )


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_any_eps(eps: float, dtype: Any) -> None:
    """The backward function knows eps from rstd alone."""
    x, dy, weight = _input((2, 6, 11), dtype), _upstream((2, 6, 11), dtype), _weight(6, dtype)
    _, mean, rstd = cnorm.group_norm(x, 3, eps=eps, return_stats=True)
    grads = cnorm.group_norm_backward(dy, x, mean, rstd, 3, weight)
    assert max(worst_units(grads, gradient_oracle.group_norm(dy, x, 3, weight, eps))) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize(("with_weight", "with_bias"), [(True, True), (True, False), (False, False)])
def test_pytorch_float64_agrees(
    shape: tuple[int, ...], groups: int, with_weight: bool, with_bias: bool
) -> None:
    """PyTorch 2.13 raises a RuntimeError in the backward pass of a bias without a weight."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight = _weight(shape[1], np.float64) if with_weight else None
    bias = np.ones(shape[1]) if with_bias else None
    group_norm = torch().nn.functional.group_norm
    theirs = autograd(lambda x, w, b: group_norm(x, groups, w, b, 0.3), dy, x, weight, bias)
    _, mean, rstd = cnorm.group_norm(x, groups, eps=0.3, return_stats=True)
    grads = cnorm.group_norm_backward(dy, x, mean, rstd, groups, weight, need=NAMES)
    assert_parity(grads, theirs, gradient_oracle.group_norm(dy, x, groups, weight, 0.3))


@pytest.mark.parametrize(("shape", "groups"), [((3, 6), 2), ((2, 4, 5), 4), ((2, 6, 1, 2, 2), 3)])
def test_finite_differences(shape: tuple[int, ...], groups: int) -> None:
    """Of sum(dy * y) with cnorm's own y, in x, in weight and in bias."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight, bias = _weight(shape[1], np.float64), np.arange(1.0, shape[1] + 1)
    _, mean, rstd = cnorm.group_norm(x, groups, return_stats=True)
    grads = cnorm.group_norm_backward(dy, x, mean, rstd, groups, weight)

    def loss(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
        return (dy * cnorm.group_norm(x, groups, weight, bias)).sum()

    assert_differences(grads.x, lambda x: loss(x, weight, bias), x)
    assert_differences(grads.weight, lambda w: loss(x, w, bias), weight)
    assert_differences(grads.bias, lambda b: loss(x, weight, b), bias)


def test_empty_batches(dtype: Any) -> None:
    x, weight = np.empty((0, 6, 5), dtype), np.ones(6, dtype)
    _, mean, rstd = cnorm.group_norm(x, 3, return_stats=True)
    grads = cnorm.group_norm_backward(x, x, mean, rstd, 3, weight)
    assert grads.x.shape == (0, 6, 5)
    np.testing.assert_array_equal(grads.weight, np.zeros(6, dtype), strict=True)
    np.testing.assert_array_equal(grads.bias, np.zeros(6, dtype), strict=True)
