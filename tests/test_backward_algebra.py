"""Identities of the norms and their gradients, which hold whatever the implementation.

A norm does not see shifts and scales of its input, so no gradient points along them; what is linear before it
inherits the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
import oracle
from gradients import BACKWARDS, BOUND, TRAINING, Backward, Case, upstream, worst_units
from norms import far_from_one
from traps import TRAPS

each_training = pytest.mark.parametrize("backward", TRAINING, ids=lambda backward: backward.name)

#: Float64 norms of some hundred elements with a product of matrices before them.
RTOL = 1e-12


def _rows(dtype: Any, elements: int = 66, mean: float = 3.0) -> np.ndarray:
    return (mean + 2 * np.random.default_rng(1).standard_normal((15, elements))).astype(dtype)


def _groups(backward: Backward, case: Case, values: np.ndarray) -> np.ndarray:
    """``values``, shaped as x, with the elements of a group in each row."""
    labels = np.arange(15)[:, None] + np.zeros((15, case.x.size // 15))
    order = np.argsort(backward.norm.arrange(labels).reshape(-1), kind="stable")
    return np.ascontiguousarray(values).reshape(-1)[order].reshape(15, -1)


# What a norm cannot see -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [3.0, 1e4])
@each_training
def test_the_gradient_of_a_group_is_orthogonal_to_1_and_to_xhat(
    backward: Backward, mean: float, dtype: Any
) -> None:
    """Adding a constant to a group, or stretching it, changes nothing; RMS norm does see a constant."""
    rows = _rows(dtype, mean=mean)
    case = backward.case(rows, upstream(rows), 0.0)
    dx = _groups(backward, case, backward.of(case).x).astype(oracle.Long)
    exact = backward.exact(case)
    scale = _groups(backward, case, exact.x.scale).max(axis=1)
    xhat = _groups(backward, case, backward.norm.exact(case.x, case.p, 0.0, case.axis).xhat)
    allowed = 4 * oracle.unit(dtype) * scale * dx.shape[1]
    assert (np.abs((dx * xhat).sum(axis=1)) <= allowed).all()
    along_1 = np.abs(dx.sum(axis=1)) <= allowed
    assert not along_1.any() if backward.name == "rms_norm" else along_1.all()


@each_training
def test_eps_leaves_a_part_of_the_gradient_along_xhat(backward: Backward, dtype: Any) -> None:
    """With eps a stretched group does change: sum(dx xhat) = eps rstd**3 sum(g xhat)."""
    rows, eps = _rows(dtype), 2.0
    case = backward.case(rows, upstream(rows), eps)
    forward = backward.norm.exact(case.x, case.p, eps, case.axis)
    dx, xhat, g = (
        _groups(backward, case, v) for v in (backward.of(case).x, forward.xhat, forward.weight * case.dy)
    )
    along = (dx.astype(oracle.Long) * xhat).sum(axis=1)
    wanted = eps * forward.rstd.reshape(-1) ** 3 * (g * xhat).sum(axis=1)
    scale = np.abs(dx).max(axis=1) * dx.shape[1]
    assert (np.abs(along - wanted) <= 4 * oracle.unit(dtype) * scale).all()


# The map from dy to dx --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)
def test_gradients_are_linear_in_dy(backward: Backward) -> None:
    rows = _rows(np.float64)
    a, b = upstream(rows, 1), upstream(rows, 2)
    one, other, both = (backward.of(backward.case(rows, dy, 1e-5)) for dy in (a, b, a - 3 * b))
    for left, right, sum_ in zip(one, other, both, strict=True):
        np.testing.assert_allclose(left - 3 * right, sum_, rtol=0, atol=RTOL * np.abs(sum_).max())


@each_training
def test_the_jacobian_is_symmetric(backward: Backward) -> None:
    """Without a weight, dy -> dx is rstd (I - 1 1'/n - xhat xhat'/n): <u, J v> = <J u, v>."""
    rows = _rows(np.float64)
    case = backward.case(rows, upstream(rows, 1), 1e-5).without_weight()
    u, v = case.dy, backward.case(rows, upstream(rows, 2), 1e-5).dy
    ju, jv = (backward.of(Case(dy, case.x, case.p, 1e-5, 1, case.statistics)).x for dy in (u, v))
    assert (u * jv).sum() == pytest.approx((ju * v).sum(), rel=1e-10)


@each_training
def test_the_jacobian_is_rstd_times_a_projection(backward: Backward) -> None:
    """Without eps, what is left after one projection is not changed by another."""
    rows = _rows(np.float64)
    case = backward.case(rows, upstream(rows), 0.0).without_weight()
    once = backward.of(case).x
    twice = backward.of(Case(once, case.x, case.p, 0.0, 1, case.statistics)).x
    rstd = backward.norm.exact(case.x, case.p, 0.0, case.axis).rstd.reshape(-1, 1).astype(float)
    projected = _groups(backward, case, once) * rstd
    np.testing.assert_allclose(_groups(backward, case, twice), projected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)
def test_parameter_gradients_give_back_the_loss(backward: Backward) -> None:
    """y is linear in weight and bias: sum(weight dweight) + sum(bias dbias) = sum(dy y)."""
    rows = _rows(np.float64)
    case = backward.case(rows, upstream(rows), 1e-5)
    grads, y = backward.of(case), backward.norm.call(case.x, case.p, 1e-5)
    loss = (case.p.weight * grads.weight).sum() + (case.p.bias * grads.bias).sum()
    assert loss == pytest.approx((case.dy * y).sum(), rel=1e-10)


# A linear map before the norm -------------------------------------------------------------------------------


def _linear(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """u (samples, inputs), W (outputs, inputs), the norm's weight, and dy (samples, outputs)."""
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((40, 7)),
        rng.standard_normal((5, 7)),
        far_from_one(rng, 5, np.float64),
        rng.standard_normal((40, 5)),
    )


