"""layer_norm_backward: trailing shapes, what is needed, PyTorch's gradients and finite differences."""

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

#: Shapes and how many trailing axes are normalised over.
SHAPES = [((7,), 1), ((1, 1), 1), ((5, 33), 1), ((5, 33), 2), ((2, 3, 65), 1), ((2, 3, 65), 2),
          ((2, 3, 65), 3), ((3, 4, 1, 1), 3), ((2, 1, 3, 5, 7), 2), ((2, 1, 3, 5, 7), 4), ((1, 768), 1),
          ((3, 1, 4099), 2)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (3 + 2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _weight(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return far_from_one(np.random.default_rng(1), shape, dtype)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
def test_every_trailing_shape_and_need(
    shape: tuple[int, ...], axes: int, with_weight: bool, dtype: Any
) -> None:
    x, dy, trailing = _input(shape, dtype), _upstream(shape, dtype), shape[-axes:]
    weight = _weight(trailing, dtype) if with_weight else None
    _, mean, rstd = cnorm.layer_norm(x, trailing, weight, return_stats=True)
    call = partial(cnorm.layer_norm_backward, dy, x, mean, rstd, weight, normalized_shape=trailing)
    grads = assert_gradients(call, gradient_oracle.layer_norm(dy, x, weight, axes=axes), with_weight)
    assert grads.x.dtype == grads.weight.dtype == grads.bias.dtype == dtype
    assert grads.x.flags.c_contiguous
    assert grads.weight.shape == grads.bias.shape == trailing


def test_ways_to_say_the_normalized_shape(dtype: Any) -> None:
    """As for the forward function: by default the weight's shape, or the last axis."""
    x, dy = _input((4, 6, 5), dtype), _upstream((4, 6, 5), dtype)
    weight = _weight((6, 5), dtype)
    _, *one = cnorm.layer_norm(x, 5, return_stats=True)
    wanted = cnorm.layer_norm_backward(dy, x, *one, normalized_shape=(5,), need=NAMES)
    for same in (5, [5], np.int64(5), None):
        grads = cnorm.layer_norm_backward(dy, x, *one, normalized_shape=same, need=NAMES)
        for ours, right in zip(grads, wanted, strict=True):
            np.testing.assert_array_equal(ours, right)
    _, *two = cnorm.layer_norm(x, (6, 5), weight, return_stats=True)
    wanted = cnorm.layer_norm_backward(dy, x, *two, weight, normalized_shape=(6, 5))
    grads = cnorm.layer_norm_backward(dy, x, *two, weight)
    for ours, right in zip(grads, wanted, strict=True):
        np.testing.assert_array_equal(ours, right)


def test_nothing_that_is_given_is_written_to(dtype: Any) -> None:
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    call = partial(cnorm.layer_norm_backward, dy, x, mean, rstd, weight)
    assert_reads_only(call, dy, x, mean, rstd, weight)


def test_out_receives_dx(dtype: Any) -> None:
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)

    def call(dy: np.ndarray, **options: Any) -> cnorm.Gradients:
        return cnorm.layer_norm_backward(dy, x, mean, rstd, weight, **options)

    assert_dx_goes_to_out(call, dy)


@pytest.mark.parametrize("x_layout", ["contiguous", "columns", "steps", "unaligned"])
def test_x_and_dy_may_lie_differently(x_layout: str, dtype: Any) -> None:
    x, dy, weight = _input((5, 6, 35), dtype), _upstream((5, 6, 35), dtype), _weight((35,), dtype)
    _, mean, rstd = cnorm.layer_norm(x, 35, return_stats=True)
    placed, _ = layouts.ANY[x_layout](x)
    exact = gradient_oracle.layer_norm(dy, x, weight)
    assert_any_dy_layout(lambda dy: cnorm.layer_norm_backward(dy, placed, mean, rstd, weight), dy, exact)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f8"])
def test_dy_and_statistics_of_any_floating_type(kind: Any, dtype: Any) -> None:
    """They are used in the compute type."""
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    given = [v.astype(kind) for v in (dy, mean, rstd, weight)]
    used = [v.astype(dtype) for v in given]
    wanted = cnorm.layer_norm_backward(used[0], x, *used[1:])
    grads = cnorm.layer_norm_backward(given[0], x, *given[1:])
    for ours, right in zip(grads, wanted, strict=True):
        np.testing.assert_array_equal(ours, right, strict=True)


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_any_eps(eps: float, dtype: Any) -> None:
    """The backward function knows eps from rstd alone."""
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, mean, rstd = cnorm.layer_norm(x, eps=eps, return_stats=True)
    grads = cnorm.layer_norm_backward(dy, x, mean, rstd, weight)
    assert max(worst_units(grads, gradient_oracle.layer_norm(dy, x, weight, eps))) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_pytorch_float64_agrees(
    shape: tuple[int, ...], axes: int, with_weight: bool, with_bias: bool
) -> None:
    x, dy, trailing = _input(shape, np.float64), _upstream(shape, np.float64), shape[-axes:]
    weight = _weight(trailing, np.float64) if with_weight else None
    bias = np.ones(trailing) if with_bias else None
    layer_norm = torch().nn.functional.layer_norm
    theirs = autograd(lambda x, w, b: layer_norm(x, trailing, w, b, 0.3), dy, x, weight, bias)
    _, mean, rstd = cnorm.layer_norm(x, trailing, weight, bias, 0.3, return_stats=True)
    grads = cnorm.layer_norm_backward(dy, x, mean, rstd, weight, normalized_shape=trailing, need=NAMES)
    assert_parity(grads, theirs, gradient_oracle.layer_norm(dy, x, weight, 0.3, axes=axes))


@pytest.mark.parametrize(("shape", "axes"), [((4, 6), 1), ((2, 3, 5), 2), ((2, 1, 2, 3, 2), 3)])
def test_finite_differences(shape: tuple[int, ...], axes: int) -> None:
    """Of sum(dy * y) with cnorm's own y, in x, in weight and in bias."""
    x, dy, trailing = _input(shape, np.float64), _upstream(shape, np.float64), shape[-axes:]
    weight, bias = _weight(trailing, np.float64), _input(trailing, np.float64, 9)
    _, mean, rstd = cnorm.layer_norm(x, trailing, weight, bias, return_stats=True)
    grads = cnorm.layer_norm_backward(dy, x, mean, rstd, weight, normalized_shape=trailing)
    assert_differences(grads.x, lambda x: (dy * cnorm.layer_norm(x, trailing, weight, bias)).sum(), x)
    assert_differences(grads.weight, lambda w: (dy * cnorm.layer_norm(x, trailing, w, bias)).sum(), weight)
    assert_differences(grads.bias, lambda b: (dy * cnorm.layer_norm(x, trailing, weight, b)).sum(), bias)


def test_empty_batches(dtype: Any) -> None:
    x, weight = np.empty((0, 5), dtype), np.ones(5, dtype)
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    grads = cnorm.layer_norm_backward(x, x, mean, rstd, weight)
    assert grads.x.shape == (0, 5)
    assert grads.x.dtype == dtype
    np.testing.assert_array_equal(grads.weight, np.zeros(5, dtype), strict=True)
    np.testing.assert_array_equal(grads.bias, np.zeros(5, dtype), strict=True)
