"""batch_norm: training and inference, running statistics, and PyTorch's meaning of every argument."""

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

SHAPES = [(33, 5), (2, 1), (3, 5, 33), (1, 7, 2), (1, 3, 2, 1), (2, 3, 7, 9), (2, 33, 3, 5, 7),
          (2, 2, 1, 3, 1, 5), (3, 2, 4099)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-1, 1, (1, shape[1], *(1 for _ in shape[2:])))
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _statistics(channels: int, dtype: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([9, seed])
    return rng.standard_normal(channels).astype(dtype), rng.uniform(0.1, 9, channels).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_every_rank_and_axis(
    shape: tuple[int, ...], with_weight: bool, with_bias: bool, training: bool, dtype: Any
) -> None:
    x = _input(shape, dtype)
    rng = np.random.default_rng(1)
    weight = far_from_one(rng, shape[1], dtype) if with_weight else None
    bias = far_from_one(rng, shape[1], dtype) if with_bias else None
    mean, var = _statistics(shape[1], dtype)
    for axis in range(len(shape)):
        moved = np.ascontiguousarray(np.moveaxis(x, 1, axis))
        exact = oracle.batch_norm_inference(moved, mean, var, weight, bias, axis=axis)
        if training:
            exact = oracle.batch_norm(moved, weight, bias, axis=axis)
        for named in (axis, axis - len(shape)):
            y = cnorm.batch_norm(moved, mean.copy(), var.copy(), weight, bias, training, axis=named)
            assert oracle.worst_units(y, exact) <= BOUND
            assert y.dtype == dtype


@pytest.mark.parametrize("axis", [1, -1])
def test_training_statistics_are_per_channel(axis: int, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((3, 5, 7, 9), dtype), 1, axis))
    result = cnorm.batch_norm(x, training=True, axis=axis, return_stats=True)
    assert type(result) is tuple
    y, mean, rstd = result
    assert mean.shape == rstd.shape == (5,)
    assert mean.dtype == rstd.dtype == dtype
    exact = oracle.batch_norm(x, axis=axis)
    assert_mean(mean, exact)
    assert_rstd(rstd, exact)
    np.testing.assert_array_equal(y, cnorm.batch_norm(x, training=True, axis=axis))


