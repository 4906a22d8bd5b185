"""normalize_backward: every order and axis, traps, PyTorch's gradients, differences, bits, arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import vector_oracle as oracle
from conftest import THREAD_COUNTS
from peer import tensor, torch
from placement import digest
from test_normalize import ORDERS, SHAPES, _input
from traps import TRAPS


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _assert_exact(
    dx: np.ndarray, dy: np.ndarray, x: np.ndarray, p: float = 2.0, axis: int = -1, eps: float = 1e-12
) -> None:
    exact, scale = oracle.normalize_backward(dy, x, p, axis, eps)
    largest = float(np.finfo(x.dtype).max)
    inside = np.isfinite(dx) | (np.abs(exact) < largest)  # beyond the range, infinity is right
    exact = np.where(inside, exact, 0)
    assert oracle.units(np.where(inside, dx, 0), exact, scale, x.dtype) <= oracle.BACKWARD


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_every_order_and_axis(shape: tuple[int, ...], axis: int, p: float, dtype: Any) -> None:
    x, dy = _input(shape, dtype), _upstream(shape, dtype)
    grads = cnorm.normalize_backward(dy, x, p, axis)
    assert grads._fields == ("x",)
    assert grads.x.dtype == dtype
    _assert_exact(grads.x, dy, x, p, axis)
    if shape[axis] == 1:
        assert not grads.x.any()


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_traps(trap: Any, dtype: Any) -> None:
    for rows, elements in ((15, 1), (15, 9), (5, 255), (2, 8199)):
        x = trap(rows, elements, dtype)
        for dy in (
            _upstream(x.shape, dtype),
            TRAPS[28](rows, elements, dtype),
            TRAPS[29](rows, elements, dtype),
        ):
            for p in (2.0, 1.0, math.inf):
                _assert_exact(cnorm.normalize_backward(dy, x, p).x, dy, x, p)
            columns, upstream = np.ascontiguousarray(x.T), np.ascontiguousarray(dy.T)
            dx = cnorm.normalize_backward(upstream, columns, axis=0, eps=0.0).x
            _assert_exact(dx, upstream, columns, axis=0, eps=0.0)


def test_long_vectors_in_pieces(dtype: Any) -> None:
    for shape, axis in (((1, 300_001), 1), ((3, 150_000), 1), ((70_000, 2), 0)):
        x, dy = _input(shape, dtype), _upstream(shape, dtype)
        _assert_exact(cnorm.normalize_backward(dy, x, axis=axis).x, dy, x, axis=axis)


@pytest.mark.parametrize("p", ORDERS)
def test_zeros(p: float, dtype: Any) -> None:
    """Below eps the norm is a constant; without eps there is no gradient."""
    x, dy = np.zeros((3, 40), dtype), _upstream((3, 40), dtype)
    assert not cnorm.normalize_backward(dy, x, p, eps=0.0).x.any()
    np.testing.assert_allclose(cnorm.normalize_backward(dy, x, p, eps=0.5).x, 2 * dy)


@pytest.mark.parametrize("p", ORDERS)
def test_dx_is_orthogonal_to_x(p: float) -> None:
    """A longer vector has the same direction."""
    x, dy = _input((6, 50), np.float64), _upstream((6, 50), np.float64)
    dx = cnorm.normalize_backward(dy, x, p).x
    np.testing.assert_allclose((dx * x).sum(1), 0, atol=1e-13)


@pytest.mark.parametrize("p", [2.0, 1.0, math.inf])
def test_sparse_and_orthogonal_gradients(p: float, dtype: Any) -> None:
    """Sums that are exactly or almost 0, at any magnitude."""
    x = np.zeros((4, 40), dtype)
    x[:, 0], x[:, 1] = 3, -2
    dy = np.zeros_like(x)
    dy[0, 5], dy[1, 5], dy[2, 5], dy[3, 0] = 1, 1e-35, 1e35, 1e-20
    _assert_exact(cnorm.normalize_backward(dy, x, p).x, dy, x, p)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("p", ORDERS)
def test_non_finite_values_stay_in_their_vector(p: float, which: int, bad: float, dtype: Any) -> None:
    for n in (5, 40):
        arrays = [_upstream((6, n), dtype), _input((6, n), dtype)]
        wanted = cnorm.normalize_backward(*arrays, p).x
        arrays[which][2, 1] = bad
        dx = cnorm.normalize_backward(*arrays, p).x
        assert np.isnan(dx[2]).all()
        np.testing.assert_array_equal(np.delete(dx, 2, 0), np.delete(wanted, 2, 0))


@pytest.mark.parametrize("layout", layouts.ANY.values(), ids=layouts.ANY)
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_layouts(layout: layouts.Layout, kind: Any) -> None:
    x, dy = _input((4, 33, 6), kind), _upstream((4, 33, 6), kind)
    for axis in (0, 1, 2):
        wanted = cnorm.normalize_backward(dy, x, axis=axis).x.astype(np.float64)
        for given, incoming in ((layout(x)[0], dy), (x, layout(dy)[0]), (layout(x)[0], layout(dy)[0])):
            dx = cnorm.normalize_backward(incoming, given, axis=axis).x
            assert dx.dtype == given.dtype
            tolerance = 8 * float(np.finfo(kind).eps)
            np.testing.assert_allclose(dx.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("p", [2.0, 1.0, math.inf])
def test_bits_do_not_depend_on_level_or_threads(p: float, dtype: Any) -> None:
    shapes = [*SHAPES, ((400, 768), 1), ((64, 4096), 0), ((2, 200_000), 1)]
    inputs = [(_upstream(shape, dtype), _input(shape, dtype), axis) for shape, axis in shapes]
    seen = set()
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            cnorm.set_num_threads(threads)
            seen.add(digest(cnorm.normalize_backward(dy, x, p, axis).x for dy, x, axis in inputs))
    assert len(seen) == 1


def test_out_receives_and_may_be_dy(dtype: Any) -> None:
    for axis in (0, 1):
        x, dy = _input((30, 37), dtype), _upstream((30, 37), dtype)
        wanted, out = cnorm.normalize_backward(dy, x, axis=axis).x, np.full_like(x, np.nan)
        assert cnorm.normalize_backward(dy, x, axis=axis, out=out).x is out
        np.testing.assert_array_equal(out, wanted)
        assert cnorm.normalize_backward(dy, x, axis=axis, out=dy).x is dy
        np.testing.assert_array_equal(dy, wanted)


def test_empty_arrays(dtype: Any) -> None:
    for shape in ((0, 5), (5, 0)):
        empty = np.empty(shape, dtype)
        assert cnorm.normalize_backward(empty, empty).x.shape == shape


X = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        ({"dy": X[:2]}, ValueError, "dy"),
        ({"dy": np.ones((3, 4), int)}, TypeError, "dy"),
        ({"x": np.ones((3, 4), complex)}, TypeError, "x"),
        ({"p": 0.0}, ValueError, "p"),
        ({"axis": 2}, ValueError, "axis"),
        ({"eps": -1.0}, ValueError, "eps"),
        ({"out": X}, ValueError, "out"),
        ({"out": np.ones((3, 4))}, TypeError, "out"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.normalize_backward(**{"dy": X.copy(), "x": X, **arguments})


@pytest.mark.peers
@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_pytorch_autograd_agrees(shape: tuple[int, ...], axis: int, p: float) -> None:
    """Ties for the largest magnitude and zeros among the elements too."""
    x, dy = _input(shape, np.float64), _upstream(shape, np.float64)
    x.reshape(-1)[::5] = 0
    x.reshape(-1)[1::7] = -9
    leaf = tensor(x).requires_grad_()
    torch().nn.functional.normalize(leaf, p, axis).backward(tensor(dy))
    dx = cnorm.normalize_backward(dy, x, p, axis).x
    scale = np.abs(leaf.grad.numpy()).max()
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=1e-12, atol=1e-13 * max(scale, 1))


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
def test_finite_differences(p: float) -> None:
    x, dy, step = _input((2, 7), np.float64), _upstream((2, 7), np.float64), 1e-6
    numeric = np.empty_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        numeric[i] = (dy * (cnorm.normalize(up, p) - cnorm.normalize(down, p))).sum() / (2 * step)
    np.testing.assert_allclose(cnorm.normalize_backward(dy, x, p).x, numeric, rtol=1e-6, atol=1e-8)
