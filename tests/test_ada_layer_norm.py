"""ada_layer_norm: values, a scale and shift for each sample, layouts, bits, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
import oracle
from conftest import THREAD_COUNTS
from peer import assert_parity, keyword_only, positional_parameters, tensor, torch
from placement import digest
from statistics_checks import assert_mean, assert_rstd
from traps import TRAPS

BOUND = 6.0

SHAPES = [(1, 1), (3, 7), (2, 5, 33), (4, 1, 65), (3, 2, 3, 70), (1, 3, 4099), (9, 4, 16)]


def rows_of(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (3 + 2 * np.random.default_rng([2, seed, *shape]).standard_normal(shape)).astype(dtype)


def modulation_of(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """As of models, around 0; and -1, which leaves nothing of xhat, and a little more."""
    values = np.random.default_rng([3, seed]).standard_normal((shape[0], shape[-1]))
    values[:, ::3] *= 1e-3
    values[:, 1::5] = -1
    values[:, 2::7] = 2.0**-23 - 1
    return values.astype(dtype)


def exact_of(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> oracle.Exact:
    """Layer norm's exact result of each sample; 1 + scale is added up in the compute type."""
    compute = oracle.compute_dtype(x.dtype)
    weight = scale.astype(compute).reshape(len(x), -1) + compute.type(1)
    bias = shift.astype(compute).reshape(len(x), -1)
    parts = [vars(oracle.layer_norm(*each, eps)) for each in zip(x, weight, bias, strict=True)]
    return oracle.Exact(**{name: np.stack([part[name] for part in parts]) for name in parts[0]})


def _assert_exact(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> None:
    y, mean, rstd = cnorm.ada_layer_norm(x, scale, shift, eps, return_stats=True)
    exact = exact_of(x, scale, shift, eps)
    assert y.dtype == x.dtype
    assert mean.shape == rstd.shape == (*x.shape[:-1], 1)
    assert oracle.worst_units(y, exact) <= BOUND
    assert_mean(mean, exact)
    assert_rstd(rstd, exact)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("eps", [1e-6, 0.3])
def test_every_rank(shape: tuple[int, ...], eps: float, dtype: Any) -> None:
    x, scale, shift = rows_of(shape, dtype), modulation_of(shape, dtype), modulation_of(shape, dtype, 1)
    _assert_exact(x, scale, shift, eps)
    long = (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
    np.testing.assert_array_equal(
        cnorm.ada_layer_norm(x, scale.reshape(long), shift.reshape(long)),
        cnorm.ada_layer_norm(x, scale, shift),
    )


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_traps(trap: Any, dtype: Any) -> None:
    for elements in (1, 9, 255, 4099):
        x = trap(15, elements, dtype).reshape(3, 5, elements)
        _assert_exact(x, modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1), trap.eps)


def test_every_tail(dtype: Any) -> None:
    for n in range(1, 71):
        x = rows_of((3, 4, n), dtype, n) + dtype.type(1e4)
        _assert_exact(x, modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1))


def test_constant_rows_give_the_shift(dtype: Any) -> None:
    x = np.full((2, 3, 40), 0.1, dtype)
    scale, shift = modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1)
    for eps in (0.0, 1e-5):
        y = cnorm.ada_layer_norm(x, scale, shift, eps)
        np.testing.assert_array_equal(y, np.repeat(shift[:, None], 3, axis=1))


def test_without_scale_and_shift_it_is_layer_norm(dtype: Any) -> None:
    x = rows_of((3, 5, 70), dtype)
    zeros = np.zeros((3, 70), dtype)
    np.testing.assert_array_equal(cnorm.ada_layer_norm(x, zeros, zeros), cnorm.layer_norm(x, bias=zeros[0]))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("other", [np.float16, np.float32, np.float64, ">f4"])
def test_any_type_of_each(kind: Any, other: Any) -> None:
    x, scale, shift = (
        rows_of((3, 5, 70), kind),
        modulation_of((3, 70), other),
        modulation_of((3, 70), other, 1),
    )
    y = cnorm.ada_layer_norm(x, scale, shift)
    exact = exact_of(x, scale, shift)
    low, high = oracle.rounded_range(exact, y.dtype, BOUND)
    assert y.dtype == kind
    assert ((low <= y.astype(oracle.Long)) & (y.astype(oracle.Long) <= high)).all()