@pytest.mark.parametrize("axis", [1, -1])
def test_inference_statistics_are_the_running_ones(axis: int, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((3, 5, 7, 9), dtype), 1, axis))
    running_mean, running_var = _statistics(5, dtype)
    _, mean, rstd = cnorm.batch_norm(x, running_mean, running_var, axis=axis, return_stats=True)
    np.testing.assert_array_equal(mean, running_mean)
    assert mean.dtype == rstd.dtype == dtype
    assert not np.shares_memory(mean, running_mean)
    assert_rstd(rstd, oracle.batch_norm_inference(x, running_mean, running_var, axis=axis))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_statistics_of_the_traps(trap: Any, dtype: Any) -> None:
    for axis in (1, -1):
        for elements in (9, 255, 8199):
            x = trap(15, elements, dtype).reshape(15, 3, elements // 3).transpose(1, 0, 2)
            x = np.ascontiguousarray(np.moveaxis(x, 1, axis))
            _, mean, rstd = cnorm.batch_norm(x, training=True, eps=trap.eps, axis=axis, return_stats=True)
            exact = oracle.batch_norm(x, eps=trap.eps, axis=axis)
            assert_mean(mean, exact)
            assert_rstd(rstd, exact)


# Running statistics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_training_updates_running_statistics(axis: int, unbiased: bool, momentum: float, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((4, 5, 7, 3), dtype), 1, axis))
    mean, var = _statistics(5, dtype)
    old_mean, old_var = mean.copy(), var.copy()
    y = cnorm.batch_norm(x, mean, var, training=True, momentum=momentum, axis=axis, unbiased=unbiased)
    exact = oracle.batch_norm(x, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND, "y uses the biased variance whatever running_var takes"
    batch_var = exact.var * 84 / 83 if unbiased else exact.var
    assert_running(mean, old_mean, exact.mean, momentum, np.sqrt(exact.var))
    assert_running(var, old_var, batch_var, momentum)
    if momentum == 0:
        np.testing.assert_array_equal(mean, old_mean)
        np.testing.assert_array_equal(var, old_var)


def test_running_variance_of_sixteen_values(dtype: Any) -> None:
    """Biased variance 2.5 over 16 values, momentum 0.1, from 1: 0.9 + 0.1 * 2.5 * 16 / 15."""
    values = np.repeat(np.array([-2.0, -1.0, 1.0, 2.0]), 4)
    x = np.tile(values[:, None], (1, 3)).astype(dtype).reshape(4, 2, 2, 3).transpose(0, 3, 1, 2)
    mean, var = np.zeros(3, dtype), np.ones(3, dtype)
    cnorm.batch_norm(x, mean, var, training=True)
    np.testing.assert_allclose(var, 0.9 + 0.25 * 16 / 15, rtol=4 * oracle.unit(dtype))
    biased = np.ones(3, dtype)
    cnorm.batch_norm(x, mean, biased, training=True, unbiased=False)
    np.testing.assert_allclose(biased, 1.15, rtol=4 * oracle.unit(dtype))


def test_running_statistics_of_large_offsets(dtype: Any) -> None:
    """momentum 1 replaces; the variance of a float32 sum of squares would be far off at mean 1e4."""
    x = TRAPS[2](15, 8199, dtype).reshape(15, 3, -1).transpose(1, 0, 2)
    mean, var = np.zeros(15, dtype), np.ones(15, dtype)
    cnorm.batch_norm(x, mean, var, training=True, momentum=1.0)
    exact = oracle.batch_norm(x)
    assert_running(mean, np.zeros(15), exact.mean, 1.0, np.sqrt(exact.var))
    assert_running(var, np.ones(15), exact.var * 8199 / 8198, 1.0)


def test_a_non_finite_channel_spoils_its_own_running_statistics_only(dtype: Any) -> None:
    x = _input((3, 5, 33), dtype)
    clean = [np.zeros(5, dtype), np.ones(5, dtype)]
    cnorm.batch_norm(x, *clean, training=True)
    x[1, 2, 3] = np.inf
    spoilt = [np.zeros(5, dtype), np.ones(5, dtype)]
    cnorm.batch_norm(x, *spoilt, training=True)
    for ours, wanted in zip(spoilt, clean, strict=True):
        assert np.isnan(ours[2])
        np.testing.assert_array_equal(np.delete(ours, 2), np.delete(wanted, 2))


def test_running_statistics_of_other_layouts_and_types_are_updated_in_place(dtype: Any) -> None:
    """Strided, misaligned, byte-swapped, of the other float type: updated where they are, as a plain one."""
    x = _input((3, 5, 33), dtype)
    plain = [np.zeros(5, dtype), np.ones(5, dtype)]
    cnorm.batch_norm(x, *plain, training=True)
    other = np.dtype(np.float32 if dtype == np.float64 else np.float64)
    record = np.zeros(5, np.dtype([("tag", "u1"), ("mean", dtype), ("var", dtype)]))
    wide = np.zeros((5, 4), dtype)
    for mean, var in (
        (wide[:, 1], wide[:, 3]),
        (np.zeros(5, dtype)[::-1], np.zeros(5, dtype)[::-1]),
        (record["mean"], record["var"]),
        (np.zeros(5, dtype.newbyteorder("S")), np.zeros(5, dtype.newbyteorder("S"))),
        (np.zeros(5, other), np.zeros(5, other)),
        (np.zeros(5, np.float16), np.zeros(5, np.float16)),
    ):
        var[...] = 1
        cnorm.batch_norm(x, mean, var, training=True)
        np.testing.assert_array_equal(mean, plain[0].astype(mean.dtype))
        np.testing.assert_array_equal(var, plain[1].astype(var.dtype))
    assert not wide[:, [0, 2]].any(), "the gaps between them are untouched"


def test_inference_leaves_running_statistics_alone(dtype: Any) -> None:
    mean, var = _statistics(5, dtype)
    for statistic in (mean, var):
        statistic.flags.writeable = False
    before = mean.copy(), var.copy()
    cnorm.batch_norm(_input((3, 5, 33), dtype), mean, var)
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])


def test_empty_batches_leave_running_statistics_unchanged(dtype: Any) -> None:
    mean, var = _statistics(5, dtype)
    before = mean.copy(), var.copy()
    for training in (True, False):
        y = cnorm.batch_norm(np.empty((0, 5, 7), dtype), mean, var, training=training)
        assert y.shape == (0, 5, 7)
        assert y.dtype == dtype
        np.testing.assert_array_equal(mean, before[0])
        np.testing.assert_array_equal(var, before[1])


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1), (1, 3, 1, 1)])
def test_one_value_per_channel_is_refused_in_training_only(shape: tuple[int, ...], dtype: Any) -> None:
    mean, var = _statistics(3, dtype)
    before = mean.copy(), var.copy()
    x = _input(shape, dtype)
    with pytest.raises(ValueError, match="x"):
        cnorm.batch_norm(x, mean, var, training=True)
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(var, before[1])
    exact = oracle.batch_norm_inference(x, mean, var)
    assert oracle.worst_units(cnorm.batch_norm(x, mean, var), exact) <= BOUND