def _through(norm: str, u: np.ndarray, w: np.ndarray, gamma: Any, dy: np.ndarray) -> tuple[np.ndarray, ...]:
    """The norm of W u without eps, and the gradients to W and to u."""
    x = u @ w.T
    if norm == "batch_norm":
        y, *statistics = cnorm.batch_norm(x, weight=gamma, training=True, eps=0.0, return_stats=True)
        dx = cnorm.batch_norm_backward(dy, x, *statistics, gamma).x
    elif norm == "layer_norm":
        y, *statistics = cnorm.layer_norm(x, weight=gamma, eps=0.0, return_stats=True)
        dx = cnorm.layer_norm_backward(dy, x, *statistics, gamma).x
    else:
        y, *statistics = cnorm.rms_norm(x, weight=gamma, eps=0.0, return_stats=True)
        dx = cnorm.rms_norm_backward(dy, x, *statistics, gamma).x
    return y, dx.T @ u, dx @ w


def _assert_close(ours: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=RTOL * np.abs(wanted).max())


@pytest.mark.parametrize("a", [1e-3, 0.37, 8.0, 1e6])
@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "rms_norm"])
def test_the_scale_of_the_weights_before_a_norm(norm: str, a: float) -> None:
    """N((aW)u) = N(Wu): the gradient to u is the same, that to aW is 1/a of that to W."""
    u, w, gamma, dy = _linear()
    y, dw, du = _through(norm, u, w, gamma, dy)
    scaled_y, scaled_dw, scaled_du = _through(norm, u, a * w, gamma, dy)
    _assert_close(scaled_y, y)
    _assert_close(scaled_du, du)
    _assert_close(scaled_dw * a, dw)


@pytest.mark.parametrize("a", [1e-3, 0.37, 8.0, 1e6])
@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "rms_norm"])
def test_the_scale_of_the_data_before_a_norm(norm: str, a: float) -> None:
    """N(W(au)) = N(Wu): the gradient to W is the same."""
    u, w, gamma, dy = _linear()
    y, dw, du = _through(norm, u, w, gamma, dy)
    scaled_y, scaled_dw, scaled_du = _through(norm, a * u, w, gamma, dy)
    _assert_close(scaled_y, y)
    _assert_close(scaled_dw, dw)
    _assert_close(scaled_du * a, du)


def test_each_output_may_have_a_scale_of_its_own() -> None:
    """Of batch norm only: a is a diagonal matrix then."""
    u, w, gamma, dy = _linear()
    a = np.array([[1e-3], [0.37], [8.0], [1e6], [1.0]])
    y, dw, du = _through("batch_norm", u, w, gamma, dy)
    scaled_y, scaled_dw, scaled_du = _through("batch_norm", u, a * w, gamma, dy)
    _assert_close(scaled_y, y)
    _assert_close(scaled_du, du)
    _assert_close(scaled_dw * a, dw)


def test_a_bias_before_batch_norm_has_no_effect_and_no_gradient() -> None:
    """BN(Wu + b) = BN(Wu), and the gradient to b is the sum of dx over the batch: 0."""
    u, w, gamma, dy = _linear()
    b = np.array([1.0, -20.0, 300.0, 0.1, 0.0])
    for x in (u @ w.T, u @ w.T + b):
        y, *statistics = cnorm.batch_norm(x, weight=gamma, training=True, eps=0.0, return_stats=True)
        dx = cnorm.batch_norm_backward(dy, x, *statistics, gamma).x
        _assert_close(y, _through("batch_norm", u, w, gamma, dy)[0])
        assert (np.abs(dx.sum(axis=0)) <= RTOL * np.abs(dx).max(axis=0)).all()


# One norm as another ----------------------------------------------------------------------------------------


