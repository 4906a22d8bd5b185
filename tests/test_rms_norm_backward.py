"""rms_norm_backward: trailing shapes, weight offsets, what is needed, PyTorch's gradients, differences."""

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
SHAPES = [((7,), 1), ((1, 1), 1), ((5, 33), 1), ((5, 33), 2), ((2, 3, 65), 2), ((2, 3, 65), 3),
          ((3, 4, 1, 1), 3), ((2, 1, 3, 5, 7), 2), ((2, 1, 3, 5, 7), 4), ((1, 768), 1),
          ((3, 1, 4099), 2)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (1 + 2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _weight(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return far_from_one(np.random.default_rng(1), shape, dtype)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_every_trailing_shape_need_and_offset(
    shape: tuple[int, ...], axes: int, offset: float, with_weight: bool, dtype: Any
) -> None:
    x, dy, trailing = _input(shape, dtype), _upstream(shape, dtype), shape[-axes:]
    weight = _weight(trailing, dtype) if with_weight else None
    _, rstd = cnorm.rms_norm(x, trailing, weight, 1e-5, return_stats=True)
    call = partial(
        cnorm.rms_norm_backward, dy, x, rstd, weight, normalized_shape=trailing, weight_offset=offset
    )
    exact = gradient_oracle.rms_norm(dy, x, weight, 1e-5, axes=axes, weight_offset=offset)
    grads = assert_gradients(call, exact, with_weight)
    assert grads.x.dtype == grads.weight.dtype == grads.bias.dtype == dtype
    assert grads.weight.shape == grads.bias.shape == trailing


def test_an_offset_is_added_in_the_compute_type(dtype: Any) -> None:
    """1 + 2**-30 is 1 in float32."""
    x, dy = _input((4, 37), dtype), _upstream((4, 37), dtype)
    weight = np.full(37, 2.0**-30, dtype)
    _, rstd = cnorm.rms_norm(x, return_stats=True)
    added = cnorm.rms_norm_backward(dy, x, rstd, 1 + weight)
    offset = cnorm.rms_norm_backward(dy, x, rstd, weight, weight_offset=1.0)
    np.testing.assert_array_equal(offset.x, added.x)
    np.testing.assert_array_equal(offset.weight, added.weight)


def test_nothing_that_is_given_is_written_to(dtype: Any) -> None:
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, rstd = cnorm.rms_norm(x, return_stats=True)
    assert_reads_only(partial(cnorm.rms_norm_backward, dy, x, rstd, weight), dy, x, rstd, weight)


def test_out_receives_dx(dtype: Any) -> None:
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, rstd = cnorm.rms_norm(x, return_stats=True)

    def call(dy: np.ndarray, **options: Any) -> cnorm.Gradients:
        return cnorm.rms_norm_backward(dy, x, rstd, weight, **options)

    assert_dx_goes_to_out(call, dy)


@pytest.mark.parametrize("x_layout", ["contiguous", "columns", "steps", "unaligned"])
def test_x_and_dy_may_lie_differently(x_layout: str, dtype: Any) -> None:
    x, dy, weight = _input((5, 6, 35), dtype), _upstream((5, 6, 35), dtype), _weight((35,), dtype)
    _, rstd = cnorm.rms_norm(x, 35, eps=1e-5, return_stats=True)
    placed, _ = layouts.ANY[x_layout](x)
    exact = gradient_oracle.rms_norm(dy, x, weight)
    assert_any_dy_layout(lambda dy: cnorm.rms_norm_backward(dy, placed, rstd, weight), dy, exact)


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_any_eps(eps: float, dtype: Any) -> None:
    """The backward function knows eps from rstd alone."""
    x, dy, weight = _input((4, 37), dtype), _upstream((4, 37), dtype), _weight((37,), dtype)
    _, rstd = cnorm.rms_norm(x, eps=eps, return_stats=True)
    grads = cnorm.rms_norm_backward(dy, x, rstd, weight)
    assert max(worst_units(grads, gradient_oracle.rms_norm(dy, x, weight, eps))) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
def test_pytorch_float64_agrees(shape: tuple[int, ...], axes: int, with_weight: bool) -> None:
    x, dy, trailing = _input(shape, np.float64), _upstream(shape, np.float64), shape[-axes:]
    weight = _weight(trailing, np.float64) if with_weight else None
    rms_norm = torch().nn.functional.rms_norm
    theirs = autograd(lambda x, w: rms_norm(x, trailing, w, 0.3), dy, x, weight)
    _, rstd = cnorm.rms_norm(x, trailing, weight, 0.3, return_stats=True)
    grads = cnorm.rms_norm_backward(dy, x, rstd, weight, normalized_shape=trailing, need=NAMES)
    assert_parity(grads, [*theirs, None], gradient_oracle.rms_norm(dy, x, weight, 0.3, axes=axes))


@pytest.mark.parametrize(("shape", "axes"), [((4, 6), 1), ((2, 3, 5), 2), ((2, 1, 2, 3, 2), 3)])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_finite_differences(shape: tuple[int, ...], axes: int, offset: float) -> None:
    """Of sum(dy * y) with cnorm's own y, in x, in weight and in bias."""
    x, dy, trailing = _input(shape, np.float64), _upstream(shape, np.float64), shape[-axes:]
    weight, bias = _weight(trailing, np.float64), _input(trailing, np.float64, 9)
    _, rstd = cnorm.rms_norm(x, trailing, return_stats=True)
    grads = cnorm.rms_norm_backward(
        dy, x, rstd, weight, normalized_shape=trailing, weight_offset=offset, need=NAMES
    )

    def loss(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Any:
        return (dy * cnorm.rms_norm(x, trailing, weight, bias=bias, weight_offset=offset)).sum()

    assert_differences(grads.x, lambda x: loss(x, weight, bias), x)
    assert_differences(grads.weight, lambda w: loss(x, w, bias), weight)
    assert_differences(grads.bias, lambda b: loss(x, weight, b), bias)


def test_a_row_of_zeros_without_eps_has_no_gradient(dtype: Any) -> None:
    """rstd is 0 there, and not infinite."""
    x, dy = np.zeros((3, 40), dtype), _upstream((3, 40), dtype)
    x[1] = _input((40,), dtype)
    _, rstd = cnorm.rms_norm(x, eps=0.0, return_stats=True)
    grads = cnorm.rms_norm_backward(dy, x, rstd, np.full(40, 7, dtype))
    assert not grads.x[[0, 2]].any()
    exact = gradient_oracle.rms_norm(dy, x, np.full(40, 7, dtype), 0.0)
    assert max(worst_units(grads, exact)) <= BOUND


def test_empty_batches(dtype: Any) -> None:
    x, weight = np.empty((0, 5), dtype), np.ones(5, dtype)
    _, rstd = cnorm.rms_norm(x, return_stats=True)
    grads = cnorm.rms_norm_backward(x, x, rstd, weight)
    assert grads.x.shape == (0, 5)
    assert grads.x.dtype == dtype
    np.testing.assert_array_equal(grads.weight, np.zeros(5, dtype), strict=True)
    np.testing.assert_array_equal(grads.bias, np.zeros(5, dtype), strict=True)