def test_two_values_per_channel_work(dtype: Any) -> None:
    x = np.array([[[[1], [3]], [[5], [5]], [[-7], [9]]]], dtype)
    assert x.shape == (1, 3, 2, 1)
    y = cnorm.batch_norm(x, training=True, eps=0.0)
    np.testing.assert_array_equal(y.reshape(3, 2), [[-1, 1], [0, 0], [-1, 1]])


# The API ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_out_receives_and_is_the_result(training: bool, dtype: Any) -> None:
    for axis, shape in ((1, (2, 6, 11)), (2, (2, 11, 6)), (1, (22, 6))):
        x = np.random.default_rng(2).standard_normal(shape).astype(dtype)
        weight, bias = far_from_one(np.random.default_rng(2), (2, 6), dtype)
        options = {"weight": weight, "bias": bias, "training": training, "axis": axis}
        statistics = _statistics(6, dtype)
        wanted = cnorm.batch_norm(x, *(s.copy() for s in statistics), **options)
        out = np.full_like(x, np.nan)
        assert cnorm.batch_norm(x, *(s.copy() for s in statistics), **options, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        assert cnorm.batch_norm(x, *(s.copy() for s in statistics), **options, out=x) is x
        np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_parameters_of_any_floating_type_are_used_in_the_compute_type(
    kind: Any, training: bool, dtype: Any
) -> None:
    x = _input((2, 6, 11), dtype)
    weight, bias, mean = np.random.default_rng(4).standard_normal((3, 6)).astype(kind)
    plain = [v.astype(dtype) for v in (mean, np.abs(mean), weight, bias)]
    wanted = cnorm.batch_norm(x, *plain, training=training)
    given = cnorm.batch_norm(x, mean, np.abs(mean), weight, bias, training)
    np.testing.assert_array_equal(given, wanted)


def test_positional_order_and_defaults_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.batch_norm).parameters
    ours = positional_parameters(cnorm.batch_norm)
    assert [name for name, _ in ours[1:]] == list(theirs)[1:]
    optional = list(theirs.items())[3:]
    assert dict(ours[3:]) == {name: p.default for name, p in optional}
    assert dict(ours)["running_mean"] is dict(ours)["running_var"] is None
    assert keyword_only(cnorm.batch_norm) == {
        "axis": 1, "unbiased": True, "out": None, "return_stats": False,
    }  # fmt: skip


@pytest.mark.peers
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("momentum", "eps"), [(0.1, 1e-5), (0.7, 0.3)])
def test_pytorch_float64_agrees(shape: tuple[int, ...], training: bool, momentum: float, eps: float) -> None:
    x = _input(shape, np.float64)
    weight, bias = (far_from_one(np.random.default_rng(i), shape[1], np.float64) for i in (5, 6))
    mean, var = _statistics(shape[1], np.float64)
    exact = oracle.batch_norm_inference(x, mean, var, weight, bias, eps)
    if training:
        exact = oracle.batch_norm(x, weight, bias, eps)
    their_mean, their_var = tensor(mean), tensor(var)
    theirs = torch().nn.functional.batch_norm(
        tensor(x), their_mean, their_var, tensor(weight), tensor(bias), training, momentum, eps
    )
    y = cnorm.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    assert_parity(y, theirs, exact)
    np.testing.assert_allclose(mean, their_mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(var, their_var.numpy(), rtol=1e-12)


@pytest.mark.peers
def test_pytorchs_batch_statistics_agree() -> None:
    x = _input((4, 5, 7, 3), np.float64)
    _, their_mean, their_rstd = torch().native_batch_norm(tensor(x), None, None, None, None, True, 0.1, 0.2)
    _, mean, rstd = cnorm.batch_norm(x, training=True, eps=0.2, return_stats=True)
    assert mean.shape == tuple(their_mean.shape)
    np.testing.assert_allclose(mean, their_mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(rstd, their_rstd.numpy(), rtol=1e-12)
