"""layer_norm: values, shapes, statistics, parameters, and PyTorch's meaning of every argument."""

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


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (3 + 2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def test_four_large_neighbours() -> None:
    x = np.array([40000, 40001, 40002, 40003], np.float32)
    wanted = [-1.34163542, -0.44721181, 0.44721181, 1.34163542]
    np.testing.assert_allclose(cnorm.layer_norm(x), wanted, rtol=6 * 2.0**-24)


@pytest.mark.parametrize(
    ("mu", "first"), [(0, -1.34164081), (100, -1.34152771), (1000, -1.34150776), (10000, -1.33133335)]
)
def test_a_ladder_on_a_large_mean(mu: float, first: float) -> None:
    """Steps of 0.001 as float32 holds them around ``mu``."""
    x = (mu + 0.001 * np.arange(16)).astype(np.float32)
    assert cnorm.layer_norm(x)[0] == pytest.approx(first, rel=6 * 2.0**-24)


def test_a_row_of_1e30() -> None:
    x = np.array([1e30, -1e30, 2e30, 5e29], np.float32)
    wanted = [0.34641016, -1.50111070, 1.27017059, -0.11547005]
    np.testing.assert_allclose(cnorm.layer_norm(x), wanted, rtol=6 * 2.0**-24)


def test_rows_of_100_plus_minus_a_hundredth() -> None:
    """The variance is 1e-4 and not 0, so eps = 1e-5 takes a twentieth of the spread."""
    x = np.tile(np.array([99.99, 100.01], np.float32), (3, 16384))
    _, mean, rstd = cnorm.layer_norm(x, return_stats=True)
    np.testing.assert_allclose(mean, 100, rtol=1e-7)
    exact = oracle.layer_norm(x)
    assert 95 < float(exact.rstd[0, 0]) < 96
    assert_rstd(rstd, exact)


SHAPES = [((7,), 1), ((1, 1), 1), ((5, 33), 1), ((5, 33), 2), ((2, 3, 65), 1), ((2, 3, 65), 2),
          ((2, 3, 65), 3), ((2, 1, 3, 5, 7), 2), ((2, 1, 3, 5, 7), 4), ((1, 768), 1),
          ((3, 1, 4099), 2)]  # fmt: skip


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_trailing_shape(
    shape: tuple[int, ...], axes: int, with_weight: bool, with_bias: bool, dtype: Any
) -> None:
    x = _input(shape, dtype)
    trailing = shape[-axes:]
    rng = np.random.default_rng(1)
    weight = far_from_one(rng, trailing, dtype) if with_weight else None
    bias = far_from_one(rng, trailing, dtype) if with_bias else None
    y = cnorm.layer_norm(x, trailing, weight, bias)
    exact = oracle.layer_norm(x, weight, bias, axes=axes)
    assert oracle.worst_units(y, exact) <= BOUND
    assert y.flags.c_contiguous
    assert y.dtype == dtype


def test_ways_to_say_the_normalized_shape(dtype: Any) -> None:
    x = _input((4, 6, 5), dtype)
    weight = far_from_one(np.random.default_rng(2), (6, 5), dtype)
    one, two = cnorm.layer_norm(x, 5), cnorm.layer_norm(x, (6, 5), weight)
    for same in (5, np.int64(5), (5,), [5], None):
        np.testing.assert_array_equal(cnorm.layer_norm(x, same), one)
    for same in ((6, 5), [6, 5], (np.int32(6), 5), None):
        np.testing.assert_array_equal(cnorm.layer_norm(x, same, weight), two)
    assert not np.array_equal(one, two)


def test_statistics_have_pytorchs_shapes(dtype: Any) -> None:
    x = _input((4, 6, 5), dtype)
    for axes in (1, 2, 3):
        result = cnorm.layer_norm(x, x.shape[-axes:], return_stats=True)
        assert type(result) is tuple
        y, mean, rstd = result
        exact = oracle.layer_norm(x, axes=axes)
        assert mean.shape == rstd.shape == x.shape[:-axes] + (1,) * axes
        assert mean.dtype == rstd.dtype == dtype
        assert_mean(mean, exact)
        assert_rstd(rstd, exact)
        np.testing.assert_array_equal(y, cnorm.layer_norm(x, x.shape[-axes:]))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_statistics_of_the_traps(trap: Any, dtype: Any) -> None:
    for rows, elements in ((15, 9), (15, 255), (5, 8199)):
        x = trap(rows, elements, dtype)
        _, mean, rstd = cnorm.layer_norm(x, eps=trap.eps, return_stats=True)
        exact = oracle.layer_norm(x, eps=trap.eps)
        assert_mean(mean, exact)
        assert_rstd(rstd, exact)


def test_rstd_of_a_constant_row_without_eps_is_zero(dtype: Any) -> None:
    """So that gradients stay finite; with eps it is 1/sqrt(eps)."""
    x = np.full((3, 40), 0.1, dtype)
    assert (cnorm.layer_norm(x, eps=0.0, return_stats=True)[2] == 0).all()
    np.testing.assert_allclose(cnorm.layer_norm(x, eps=1e-4, return_stats=True)[2], 100, rtol=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e6])
