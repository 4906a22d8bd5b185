"""normalize: values, every order, axis and layout, bits, NaN, arguments, and PyTorch's meaning."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import vector_oracle as oracle
from cnorm import _backend
from conftest import THREAD_COUNTS
from peer import positional_parameters, tensor, torch
from placement import at_offset, digest, offsets
from traps import TRAPS

ORDERS = [2.0, 1.0, math.inf, 3, 0.5, 2.5]

#: Short rows, rows of every remainder, one and several blocks, columns, a middle axis, long rows, tall ones.
SHAPES = [((7,), 0), ((5, 1), 1), ((1, 5), 0), ((70, 24), 1), ((70, 25), 1), ((3, 4099), 1),
          ((33, 5), 0), ((4, 3, 700), 1), ((2, 65, 3), 1), ((2, 3, 5, 7), 2), ((2, 1, 9), 1),
          ((2, 903, 301), 1)]  # fmt: skip


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (1 + 2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def _assert_exact(y: np.ndarray, x: np.ndarray, p: float = 2.0, axis: int = -1, eps: float = 1e-12) -> None:
    exact = oracle.normalize(x, p, axis, eps)
    assert oracle.units(y, exact, oracle.row_scale(exact, axis), x.dtype) <= oracle.FORWARD


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_every_order_and_axis(shape: tuple[int, ...], axis: int, p: float, dtype: Any) -> None:
    x = _input(shape, dtype)
    y = cnorm.normalize(x, p, axis)
    assert y.dtype == dtype
    _assert_exact(y, x, p, axis)
    np.testing.assert_array_equal(y, cnorm.normalize(x, p, axis - x.ndim))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_traps(trap: Any, dtype: Any) -> None:
    for rows, elements in ((15, 1), (15, 9), (5, 255), (2, 8199)):
        x = trap(rows, elements, dtype)
        for p in (2.0, 1.0, math.inf):
            _assert_exact(cnorm.normalize(x, p, eps=0.0), x, p, eps=0.0)
        _assert_exact(cnorm.normalize(x), x)
        columns = np.ascontiguousarray(x.T)
        _assert_exact(cnorm.normalize(columns, axis=0), columns, axis=0)


def test_every_length(dtype: Any) -> None:
    for n in range(1, 71):
        x = _input((3, n), dtype, n)
        for p in (2.0, 1.0, math.inf):
            _assert_exact(cnorm.normalize(x, p), x, p)


def test_long_vectors_in_pieces(dtype: Any) -> None:
    for shape, axis in (((1, 300_001), 1), ((3, 150_000), 1), ((70_000, 2), 0)):
        x = _input(shape, dtype)
        _assert_exact(cnorm.normalize(x, axis=axis), x, axis=axis)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    ("p", "count", "root"), [(3, 27, 3), (2.5, 32, 4), (1.5, 8, 4), (0.5, 9, 81), (11, 2048, 2)]
)
def test_whole_roots_are_exact(p: float, count: int, root: int, dtype: Any) -> None:
    """The kernels' own powers, which have the same bits on every machine."""
    x = np.full((2, count), [[1], [-3]], dtype)
    np.testing.assert_array_equal(cnorm.normalize(x, p), np.sign(x) / root)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [1000, 1e-4])
def test_four_equal_values_are_halves(kind: Any, value: float) -> None:
    """Squares of these are beyond float16, and so is an eps of 1e-12."""
    y = cnorm.normalize(np.full(4, value, kind))
    assert y.dtype == kind
    np.testing.assert_array_equal(y, np.full(4, 0.5, kind))


def test_bfloat16_is_rounded_once() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = _input((9, 33), np.float32).astype(bfloat16)
    np.testing.assert_array_equal(cnorm.normalize(x), cnorm.normalize(x.astype(np.float32)).astype(bfloat16))


@pytest.mark.parametrize("p", ORDERS)
def test_norms_alone_are_those_beside_the_quotients(p: float, dtype: Any) -> None:
    for shape in ((7, 24, 1), (3, 4099, 1), (2, 200_000, 1), (3, 65, 70)):
        x = _input(shape, dtype)
        x[0, :, 0] *= np.finfo(dtype).tiny
        x[1, 2, 0] = np.inf
        x[-1, :, -1] = 0
        beside, alone = np.full((2, shape[0] * shape[2]), 7, dtype)
        _backend.active.normalize(x, p, 0.0, np.empty_like(x), beside)
        before = x.copy()
        _backend.active.normalize(x, p, 0.0, None, alone)
        np.testing.assert_array_equal(alone, beside)
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-3])
def test_zeros_stay_zeros(p: float, eps: float, dtype: Any) -> None:
    x = np.zeros((3, 40), dtype)
    assert not cnorm.normalize(x, p, eps=eps).any()
    assert not cnorm.normalize(x.T, p, 0, eps).any()


@pytest.mark.parametrize("eps", [1e-3, 1.0, 1e30, 1e-30])
def test_eps_bounds_the_norm(eps: float, dtype: Any) -> None:
    x = _input((6, 50), dtype) * np.array([[1e-5], [1e-4], [1], [0], [1e-25], [1e-37]], dtype)
    _assert_exact(cnorm.normalize(x, eps=eps), x, eps=eps)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("p", ORDERS)
