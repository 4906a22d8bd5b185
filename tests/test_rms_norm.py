"""rms_norm: values, default eps, weight offset, casting, statistics, and PyTorch's meaning of arguments."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from norms import far_from_one
from peer import assert_parity, keyword_only, positional_parameters, tensor, torch
from statistics_checks import assert_rstd
from traps import TRAPS

BOUND = 6.0

SHAPES = [((7,), 1), ((1, 1), 1), ((5, 33), 1), ((5, 33), 2), ((2, 3, 65), 1), ((2, 3, 65), 2),
          ((2, 3, 65), 3), ((2, 1, 3, 5, 7), 2), ((3, 1, 4099), 2)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (1 + 2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25])
def test_scale_does_not_matter(scale: float) -> None:
    x = np.array([1, 2, 3, 4], np.float64) * scale
    wanted = np.array([1, 2, 3, 4]) / np.sqrt(7.5)
    np.testing.assert_allclose(cnorm.rms_norm(x, eps=0.0), wanted, rtol=1e-15)
    np.testing.assert_allclose(cnorm.rms_norm(x.astype(np.float32), eps=0.0), wanted, rtol=6 * 2.0**-24)


def test_float16_thousands_are_ones() -> None:
    """Their squares are beyond float16."""
    x = np.full(1024, 1000, np.float16)
    np.testing.assert_array_equal(cnorm.rms_norm(x), np.ones(1024, np.float16))


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1.0, -2.5])
def test_every_trailing_shape(
    shape: tuple[int, ...], axes: int, with_weight: bool, with_bias: bool, offset: float, dtype: Any
) -> None:
    x = _input(shape, dtype)
    trailing = shape[-axes:]
    rng = np.random.default_rng(1)
    weight = far_from_one(rng, trailing, dtype) if with_weight else None
    bias = far_from_one(rng, trailing, dtype) if with_bias else None
    y = cnorm.rms_norm(x, trailing, weight, 1e-5, bias=bias, weight_offset=offset)
    exact = oracle.rms_norm(x, weight, bias, 1e-5, axes=axes, weight_offset=offset)
    assert oracle.worst_units(y, exact) <= BOUND
    assert y.dtype == dtype


def test_weight_offset_is_added_in_the_compute_type() -> None:
    """1 + 2**-25 is 1 in float32, and xhat + weight * xhat would be far out near a weight of -1."""
    x = _input((50, 6), np.float32)
    weight = np.array([2.0**-25, -1 + 2.0**-20, 3, -1, 0, 0.1], np.float32)
    y = cnorm.rms_norm(x, 6, weight, 0.0, weight_offset=1.0)
    np.testing.assert_array_equal(y, cnorm.rms_norm(x, 6, np.float32(1) + weight, 0.0))
    assert oracle.worst_units(y, oracle.rms_norm(x, weight, eps=0.0, weight_offset=1.0)) <= BOUND
    assert not y[:, 3].any()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_default_eps_is_the_compute_types_epsilon(kind: Any) -> None:
    """Values whose squares are about that epsilon, so that any other default shows."""
    compute = np.float64 if kind is np.float64 else np.float32
    eps = float(np.finfo(compute).eps)
    x = (np.random.default_rng(2).standard_normal((3, 50)) * np.sqrt(eps)).astype(kind)
    np.testing.assert_array_equal(cnorm.rms_norm(x), cnorm.rms_norm(x, eps=eps))
    assert not np.array_equal(cnorm.rms_norm(x), cnorm.rms_norm(x, eps=2 * eps))


def test_statistics_have_the_kept_axes(dtype: Any) -> None:
    x = _input((4, 6, 5), dtype)
    for axes in (1, 2, 3):
        result = cnorm.rms_norm(x, x.shape[-axes:], return_stats=True)
        assert type(result) is tuple
        assert len(result) == 2
        y, rstd = result
        assert rstd.shape == x.shape[:-axes] + (1,) * axes
        assert rstd.dtype == dtype
        assert_rstd(rstd, oracle.rms_norm(x, eps=float(np.finfo(dtype).eps), axes=axes))
        np.testing.assert_array_equal(y, cnorm.rms_norm(x, x.shape[-axes:]))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_statistics_of_the_traps(trap: Any, dtype: Any) -> None:
    for rows, elements in ((15, 1), (15, 9), (15, 255), (5, 8199)):
        x = trap(rows, elements, dtype)
        rstd = cnorm.rms_norm(x, eps=trap.eps, return_stats=True)[1]
        assert_rstd(rstd, oracle.rms_norm(x, eps=trap.eps))


def test_zero_rows_without_eps_give_the_bias(dtype: Any) -> None:
    bias = far_from_one(np.random.default_rng(3), 40, dtype)
    y, rstd = cnorm.rms_norm(np.zeros((3, 40), dtype), eps=0.0, bias=bias, return_stats=True)
    np.testing.assert_array_equal(y, np.tile(bias, (3, 1)))
    assert not rstd.any()


def test_llama_casting_is_within_the_promise_without_16_bits_too(dtype: Any) -> None:
    """xhat rounded to x's own type before the weight is one more rounding; "once" is the default."""
    x = _input((4, 37), dtype)
    weight, bias = far_from_one(np.random.default_rng(4), (2, 37), dtype)
    exact = oracle.rms_norm(x, weight, bias, float(np.finfo(dtype).eps))
    assert oracle.worst_units(cnorm.rms_norm(x, 37, weight, bias=bias, casting="llama"), exact) <= BOUND
    once = cnorm.rms_norm(x, 37, weight, bias=bias, casting="once")
    np.testing.assert_array_equal(once, cnorm.rms_norm(x, 37, weight, bias=bias))


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    x = _input((4, 37), dtype)
    weight = far_from_one(np.random.default_rng(5), 37, dtype)
    wanted, rstd = cnorm.rms_norm(x, 37, weight, return_stats=True)
    out = np.full_like(x, np.nan)
    result = cnorm.rms_norm(x, 37, weight, out=out, return_stats=True)
    assert result[0] is out
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(result[1], rstd)
    in_place = x.copy()
    assert cnorm.rms_norm(in_place, 37, weight, out=in_place) is in_place
    np.testing.assert_array_equal(in_place, wanted)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", ">f8"])
