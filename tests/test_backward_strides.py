"""Gradients of x and dy with random shapes, strides and byte orders."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import cnorm
import gradient_oracle
from backward_layouts import (
    EPS,
    contiguous_copy,
)
from gradients import BOUND, worst_units

DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(">f4"), np.dtype(">f8")]


def _strided(draw: st.DrawFn, shape: list[int], mean: float, dtype: np.dtype) -> np.ndarray:
    """Normal values in steps of both signs, with axes in a random order in memory, and broadcast ones."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, 2, 3, -1, -2, 0))) for _ in shape]
    sizes = [1 if steps[a] == 0 else max(shape[a] * abs(steps[a]), 1) for a in order]
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    memory = (mean + rng.standard_normal(sizes)).astype(dtype)
    view = memory[tuple(slice(None, None, steps[a] or 1) for a in order)].transpose(np.argsort(order))
    cut = view[tuple(slice(0, n) if step else slice(None) for n, step in zip(shape, steps, strict=True))]
    return np.broadcast_to(cut, shape)


@st.composite
def x_and_dy(draw: st.DrawFn, least_axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one shape that lie in memory in two ways."""
    shape = draw(st.lists(st.integers(0, 7), min_size=least_axes, max_size=5))
    x = _strided(draw, shape, draw(st.sampled_from((0.0, 1.0, -1e4))), draw(st.sampled_from(DTYPES)))
    return x, _strided(draw, shape, 0.0, draw(st.sampled_from(DTYPES)))


def _worst(gradients: cnorm.Gradients, exact: gradient_oracle.ExactGradients) -> float:
    return max(worst_units(gradients, exact))


@given(arrays=x_and_dy(1), data=st.data())
def test_any_strides_row_norms(arrays: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, dy = arrays
    axes = data.draw(st.integers(1, x.ndim))
    trailing = x.shape[x.ndim - axes :]
    plain, plain_dy = contiguous_copy(x), contiguous_copy(dy)
    weight = np.random.default_rng(1).standard_normal(trailing).astype(plain.dtype)
    _, *statistics = cnorm.layer_norm(x, trailing, return_stats=True)
    gradients = cnorm.layer_norm_backward(dy, x, *statistics, weight)
    assert _worst(gradients, gradient_oracle.layer_norm(plain_dy, plain, weight, axes=axes)) <= BOUND
    _, rstd = cnorm.rms_norm(x, trailing, eps=EPS, return_stats=True)
    gradients = cnorm.rms_norm_backward(dy, x, rstd, weight)
    assert _worst(gradients, gradient_oracle.rms_norm(plain_dy, plain, weight, EPS, axes=axes)) <= BOUND
    np.testing.assert_array_equal(x, plain)
    np.testing.assert_array_equal(dy, plain_dy)


@given(arrays=x_and_dy(2), data=st.data())
def test_any_strides_channel_norms(arrays: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, dy = arrays
    axis = data.draw(st.integers(1, x.ndim - 1))
    channels = x.shape[axis]
    plain, plain_dy = contiguous_copy(x), contiguous_copy(dy)
    weight, running_mean = np.random.default_rng(2).standard_normal((2, channels)).astype(plain.dtype)
    if channels:
        groups = data.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        _, *statistics = cnorm.group_norm(x, groups, axis=axis, return_stats=True)
        gradients = cnorm.group_norm_backward(dy, x, *statistics, groups, weight, axis=axis)
        exact = gradient_oracle.group_norm(plain_dy, plain, groups, weight, axis=axis)
        assert _worst(gradients, exact) <= BOUND
        _, *statistics = cnorm.instance_norm(x, axis=axis, return_stats=True)
        gradients = cnorm.instance_norm_backward(dy, x, *statistics, weight, axis=axis - x.ndim)
        exact = gradient_oracle.instance_norm(plain_dy, plain, weight, axis=axis)
        assert _worst(gradients, exact) <= BOUND
    rstd = np.abs(running_mean) + plain.dtype.type(0.1)
    gradients = cnorm.batch_norm_backward(dy, x, running_mean, rstd, weight, training=False, axis=axis)
    exact = gradient_oracle.batch_norm_frozen(plain_dy, plain, running_mean, rstd, weight, axis=axis)
    assert _worst(gradients, exact) <= BOUND
    if np.prod(x.shape) != channels:  # more than one value per channel, or none
        _, *statistics = cnorm.batch_norm(x, training=True, axis=axis, return_stats=True)
        gradients = cnorm.batch_norm_backward(dy, x, *statistics, weight, axis=axis)
        assert _worst(gradients, gradient_oracle.batch_norm(plain_dy, plain, weight, axis=axis)) <= BOUND
    np.testing.assert_array_equal(x, plain)
    np.testing.assert_array_equal(dy, plain_dy)