def test_non_finite_values_stay_in_their_vector(p: float, bad: float, dtype: Any) -> None:
    for n in (5, 40):
        x = _input((6, n), dtype)
        wanted = cnorm.normalize(x, p)
        x[2, 1] = bad
        y = cnorm.normalize(x, p)
        columns = cnorm.normalize(np.ascontiguousarray(x.T), p, 0)
        assert np.isnan(y[2]).all()
        assert np.isnan(columns[:, 2]).all()
        assert np.isfinite(np.delete(columns, 2, 1)).all()
        np.testing.assert_array_equal(np.delete(y, 2, 0), np.delete(wanted, 2, 0))


@pytest.mark.parametrize("layout", layouts.ANY.values(), ids=layouts.ANY)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_layouts(layout: layouts.Layout, kind: Any) -> None:
    x = _input((4, 33, 6), kind)
    given, _ = layout(x)
    before = given.copy()
    for axis in (0, 1, 2):
        wanted = cnorm.normalize(x, axis=axis)
        y = cnorm.normalize(given, axis=axis)
        tolerance = 4 * np.finfo(kind).eps
        np.testing.assert_allclose(y.astype(np.float64), wanted.astype(np.float64), rtol=tolerance)
        assert y.dtype == given.dtype
    np.testing.assert_array_equal(given, before)


def test_a_transposed_view_keeps_its_order(dtype: Any) -> None:
    x = np.moveaxis(_input((2, 5, 7, 64), dtype), -1, 1)
    y = cnorm.normalize(x, axis=1)
    assert y.strides == x.strides
    _assert_exact(y, x, axis=1)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("p", [2.0, 1.0, math.inf, 3.0])
def test_bits_do_not_depend_on_level_or_threads(p: float, dtype: Any) -> None:
    inputs = [(_input(shape, dtype), axis) for shape, axis in SHAPES]
    inputs += [(_input((400, 768), dtype), 1), (_input((64, 4096), dtype), 0)]
    if p < 3:
        inputs += [(_input((2, 200_000), dtype), 1)]
    seen = set()
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            cnorm.set_num_threads(threads)
            seen.add(digest(cnorm.normalize(x, p, axis) for x, axis in inputs))
    assert len(seen) == 1


@pytest.mark.usefixtures("native")
def test_bits_do_not_depend_on_place(dtype: Any) -> None:
    for n in (3, 40, 5000):
        x = _input((67, n), dtype)
        y = cnorm.normalize(x)
        for row in (0, 1, 63, 64, 66):
            np.testing.assert_array_equal(cnorm.normalize(x[row : row + 1].copy()), y[row : row + 1])
        for offset in offsets(dtype.itemsize)[:-1]:
            np.testing.assert_array_equal(cnorm.normalize(at_offset(x, offset)), y)


def test_out_receives_and_may_be_x(dtype: Any) -> None:
    for axis in (0, 1):
        x = _input((30, 37), dtype)
        wanted, out = cnorm.normalize(x, axis=axis), np.full_like(x, np.nan)
        assert cnorm.normalize(x, axis=axis, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        assert cnorm.normalize(x, axis=axis, out=x) is x
        np.testing.assert_array_equal(x, wanted)


def test_empty_arrays(dtype: Any) -> None:
    for shape in ((0, 5), (5, 0), (0,)):
        for axis in range(len(shape)):
            assert cnorm.normalize(np.empty(shape, dtype), axis=axis).shape == shape


X = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        ({"x": [1.0]}, TypeError, "x"),
        ({"x": np.ones(3, int)}, TypeError, "x"),
        ({"x": np.float32(1)}, ValueError, "x"),
        ({"p": 0}, ValueError, "p"),
        ({"p": -1.0}, ValueError, "p"),
        ({"p": math.nan}, ValueError, "p"),
        ({"p": "2"}, TypeError, "p"),
        ({"axis": 2}, ValueError, "axis"),
        ({"axis": -3}, ValueError, "axis"),
        ({"axis": 1.0}, TypeError, "axis"),
        ({"axis": None}, TypeError, "axis"),
        ({"eps": -1e-9}, ValueError, "eps"),
        ({"eps": math.nan}, ValueError, "eps"),
        ({"eps": math.inf}, ValueError, "eps"),
        ({"out": np.ones((4, 3), np.float32)}, ValueError, "out"),
        ({"out": np.ones((3, 4))}, TypeError, "out"),
        ({"out": X[::-1]}, ValueError, "out"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.normalize(**{"x": X, **arguments})


@pytest.mark.peers
@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_pytorch_float64_agrees(shape: tuple[int, ...], axis: int, p: float) -> None:
    x = _input(shape, np.float64)
    theirs = torch().nn.functional.normalize(tensor(x), p, axis)
    np.testing.assert_allclose(cnorm.normalize(x, p, axis), theirs.numpy(), rtol=1e-13, atol=1e-300)


def test_arguments_are_pytorchs() -> None:
    theirs = inspect.signature(torch().nn.functional.normalize).parameters
    ours = positional_parameters(cnorm.normalize)
    assert [default for _, default in ours[1:]] == [2.0, -1, 1e-12]
    assert [name for name, _ in ours] == ["x", "p", "axis", "eps"]
    assert list(theirs)[:4] == ["input", "p", "dim", "eps"]