@pytest.mark.parametrize("layout", layouts.ANY)
def test_every_layout(layout: str, dtype: Any) -> None:
    """And so large that a sample is cut into tiles of rows, or some samples make one."""
    for shape in ((3, 5, 33), (2, 700, 501), (300, 2, 501), (300, 5)):
        first = rows_of(shape, dtype), modulation_of(shape, dtype), modulation_of(shape, dtype, 1)
        wanted = cnorm.ada_layer_norm(*first, return_stats=True)
        arrays = [layouts.ANY[layout](a)[0] for a in first]
        kept = [a.copy() for a in arrays]
        for ours, theirs in zip(cnorm.ada_layer_norm(*arrays, return_stats=True), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for given, before in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(given, before)


def test_one_hash_over_levels_and_threads(dtype: Any) -> None:
    problems = []
    for trap in TRAPS:
        if trap.name in ("first element 1e8", "every magnitude", "rows of different kinds"):
            for shape in ((3, 5, 7), (5, 3, 255), (2, 3, 4099), (1, 2, 70_001)):
                x = trap(shape[0] * shape[1], shape[2], dtype).reshape(shape)
                problems.append((x, modulation_of(shape, dtype), modulation_of(shape, dtype, 1)))
    hashes = []
    for level, threads in itertools.product(cnorm.isa_levels(), THREAD_COUNTS):
        cnorm.set_isa(level)
        with cnorm.num_threads(threads):
            hashes.append([digest(cnorm.ada_layer_norm(*some, return_stats=True)) for some in problems])
    assert all(each == hashes[0] for each in hashes)


def test_bits_do_not_depend_on_the_batch(dtype: Any) -> None:
    x = rows_of((9, 5, 300), dtype)
    scale, shift = modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1)
    whole = cnorm.ada_layer_norm(x, scale, shift)
    for n in (0, 4, 8):
        some = slice(n, n + 1)
        np.testing.assert_array_equal(cnorm.ada_layer_norm(x[some], scale[some], shift[some])[0], whole[n])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float, dtype: Any) -> None:
    x = rows_of((3, 5, 70), dtype)
    scale, shift = modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1)
    wanted = cnorm.ada_layer_norm(x, scale, shift)
    x[1, 2, 40] = value
    y = cnorm.ada_layer_norm(x, scale, shift)
    assert np.isnan(y[1, 2]).all()
    y[1, 2] = wanted[1, 2]
    np.testing.assert_array_equal(y, wanted)


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    x = rows_of((3, 5, 70), dtype)
    scale, shift = modulation_of(x.shape, dtype), modulation_of(x.shape, dtype, 1)
    wanted = cnorm.ada_layer_norm(x, scale, shift)
    out = np.full_like(x, np.nan)
    assert cnorm.ada_layer_norm(x, scale, shift, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    for same in (x.copy(), np.asfortranarray(x), x.astype(x.dtype.newbyteorder("S"))):
        assert cnorm.ada_layer_norm(same, scale, shift, out=same) is same
        np.testing.assert_array_equal(same, wanted)


def test_positional_order_and_defaults() -> None:
    assert [name for name, _ in positional_parameters(cnorm.ada_layer_norm)] == ["x", "scale", "shift", "eps"]
    assert positional_parameters(cnorm.ada_layer_norm)[3][1] == 1e-5
    assert keyword_only(cnorm.ada_layer_norm) == {"out": None, "return_stats": False}


_X, _M = np.ones((2, 3, 4), np.float32), np.ones((2, 4), np.float32)
_SHARED = np.ones(40, np.float32)


@pytest.mark.parametrize(
    ("error", "word", "arguments", "options"),
    [
        (TypeError, "x", (_X.astype(int), _M, _M), {}),
        (ValueError, "x", (_X[0, 0], _M, _M), {}),
        (TypeError, "scale", (_X, _M.astype(int), _M), {}),
        (TypeError, "shift", (_X, _M, None), {}),
        (ValueError, "scale", (_X, _M[:1], _M), {}),
        (ValueError, "scale", (_X, _M[0], _M), {}),
        (ValueError, "scale", (_X, _X, _M), {}),
        (ValueError, "shift", (_X, _M, _M[:, :3]), {}),
        (ValueError, "eps", (_X, _M, _M, -1.0), {}),
        (ValueError, "eps", (_X, _M, _M, np.inf), {}),
        (TypeError, "out", (_X, _M, _M), {"out": np.ones((2, 3, 4))}),
        (ValueError, "out", (_X, _M, _M), {"out": np.ones((2, 3, 5), np.float32)}),
        (ValueError, "out", (_SHARED[:24].reshape(2, 3, 4), _M, _M), {"out": _SHARED[1:25].reshape(2, 3, 4)}),
        (ValueError, "out", (_X, _SHARED[:8].reshape(2, 4), _M), {"out": _SHARED[:24].reshape(2, 3, 4)}),
    ],
)
def test_wrong_arguments_are_named(error: Any, word: str, arguments: Any, options: Any) -> None:
    with pytest.raises(error, match=f"^{word}"):
        cnorm.ada_layer_norm(*arguments, **options)
    assert (_SHARED == 1).all()


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0)])
def test_empty_arrays(shape: tuple[int, ...], dtype: Any) -> None:
    modulation = np.ones((shape[0], shape[-1]), dtype)
    y, mean, rstd = cnorm.ada_layer_norm(np.empty(shape, dtype), modulation, modulation, return_stats=True)
    assert y.shape == shape
    assert mean.shape == rstd.shape == (*shape[:-1], 1)
    assert not mean.any()
    assert not rstd.any()


@pytest.mark.peers
@pytest.mark.parametrize("shape", SHAPES[2:])
def test_pytorch_float64_agrees(shape: tuple[int, ...]) -> None:
    x, scale, shift = (
        np.float64(f(shape, np.float64, i)) for i, f in enumerate([rows_of] + [modulation_of] * 2)
    )
    between = (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
    hat = torch().nn.functional.layer_norm(tensor(x), shape[-1:], eps=1e-6)
    theirs = hat * (1 + tensor(scale).view(between)) + tensor(shift).view(between)
    assert_parity(cnorm.ada_layer_norm(x, scale, shift, 1e-6), theirs, exact_of(x, scale, shift, 1e-6))
