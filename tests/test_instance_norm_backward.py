"""instance_norm_backward: channel axes, what is needed, PyTorch's gradients and finite differences."""

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

SHAPES = [(3, 5, 33), (1, 1, 2), (2, 5, 1, 1), (2, 3, 7, 9), (2, 1, 65, 1), (1, 33, 3, 5, 7), (4, 2, 4099)]


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    per_instance = (shape[0], shape[1], *(1 for _ in shape[2:]))
    scale = 10.0 ** rng.uniform(-1, 1, per_instance)
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _weight(channels: int, dtype: Any) -> np.ndarray:
    return far_from_one(np.random.default_rng(1), channels, dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
def test_every_rank_axis_and_need(shape: tuple[int, ...], with_weight: bool, dtype: Any) -> None:
    first, upstream = _input(shape, dtype), _upstream(shape, dtype)
    weight = _weight(shape[1], dtype) if with_weight else None
    for axis in range(1, len(shape)):
        x, dy = (np.ascontiguousarray(np.moveaxis(v, 1, axis)) for v in (first, upstream))
        _, mean, rstd = cnorm.instance_norm(x, axis=axis, return_stats=True)
        exact = gradient_oracle.instance_norm(dy, x, weight, axis=axis)
        for named in (axis, axis - len(shape)):
            call = partial(cnorm.instance_norm_backward, dy, x, mean, rstd, weight, axis=named)
            grads = assert_gradients(call, exact, with_weight)
            assert grads.x.dtype == grads.weight.dtype == grads.bias.dtype == dtype


@pytest.mark.parametrize("axis", [1, 2])
def test_an_instance_has_its_own_gradient(axis: int, dtype: Any) -> None:
    """What arrives in one channel of one sample reaches no other x."""
    x = np.ascontiguousarray(np.moveaxis(_input((3, 5, 7), dtype), 1, axis))
    _, mean, rstd = cnorm.instance_norm(x, axis=axis, return_stats=True)
    dy = np.zeros_like(x)
    np.moveaxis(dy, axis, 1)[1, 4, 2] = 5
    grads = cnorm.instance_norm_backward(dy, x, mean, rstd, np.ones(5), axis=axis)
    reached = np.moveaxis(grads.x, axis, 1).any(axis=2)
    np.testing.assert_array_equal(np.argwhere(reached), [[1, 4]])
    np.testing.assert_array_equal(np.flatnonzero(grads.weight), [4])
    np.testing.assert_array_equal(np.flatnonzero(grads.bias), [4])


@pytest.mark.parametrize("axis", [1, 2])
def test_nothing_that_is_given_is_written_to(axis: int, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((2, 5, 11), dtype), 1, axis).copy(), _weight(5, dtype)
    dy = _upstream(x.shape, dtype)
    _, mean, rstd = cnorm.instance_norm(x, axis=axis, return_stats=True)
    call = partial(cnorm.instance_norm_backward, dy, x, mean, rstd, weight, axis=axis)
    assert_reads_only(call, dy, x, mean, rstd, weight)


@pytest.mark.parametrize("axis", [1, 2])
def test_out_receives_dx(axis: int, dtype: Any) -> None:
    x, weight = np.moveaxis(_input((2, 5, 11), dtype), 1, axis).copy(), _weight(5, dtype)
    _, mean, rstd = cnorm.instance_norm(x, axis=axis, return_stats=True)

    def call(dy: np.ndarray, **options: Any) -> cnorm.Gradients:
        return cnorm.instance_norm_backward(dy, x, mean, rstd, weight, axis=axis, **options)

    assert_dx_goes_to_out(call, _upstream(x.shape, dtype))


@pytest.mark.parametrize("x_layout", ["contiguous", "columns", "steps", "unaligned", "channels last view"])
def test_x_and_dy_may_lie_differently(x_layout: str, dtype: Any) -> None:
    x, dy, weight = _input((3, 6, 5, 7), dtype), _upstream((3, 6, 5, 7), dtype), _weight(6, dtype)
    _, mean, rstd = cnorm.instance_norm(x, return_stats=True)
    placed, _ = (layouts.ANY | layouts.CHANNELS)[x_layout](x)
    exact = gradient_oracle.instance_norm(dy, x, weight)
    assert_any_dy_layout(
        lambda dy: cnorm.instance_norm_backward(dy, placed, mean, rstd, weight), dy, exact, channels=True
    )


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_any_eps(eps: float, dtype: Any) -> None:
    """The backward function knows eps from rstd alone."""
    x, dy, weight = _input((2, 5, 11), dtype), _upstream((2, 5, 11), dtype), _weight(5, dtype)
    _, mean, rstd = cnorm.instance_norm(x, eps=eps, return_stats=True)
    grads = cnorm.instance_norm_backward(dy, x, mean, rstd, weight)
    assert max(worst_units(grads, gradient_oracle.instance_norm(dy, x, weight, eps))) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[2:] != (1, 1)])
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_pytorch_float64_agrees(shape: tuple[int, ...], with_weight: bool, with_bias: bool) -> None:
    """It refuses one value per instance."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight = _weight(shape[1], np.float64) if with_weight else None
    bias = np.ones(shape[1]) if with_bias else None
    instance_norm = torch().nn.functional.instance_norm
    theirs = autograd(lambda x, w, b: instance_norm(x, weight=w, bias=b, eps=0.3), dy, x, weight, bias)
    _, mean, rstd = cnorm.instance_norm(x, eps=0.3, return_stats=True)
    grads = cnorm.instance_norm_backward(dy, x, mean, rstd, weight, need=NAMES)
    assert_parity(grads, theirs, gradient_oracle.instance_norm(dy, x, weight, 0.3))


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 2, 3, 2), (2, 2, 1, 3, 2)])
def test_finite_differences(shape: tuple[int, ...]) -> None:
    """Of sum(dy * y) with cnorm's own y, in x, in weight and in bias."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    weight, bias = _weight(shape[1], np.float64), np.arange(1.0, shape[1] + 1)
    _, mean, rstd = cnorm.instance_norm(x, return_stats=True)
    grads = cnorm.instance_norm_backward(dy, x, mean, rstd, weight)

    def loss(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
        return (dy * cnorm.instance_norm(x, weight=weight, bias=bias)).sum()

    assert_differences(grads.x, lambda x: loss(x, weight, bias), x)
    assert_differences(grads.weight, lambda w: loss(x, w, bias), weight)
    assert_differences(grads.bias, lambda b: loss(x, weight, b), bias)


def test_empty_batches(dtype: Any) -> None:
    x, weight = np.empty((0, 5, 7), dtype), np.ones(5, dtype)
    _, mean, rstd = cnorm.instance_norm(x, return_stats=True)
    grads = cnorm.instance_norm_backward(x, x, mean, rstd, weight)
    assert grads.x.shape == (0, 5, 7)
    np.testing.assert_array_equal(grads.weight, np.zeros(5, dtype), strict=True)
    np.testing.assert_array_equal(grads.bias, np.zeros(5, dtype), strict=True)
