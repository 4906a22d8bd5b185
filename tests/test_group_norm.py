"""group_norm: groups, channel axes, statistics, and PyTorch's meaning of every argument."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from norms import far_from_one
from peer import assert_parity, keyword_only, positional_parameters, tensor, torch
from statistics_checks import assert_mean, assert_rstd
from traps import TRAPS

BOUND = 6.0

#: Shapes with the channel axis 1, and numbers of groups.
SHAPES = [((3, 6), 2), ((2, 1, 9), 1), ((2, 6, 5), 6), ((2, 6, 5), 3), ((2, 6, 5), 1), ((1, 15, 3, 7), 5),
          ((2, 12, 1, 1), 4), ((2, 32, 9, 9), 8), ((2, 6, 3, 2, 5), 2), ((1, 70, 33), 7),
          ((1, 4, 4099), 2)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Each channel has a mean and spread of its own, so that a channel in the wrong group shows."""
    rng = np.random.default_rng(seed)
    channels = (1, shape[1], *(1 for _ in shape[2:]))
    scale = 10.0 ** rng.uniform(-1, 1, channels)
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_rank_and_axis(
    shape: tuple[int, ...], groups: int, with_weight: bool, with_bias: bool, dtype: Any
) -> None:
    x = _input(shape, dtype)
    rng = np.random.default_rng(1)
    weight = far_from_one(rng, shape[1], dtype) if with_weight else None
    bias = far_from_one(rng, shape[1], dtype) if with_bias else None
    for axis in range(1, len(shape)):
        moved = np.ascontiguousarray(np.moveaxis(x, 1, axis))
        exact = oracle.group_norm(moved, groups, weight, bias, axis=axis)
        for named in (axis, axis - len(shape)):
            y = cnorm.group_norm(moved, groups, weight, bias, axis=named)
            assert oracle.worst_units(y, exact) <= BOUND
            assert y.dtype == dtype


def test_a_channel_belongs_to_the_group_of_its_neighbours(dtype: Any) -> None:
    """Channel c is in group c div (C/G): changing one channel changes its own group's outputs only."""
    x = _input((1, 12, 7), dtype)
    before = cnorm.group_norm(x, 4)
    x[0, 4, 2] += 5
    changed = np.flatnonzero((cnorm.group_norm(x, 4) != before).any(axis=(0, 2)))
    np.testing.assert_array_equal(changed, [3, 4, 5])


def test_one_group_is_layer_norm_and_a_group_per_channel_is_instance_norm(dtype: Any) -> None:
    x = _input((3, 6, 35), dtype)
    exact = oracle.layer_norm(x, axes=2)
    assert oracle.worst_units(cnorm.group_norm(x, 1), exact) <= BOUND
    exact = oracle.instance_norm(x)
    assert oracle.worst_units(cnorm.group_norm(x, 6), exact) <= BOUND


@pytest.mark.parametrize("axis", [1, -1])
def test_statistics_are_per_sample_and_group(axis: int, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_input((3, 8, 5, 7), dtype), 1, axis))
    result = cnorm.group_norm(x, 4, axis=axis, return_stats=True)
    assert type(result) is tuple
    y, mean, rstd = result
    assert mean.shape == rstd.shape == (3, 4)
    assert mean.dtype == rstd.dtype == dtype
    exact = oracle.group_norm(x, 4, axis=axis)
    assert_mean(mean, exact)
    assert_rstd(rstd, exact)
    np.testing.assert_array_equal(y, cnorm.group_norm(x, 4, axis=axis))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_statistics_of_the_traps(trap: Any, dtype: Any) -> None:
    for axis in (1, -1):
        for elements in (9, 255, 8199):
            x = trap(15, elements, dtype).reshape(5, 9, elements // 3)
            x = np.ascontiguousarray(np.moveaxis(x, 1, axis))
            _, mean, rstd = cnorm.group_norm(x, 3, eps=trap.eps, axis=axis, return_stats=True)
            exact = oracle.group_norm(x, 3, eps=trap.eps, axis=axis)
            assert_mean(mean, exact)
            assert_rstd(rstd, exact)


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_eps_is_inside_the_root(eps: float, dtype: Any) -> None:
    x = _input((2, 6, 11), dtype)
    assert oracle.worst_units(cnorm.group_norm(x, 3, eps=eps), oracle.group_norm(x, 3, eps=eps)) <= BOUND


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    x = _input((2, 6, 11), dtype)
    for axis in (1, 2):
        moved = np.ascontiguousarray(np.moveaxis(x, 1, axis))
        weight, bias = far_from_one(np.random.default_rng(2), (2, 6), dtype)
        wanted = cnorm.group_norm(moved, 3, weight, bias, axis=axis)
        out = np.full_like(moved, np.nan)
        assert cnorm.group_norm(moved, 3, weight, bias, axis=axis, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        assert cnorm.group_norm(moved, 3, weight, bias, axis=axis, out=moved) is moved
        np.testing.assert_array_equal(moved, wanted)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_parameters_of_any_floating_type_are_used_in_the_compute_type(kind: Any, dtype: Any) -> None:
    x = _input((2, 6, 11), dtype)
    weight, bias = np.random.default_rng(4).standard_normal((2, 6)).astype(kind)
    wanted = cnorm.group_norm(x, 2, weight.astype(dtype), bias.astype(dtype))
    np.testing.assert_array_equal(cnorm.group_norm(x, 2, weight, bias), wanted)


def test_positional_order_and_defaults_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.group_norm).parameters
    ours = positional_parameters(cnorm.group_norm)
    assert [name for name, _ in ours[1:]] == list(theirs)[1:]
    for name in ("weight", "bias", "eps"):
        assert dict(ours)[name] == theirs[name].default
    assert dict(ours)["num_groups"] is inspect.Parameter.empty
    assert keyword_only(cnorm.group_norm) == {"axis": 1, "out": None, "return_stats": False}


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_pytorch_float64_agrees(shape: tuple[int, ...], groups: int, eps: float) -> None:
    x = _input(shape, np.float64)
    weight, bias = (far_from_one(np.random.default_rng(i), shape[1], np.float64) for i in (5, 6))
    y, mean, rstd = cnorm.group_norm(x, groups, weight, bias, eps, return_stats=True)
    spatial = int(np.prod(shape[2:]))
    theirs, their_mean, their_rstd = torch().native_group_norm(
        tensor(x), tensor(weight), tensor(bias), shape[0], shape[1], spatial, groups, eps
    )
    assert_parity(y, theirs, oracle.group_norm(x, groups, weight, bias, eps))
    assert mean.shape == tuple(their_mean.shape)
    np.testing.assert_allclose(mean, their_mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(rstd, their_rstd.numpy(), rtol=1e-12)


def test_empty_batches(dtype: Any) -> None:
    y, mean, rstd = cnorm.group_norm(np.empty((0, 6, 5), dtype), 3, return_stats=True)
    assert y.shape == (0, 6, 5)
    assert mean.shape == rstd.shape == (0, 3)
