"""adain: values, statistics, layouts of two arrays, bits, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import adain_oracle
import cnorm
import layouts
import oracle
from conftest import THREAD_COUNTS
from peer import assert_parity, keyword_only, positional_parameters, tensor, torch
from placement import digest
from statistics_checks import assert_mean, assert_rstd
from traps import TRAPS

BOUND = 6.0

SHAPES = [((3, 5, 33), (3, 5, 70)), ((1, 1, 2), (1, 1, 9)), ((2, 3, 7, 9), (2, 3, 5, 6)),
          ((2, 5, 1, 1), (2, 5, 3, 1)), ((2, 5, 11), (2, 5, 1)), ((1, 33, 3, 5, 7), (1, 33, 64)),
          ((4, 2, 4099), (4, 2, 100))]  # fmt: skip


def _maps(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([1, seed, *shape])
    scale = 10.0 ** rng.uniform(-1, 1, (shape[0], shape[1], *(1 for _ in shape[2:])))
    return (scale * (3 + rng.standard_normal(shape))).astype(dtype)


def _last(x: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, axis))


def _assert_exact(content: np.ndarray, style: np.ndarray, eps: float = 1e-5, **options: Any) -> None:
    y, *stats = cnorm.adain(content, style, eps, return_stats=True, **options)
    exact, exact_style = adain_oracle.adain(content, style, eps, **options)
    assert y.dtype == content.dtype
    assert oracle.worst_units(y, exact) <= BOUND
    for mean, rstd, wanted in ((*stats[:2], exact), (*stats[2:], exact_style)):
        assert mean.shape == rstd.shape == wanted.mean.shape
        assert_mean(mean, wanted)
        assert_rstd(rstd, wanted)


@pytest.mark.parametrize(("shape", "style_shape"), SHAPES)
@pytest.mark.parametrize("unbiased", [True, False])
def test_every_rank_axis_and_size(shape: Any, style_shape: Any, unbiased: bool, dtype: Any) -> None:
    content, style = _maps(shape, dtype), _maps(style_shape, dtype, 1)
    for axis in (1, -1):
        _assert_exact(_last(content, axis), _last(style, axis), axis=axis, unbiased=unbiased)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize("axis", [1, -1])
def test_traps_in_content_style_and_both(trap: Any, axis: int, dtype: Any) -> None:
    normal = _last(_maps((3, 5, 40), dtype), axis)
    for elements in (1, 2, 9, 255, 1030):
        x = _last(trap(15, elements, dtype).reshape(3, 5, elements), axis)
        other = _last(trap(15, 33, dtype).reshape(3, 5, 33), axis)
        _assert_exact(x, normal, trap.eps, axis=axis)
        _assert_exact(normal, x, trap.eps, axis=axis)
        _assert_exact(x, other, trap.eps, axis=axis, unbiased=elements % 2 == 0)


@pytest.mark.parametrize("axis", [1, -1])
def test_every_tail(axis: int, dtype: Any) -> None:
    for n in range(1, 71):
        content, style = (_maps((2, 3, m), dtype, n) + 1e3 for m in (n, 71 - n))
        _assert_exact(_last(content, axis), _last(style, axis), axis=axis)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize("unbiased", [True, False])
def test_a_style_equal_to_the_content_gives_it_back(trap: Any, unbiased: bool, dtype: Any) -> None:
    for elements, axis in itertools.product((1, 9, 1030), (1, -1)):
        x = _last(trap(15, elements, dtype).reshape(3, 5, elements), axis)
        y = cnorm.adain(x, x, trap.eps, axis=axis, unbiased=unbiased)
        exact, _ = adain_oracle.adain(x, x, trap.eps, axis=axis, unbiased=unbiased)
        wide, largest = x.astype(oracle.Long), np.finfo(dtype).max
        y = np.clip(y, -largest, largest)  # the largest number may be rounded up to infinity
        worst = oracle.units(y, wide, exact.xhat, exact.weight, exact.bias, dtype).max()
        assert worst <= BOUND


def test_constant_content_becomes_the_mean_of_the_style(dtype: Any) -> None:
    content = np.full((2, 3, 40), 0.1, dtype)
    style = np.repeat(np.array([[1e4, -2, 0.3], [7, 8, 0]], dtype)[..., None], 16, axis=2)
    style[..., ::2] += 1  # the mean is a number of the type
    for axis in (1, -1):
        y = cnorm.adain(_last(content, axis), _last(style, axis), axis=axis)
        wanted = style.mean(axis=2, dtype=np.float64).astype(dtype)
        np.testing.assert_array_equal(np.moveaxis(y, axis, 1), np.repeat(wanted[..., None], 40, axis=2))


def test_one_position_is_finite_either_way(dtype: Any) -> None:
    """The variance of one value is 0, where n - 1 would divide by it."""
    one, many = _maps((2, 3, 1, 1), dtype), _maps((2, 3, 4, 4), dtype)
    mean = np.broadcast_to(many.mean((2, 3), keepdims=True, dtype=np.float64), one.shape)
    np.testing.assert_allclose(cnorm.adain(one, many), mean, rtol=1e-6)
    assert np.isfinite(cnorm.adain(many, one)).all()
    np.testing.assert_array_equal(cnorm.adain(one, 2 * one), 2 * one)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("style_kind", [np.float16, np.float32, np.float64, ">f4"])
def test_any_type_of_either(kind: Any, style_kind: Any) -> None:
    """16 bits are computed in float32 and rounded once; the style is used in the content's compute type."""
    content, style = _maps((2, 3, 50), kind), _maps((2, 3, 33), style_kind, 1)
    y, *stats = cnorm.adain(content, style, return_stats=True)
    exact, _ = adain_oracle.adain(content, style)
    assert y.dtype == kind
    assert {s.dtype for s in stats} == {oracle.compute_dtype(kind)}
    low, high = oracle.rounded_range(exact, y.dtype, BOUND)
    assert ((low <= y.astype(oracle.Long)) & (y.astype(oracle.Long) <= high)).all()