def test_parameters_of_any_floating_type_are_used_in_the_compute_type(kind: Any, dtype: Any) -> None:
    x = _input((4, 37), dtype)
    weight, bias = np.random.default_rng(6).standard_normal((2, 37)).astype(kind)
    wanted = cnorm.rms_norm(x, 37, weight.astype(dtype), bias=bias.astype(dtype), weight_offset=1.0)
    np.testing.assert_array_equal(cnorm.rms_norm(x, 37, weight, bias=bias, weight_offset=1.0), wanted)


def test_positional_order_and_defaults_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.rms_norm).parameters
    ours = positional_parameters(cnorm.rms_norm)
    assert [name for name, _ in ours[1:]] == list(theirs)[1:]
    assert all(default is None for _, default in ours[1:])
    assert theirs["eps"].default is None
    assert keyword_only(cnorm.rms_norm) == {
        "bias": None, "weight_offset": 0.0, "casting": "once", "out": None, "return_stats": False,
    }  # fmt: skip


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("eps", [None, 1e-5, 0.3])
def test_pytorch_float64_agrees(shape: tuple[int, ...], axes: int, eps: float | None) -> None:
    x, trailing = _input(shape, np.float64), shape[-axes:]
    weight = far_from_one(np.random.default_rng(7), trailing, np.float64)
    y = cnorm.rms_norm(x, trailing, weight, eps)
    theirs = torch().nn.functional.rms_norm(tensor(x), trailing, tensor(weight), eps)
    used = float(np.finfo(np.float64).eps) if eps is None else eps
    assert_parity(y, theirs, oracle.rms_norm(x, weight, None, used, axes=axes))


def test_empty_batches(dtype: Any) -> None:
    y, rstd = cnorm.rms_norm(np.empty((0, 5), dtype), return_stats=True)
    assert y.shape == (0, 5)
    assert rstd.shape == (0, 1)