def test_eps_is_inside_the_root(eps: float, dtype: Any) -> None:
    x = _input((4, 37), dtype)
    assert oracle.worst_units(cnorm.layer_norm(x, eps=eps), oracle.layer_norm(x, eps=eps)) <= BOUND


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    x = _input((4, 37), dtype)
    weight, bias = far_from_one(np.random.default_rng(3), (2, 37), dtype)
    wanted = cnorm.layer_norm(x, 37, weight, bias, return_stats=True)
    out = np.full_like(x, np.nan)
    result = cnorm.layer_norm(x, 37, weight, bias, out=out, return_stats=True)
    assert result[0] is out
    in_place = x.copy()
    assert cnorm.layer_norm(in_place, 37, weight, bias, out=in_place) is in_place
    np.testing.assert_array_equal(in_place, wanted[0])
    for ours, theirs in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_parameters_of_any_floating_type_are_used_in_the_compute_type(kind: Any, dtype: Any) -> None:
    x = _input((4, 37), dtype)
    weight, bias = np.random.default_rng(4).standard_normal((2, 37)).astype(kind)
    wanted = cnorm.layer_norm(x, 37, weight.astype(dtype), bias.astype(dtype))
    np.testing.assert_array_equal(cnorm.layer_norm(x, 37, weight, bias), wanted)


def test_positional_order_and_defaults_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.layer_norm).parameters
    ours = positional_parameters(cnorm.layer_norm)
    assert [name for name, _ in ours[1:]] == list(theirs)[1:]
    assert dict(ours)["eps"] == theirs["eps"].default == 1e-5
    assert dict(ours)["weight"] is dict(ours)["bias"] is dict(ours)["normalized_shape"] is None
    assert keyword_only(cnorm.layer_norm) == {"out": None, "return_stats": False}


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_pytorch_float64_agrees(shape: tuple[int, ...], axes: int, eps: float) -> None:
    x, trailing = _input(shape, np.float64), shape[-axes:]
    weight, bias = (far_from_one(np.random.default_rng(i), trailing, np.float64) for i in (5, 6))
    y, mean, rstd = cnorm.layer_norm(x, trailing, weight, bias, eps, return_stats=True)
    theirs = torch().native_layer_norm(tensor(x), trailing, tensor(weight), tensor(bias), eps)
    assert_parity(y, theirs[0], oracle.layer_norm(x, weight, bias, eps, axes=axes))
    assert mean.shape == tuple(theirs[1].shape)
    assert rstd.shape == tuple(theirs[2].shape)
    np.testing.assert_allclose(mean, theirs[1].numpy(), rtol=1e-13)
    np.testing.assert_allclose(rstd, theirs[2].numpy(), rtol=1e-13)


def test_empty_batches(dtype: Any) -> None:
    y, mean, rstd = cnorm.layer_norm(np.empty((0, 5), dtype), return_stats=True)
    assert y.shape == (0, 5)
    assert mean.shape == rstd.shape == (0, 1)
    assert y.dtype == mean.dtype == rstd.dtype == dtype