def _images(dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x, dy = 5 + rng.standard_normal((3, 6, 7, 5)), rng.standard_normal((3, 6, 7, 5))
    return x.astype(dtype), dy.astype(dtype), far_from_one(rng, 6, dtype)


def test_batch_norm_may_be_the_identity(dtype: Any) -> None:
    """With weight sqrt(var + eps) and bias mean; dx is then dy less its parts along 1 and xhat."""
    x, dy, _ = _images(dtype)
    forward = oracle.batch_norm(x)
    weight, bias = (1 / forward.rstd).astype(dtype), forward.mean.astype(dtype)
    y, *statistics = cnorm.batch_norm(x, weight=weight, bias=bias, training=True, return_stats=True)
    np.testing.assert_allclose(y, x, rtol=0, atol=16 * oracle.unit(dtype) * np.abs(x).max())
    grads = cnorm.batch_norm_backward(dy, x, *statistics, weight)
    dy, xhat = dy.astype(oracle.Long), forward.xhat
    axes = (0, 2, 3)
    wanted = dy - dy.mean(axis=axes, keepdims=True) - xhat * (dy * xhat).mean(axis=axes, keepdims=True)
    np.testing.assert_allclose(
        grads.x, wanted.astype(float), rtol=0, atol=16 * oracle.unit(dtype) * np.abs(dy).max()
    )


@pytest.mark.parametrize("layout", [layouts.contiguous, layouts.channels_last], ids=["first", "last"])
def test_a_group_per_channel_is_instance_norm(layout: layouts.Layout, dtype: Any) -> None:
    first, dy, weight = _images(dtype)
    (x, axis), (dy, _) = layout(first), layout(dy)
    y, *statistics = cnorm.group_norm(x, 6, weight, axis=axis, return_stats=True)
    exact = gradient_oracle.instance_norm(dy, x, weight, axis=axis)
    assert (
        max(worst_units(cnorm.group_norm_backward(dy, x, *statistics, 6, weight, axis=axis), exact)) <= BOUND
    )
    z, *statistics = cnorm.instance_norm(x, weight=weight, axis=axis, return_stats=True)
    assert (
        max(worst_units(cnorm.instance_norm_backward(dy, x, *statistics, weight, axis=axis), exact)) <= BOUND
    )
    np.testing.assert_allclose(y, z, rtol=0, atol=12 * oracle.unit(dtype) * np.abs(y).max())


def test_one_group_is_layer_norm_but_for_the_shape_of_the_weight(dtype: Any) -> None:
    """Without a weight dx is the same; group norm's dweight is layer norm's summed over each channel."""
    x, dy, _ = _images(dtype)
    _, mean, rstd = cnorm.group_norm(x, 1, return_stats=True)
    group = cnorm.group_norm_backward(dy, x, mean, rstd, 1, need=("x", "weight", "bias"))
    exact = gradient_oracle.layer_norm(dy, x, axes=3)
    assert gradient_oracle.units(group.x, exact.x) <= BOUND
    for ours, by_element in ((group.weight, exact.weight), (group.bias, exact.bias)):
        wanted = by_element.values.sum(axis=(1, 2))
        assert (np.abs(ours - wanted) <= BOUND * oracle.unit(dtype) * np.abs(wanted).max()).all()


def test_batch_norm_of_one_sample_is_instance_norm(dtype: Any) -> None:
    x, dy, weight = (v[:1] if v.ndim > 1 else v for v in _images(dtype))
    exact = gradient_oracle.instance_norm(dy, x, weight)
    _, *statistics = cnorm.batch_norm(x, training=True, return_stats=True)
    assert max(worst_units(cnorm.batch_norm_backward(dy, x, *statistics, weight), exact)) <= BOUND


def test_batch_norm_is_layer_norm_of_the_transpose(dtype: Any) -> None:
    x = TRAPS[2](33, 20, dtype)
    dy = upstream(x)
    exact = gradient_oracle.layer_norm(dy.T, x.T)
    _, *statistics = cnorm.batch_norm(x, training=True, return_stats=True)
    dx = cnorm.batch_norm_backward(dy, x, *statistics).x
    assert gradient_oracle.units(dx.T, exact.x) <= BOUND


def test_rms_norm_of_centred_rows_is_layer_norm() -> None:
    """And layer norm's dx is RMS norm's with its average taken away: the gradient of centring."""
    x, dy = _rows(np.float64), upstream(_rows(np.float64))
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    centred = x - x.mean(axis=1, keepdims=True)
    _, rms = cnorm.rms_norm(centred, eps=1e-5, return_stats=True)
    np.testing.assert_allclose(rms, rstd, rtol=1e-14)
    dx = cnorm.rms_norm_backward(dy, centred, rms).x
    _assert_close(dx - dx.mean(axis=1, keepdims=True), cnorm.layer_norm_backward(dy, x, mean, rstd).x)
