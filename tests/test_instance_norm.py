"""instance_norm: channel axes, running statistics, their use, and PyTorch's meaning of every argument."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from norms import far_from_one
from peer import assert_parity, keyword_only, positional_parameters, tensor, torch
from statistics_checks import assert_mean, assert_rstd, assert_running
from traps import TRAPS

BOUND = 6.0

SHAPES = [(3, 5, 33), (1, 1, 2), (2, 3, 7, 9), (2, 1, 65, 1), (1, 33, 3, 5, 7), (4, 2, 4099)]


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    per_instance = (shape[0], shape[1], *(1 for _ in shape[2:]))
    scale = 10.0 ** rng.uniform(-1, 1, per_instance)
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _statistics(channels: int, dtype: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([9, seed])
    return rng.standard_normal(channels).astype(dtype), rng.uniform(0.1, 9, channels).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_rank_and_axis(shape: tuple[int, ...], with_weight: bool, with_bias: bool, dtype: Any) -> None:
    x = _input(shape, dtype)
    rng = np.random.default_rng(1)
    weight = far_from_one(rng, shape[1], dtype) if with_weight else None
    bias = far_from_one(rng, shape[1], dtype) if with_bias else None
    for axis in range(1, len(shape)):
        moved = np.ascontiguousarray(np.moveaxis(x, 1, axis))
        exact = oracle.instance_norm(moved, weight, bias, axis=axis)
        for named in (axis, axis - len(shape)):
            y = cnorm.instance_norm(moved, None, None, weight, bias, axis=named)
            assert oracle.worst_units(y, exact) <= BOUND
            assert y.dtype == dtype


@pytest.mark.parametrize("axis", [1, -1])
def test_statistics_are_per_sample_and_channel(axis: int, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((3, 5, 7, 9), dtype), 1, axis))
    result = cnorm.instance_norm(x, axis=axis, return_stats=True)
    assert type(result) is tuple
    y, mean, rstd = result
    assert mean.shape == rstd.shape == (3, 5)
    assert mean.dtype == rstd.dtype == dtype
    exact = oracle.instance_norm(x, axis=axis)
    assert_mean(mean, exact)
    assert_rstd(rstd, exact)
    np.testing.assert_array_equal(y, cnorm.instance_norm(x, axis=axis))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_statistics_of_the_traps(trap: Any, dtype: Any) -> None:
    for axis in (1, -1):
        for elements in (9, 255, 8199):
            x = np.ascontiguousarray(np.moveaxis(trap(15, elements, dtype).reshape(3, 5, elements), 1, axis))
            _, mean, rstd = cnorm.instance_norm(x, eps=trap.eps, axis=axis, return_stats=True)
            exact = oracle.instance_norm(x, eps=trap.eps, axis=axis)
            assert_mean(mean, exact)
            assert_rstd(rstd, exact)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("axis", [1, -1])
def test_running_statistics_take_the_average_over_the_batch(axis: int, momentum: float, dtype: Any) -> None:
    """Of the instances' means, and of their unbiased variances: n / (n - 1) with n the instance's size."""
    first = _input((4, 5, 7, 3), dtype)
    x = np.ascontiguousarray(np.moveaxis(first, 1, axis))
    mean, var = _statistics(5, dtype)
    old_mean, old_var = mean.copy(), var.copy()
    y = cnorm.instance_norm(x, mean, var, momentum=momentum, axis=axis)
    exact = oracle.instance_norm(x, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND
    assert_running(mean, old_mean, exact.mean.mean(axis=0), momentum, np.sqrt(exact.var).mean(axis=0))
    assert_running(var, old_var, exact.var.mean(axis=0) * 21 / 20, momentum)
    if momentum == 0:
        np.testing.assert_array_equal(mean, old_mean)
        np.testing.assert_array_equal(var, old_var)


@pytest.mark.parametrize("axis", [1, -1])
def test_running_statistics_used_instead_of_the_inputs(axis: int, dtype: Any) -> None:
    """use_input_stats=False is batch norm's inference, and changes nothing."""
    x = np.ascontiguousarray(np.moveaxis(_input((3, 5, 7, 9), dtype), 1, axis))
    mean, var = _statistics(5, dtype)
    before = mean.copy(), var.copy()
    weight, bias = far_from_one(np.random.default_rng(2), (2, 5), dtype)
    y = cnorm.instance_norm(x, mean, var, weight, bias, use_input_stats=False, axis=axis)
    exact = oracle.batch_norm_inference(x, mean, var, weight, bias, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    x = _input((2, 5, 11), dtype)
    weight, bias = far_from_one(np.random.default_rng(3), (2, 5), dtype)
    for use_input_stats in (True, False):
        statistics = () if use_input_stats else _statistics(5, dtype)
        call = {"weight": weight, "bias": bias, "use_input_stats": use_input_stats}
        wanted = cnorm.instance_norm(x, *statistics, **call)
        out = np.full_like(x, np.nan)
        assert cnorm.instance_norm(x, *statistics, **call, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        in_place = x.copy()
        assert cnorm.instance_norm(in_place, *statistics, **call, out=in_place) is in_place
        np.testing.assert_array_equal(in_place, wanted)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_parameters_of_any_floating_type_are_used_in_the_compute_type(kind: Any, dtype: Any) -> None:
    x = _input((2, 5, 11), dtype)
    weight, bias = np.random.default_rng(4).standard_normal((2, 5)).astype(kind)
    wanted = cnorm.instance_norm(x, None, None, weight.astype(dtype), bias.astype(dtype))
    np.testing.assert_array_equal(cnorm.instance_norm(x, None, None, weight, bias), wanted)


def test_positional_order_and_defaults_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.instance_norm).parameters
    ours = positional_parameters(cnorm.instance_norm)
    assert [name for name, _ in ours[1:]] == list(theirs)[1:]
    assert dict(ours[1:]) == {name: p.default for name, p in list(theirs.items())[1:]}
    assert keyword_only(cnorm.instance_norm) == {"axis": 1, "out": None, "return_stats": False}


@pytest.mark.peers
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("use_input_stats", [True, False])
@pytest.mark.parametrize(("momentum", "eps"), [(0.1, 1e-5), (0.7, 0.3)])
def test_pytorch_float64_agrees(
    shape: tuple[int, ...], use_input_stats: bool, momentum: float, eps: float
) -> None:
    x = _input(shape, np.float64)
    weight, bias = (far_from_one(np.random.default_rng(i), shape[1], np.float64) for i in (5, 6))
    mean, var = _statistics(shape[1], np.float64)
    their_mean, their_var = tensor(mean), tensor(var)
    theirs = torch().nn.functional.instance_norm(
        tensor(x), their_mean, their_var, tensor(weight), tensor(bias), use_input_stats, momentum, eps
    )
    exact = oracle.batch_norm_inference(x, mean, var, weight, bias, eps)
    if use_input_stats:
        exact = oracle.instance_norm(x, weight, bias, eps)
    y = cnorm.instance_norm(x, mean, var, weight, bias, use_input_stats, momentum, eps)
    assert_parity(y, theirs, exact)
    np.testing.assert_allclose(mean, their_mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(var, their_var.numpy(), rtol=1e-12)


def test_empty_batches_leave_running_statistics_unchanged(dtype: Any) -> None:
    mean, var = _statistics(5, dtype)
    before = mean.copy(), var.copy()
    y, _, _ = cnorm.instance_norm(np.empty((0, 5, 7), dtype), mean, var, return_stats=True)
    assert y.shape == (0, 5, 7)
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])