@pytest.mark.parametrize("content_layout", [*layouts.ANY, "channels last view"])
@pytest.mark.parametrize(
    "style_layout", ["contiguous", "steps", "columns", "other byte order", "channels last view"]
)
def test_every_pair_of_layouts(content_layout: str, style_layout: str, dtype: Any) -> None:
    """And large enough that tiles are cut: some samples, and some of the channels."""
    every = layouts.of(channels=True, batch=False)
    for batch, channels, n, m in ((3, 5, 33, 20), (3, 70, 3001, 900)):
        content, style = _maps((batch, channels, n), dtype), _maps((batch, channels, m), dtype, 1)
        wanted = cnorm.adain(content, style, return_stats=True)
        x, axis = every[content_layout](content)
        s, _ = every[style_layout](style)
        before = x.copy(), s.copy()
        result = cnorm.adain(x, s, axis=axis, return_stats=True)
        for ours, theirs in zip(result, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
        np.testing.assert_array_equal(x, before[0])
        np.testing.assert_array_equal(s, before[1])


def _problems(dtype: Any) -> list[tuple[np.ndarray, np.ndarray, int]]:
    result = []
    for trap in TRAPS:
        if trap.name in ("first element 1e8", "every magnitude", "rows of different kinds"):
            for n, m in ((7, 255), (4099, 70), (50_001, 33_000))[: 3 if trap.name[0] == "f" else 2]:
                content, style = (trap(6, k, dtype).reshape(2, 3, k) for k in (n, m))
                result += [(_last(content, axis), _last(style, axis), axis) for axis in (1, -1)]
    result += [(_maps((9, 70, 300), dtype), _maps((9, 70, 200), dtype), 1)]
    return result


def test_one_hash_over_levels_and_threads(dtype: Any) -> None:
    problems = _problems(dtype)
    hashes = []
    for level, threads in itertools.product(cnorm.isa_levels(), THREAD_COUNTS):
        cnorm.set_isa(level)
        with cnorm.num_threads(threads):
            hashes.append(
                [digest(cnorm.adain(x, s, axis=axis, return_stats=True)) for x, s, axis in problems]
            )
    assert all(each == hashes[0] for each in hashes)


@pytest.mark.parametrize("axis", [1, -1])
def test_bits_do_not_depend_on_the_batch(axis: int, dtype: Any) -> None:
    content, style = (_last(_maps((9, 5, n), dtype, n), axis) for n in (300, 70))
    whole = cnorm.adain(content, style, axis=axis)
    for n in (0, 4, 8):
        alone = cnorm.adain(content[n : n + 1], style[n : n + 1], axis=axis)
        np.testing.assert_array_equal(alone[0], whole[n])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("where", ["content", "style"])
def test_what_is_not_finite_stays_in_its_channel(value: float, axis: int, where: str, dtype: Any) -> None:
    content, style = _maps((3, 5, 300), dtype), _maps((3, 5, 70), dtype)
    wanted = cnorm.adain(_last(content, axis), _last(style, axis), axis=axis)
    (content if where == "content" else style)[1, 2, 40] = value
    y = np.moveaxis(cnorm.adain(_last(content, axis), _last(style, axis), axis=axis), axis, 1)
    assert np.isnan(y[1, 2]).all()
    others = np.ones((3, 5), bool)
    others[1, 2] = False
    np.testing.assert_array_equal(y[others], np.moveaxis(wanted, axis, 1)[others])


def test_out_receives_and_is_the_result(dtype: Any) -> None:
    content, style = _maps((2, 5, 11), dtype), _maps((2, 5, 7), dtype)
    wanted = cnorm.adain(content, style)
    out = np.full_like(content, np.nan)
    assert cnorm.adain(content, style, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    for x in (content.copy(), np.asfortranarray(content), content.astype(content.dtype.newbyteorder("S"))):
        assert cnorm.adain(x, style, out=x) is x
        np.testing.assert_allclose(x, wanted, rtol=1e-5)


def test_positional_order_and_defaults() -> None:
    required = (cnorm.adain.__name__, positional_parameters(cnorm.adain))
    assert [name for name, _ in required[1]] == ["content", "style", "eps"]
    assert required[1][2][1] == 1e-5
    assert keyword_only(cnorm.adain) == {"axis": 1, "unbiased": True, "out": None, "return_stats": False}


_X = np.ones((2, 3, 4), np.float32)
_SHARED = np.ones(40, np.float32)


@pytest.mark.parametrize(
    ("error", "word", "content", "style", "options"),
    [
        (TypeError, "content", _X.astype(int), _X, {}),
        (TypeError, "style", _X, _X.astype(complex), {}),
        (TypeError, "content", [[1.0]], _X, {}),
        (ValueError, "content", _X[0, 0], _X, {}),
        (ValueError, "style", _X, _X[:, 0], {}),
        (ValueError, "style", _X, _X[:1], {}),
        (ValueError, "style", _X, _X[:, :2], {}),
        (ValueError, "style", _X, _X[:, :, :0], {}),
        (ValueError, "style", _X, _X[0, 0], {}),
        (ValueError, "axis", _X, _X, {"axis": 0}),
        (ValueError, "axis", _X, _X, {"axis": 3}),
        (TypeError, "axis", _X, _X, {"axis": 1.0}),
        (ValueError, "eps", _X, _X, {"eps": -1e-9}),
        (ValueError, "eps", _X, _X, {"eps": np.nan}),
        (TypeError, "eps", _X, _X, {"eps": "1"}),
        (TypeError, "out", _X, _X, {"out": np.ones((2, 3, 4))}),
        (TypeError, "out", _X, _X, {"out": [1]}),
        (ValueError, "out", _X, _X, {"out": np.ones((2, 3, 5), np.float32)}),
        (ValueError, "out", _X, _X, {"out": np.broadcast_to(np.float32(1), (2, 3, 4))}),
        (ValueError, "out", _SHARED[:24].reshape(2, 3, 4), _X, {"out": _SHARED[1:25].reshape(2, 3, 4)}),
        (ValueError, "out", _X, _SHARED[:24].reshape(2, 3, 4), {"out": _SHARED[:24].reshape(2, 3, 4)}),
    ],
)
def test_wrong_arguments_are_named(error: Any, word: str, content: Any, style: Any, options: Any) -> None:
    with pytest.raises(error, match=f"^{word}"):
        cnorm.adain(content, style, **options)
    assert (_SHARED == 1).all()


def test_empty_arrays(dtype: Any) -> None:
    style = np.ones((2, 3, 5), dtype)
    for shape, other in (
        ((2, 3, 0), (2, 3, 5)),
        ((0, 3, 4), (0, 3, 5)),
        ((2, 0, 4), (2, 0, 5)),
        ((2, 3, 0),) * 2,
    ):
        y, *stats = cnorm.adain(
            np.empty(shape, dtype), style[: other[0], : other[1], : other[2]], return_stats=True
        )
        assert y.shape == shape
        assert all(s.shape == shape[:2] and not s.any() for s in stats)


def _calc_mean_std(x: Any, eps: float, unbiased: bool) -> tuple[Any, Any]:
    """As style transfer code composes it."""
    rows = x.view(x.shape[0], x.shape[1], -1)
    mean, std = rows.mean(dim=2), (rows.var(dim=2, unbiased=unbiased) + eps).sqrt()
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    return mean.view(shape), std.view(shape)


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "style_shape"), SHAPES[:3])
@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_pytorch_float64_agrees(shape: Any, style_shape: Any, unbiased: bool, eps: float) -> None:
    torch()
    content, style = _maps(shape, np.float64), _maps(style_shape, np.float64, 1)
    mean, std = _calc_mean_std(tensor(content), eps, unbiased)
    style_mean, style_std = _calc_mean_std(tensor(style), eps, unbiased)
    theirs = (tensor(content) - mean) / std * style_std + style_mean
    exact, _ = adain_oracle.adain(content, style, eps, unbiased=unbiased)
    assert_parity(cnorm.adain(content, style, eps, unbiased=unbiased), theirs, exact)
