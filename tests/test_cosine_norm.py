"""cosine_norm and its gradients: range, eps, magnitudes, layouts, NaN, PyTorch, arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import vector_oracle as oracle
from peer import tensor, torch
from traps import TRAPS


def _pair(rows: int, n: int, out: int, dtype: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, n)).astype(dtype), rng.standard_normal((out, n)).astype(dtype)


def _assert_exact(
    y: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float = 1e-8, lost: float = 1 / 16
) -> None:
    """A unit is one of 1. The BLAS adds n products up one by one: at worst, that loses n units."""
    exact = oracle.cosine(x, weight, eps)
    assert oracle.units(y, exact, np.ones(()), x.dtype) <= oracle.FORWARD + lost * x.shape[-1]
    assert (np.abs(y) <= 1).all()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 2), (17, 64, 33), (5, 1000, 9)])
def test_sizes(sizes: tuple[int, int, int], dtype: Any) -> None:
    x, weight = _pair(*sizes, dtype)
    y = cnorm.cosine_norm(x, weight)
    assert y.dtype == dtype
    _assert_exact(y, x, weight)


def test_any_leading_axes(dtype: Any) -> None:
    x, weight = _pair(24, 5, 7, dtype)
    wanted = cnorm.cosine_norm(x, weight)
    for lead in ((), (24,), (2, 3, 4), (1, 24, 1)):
        given = x[0] if lead == () else x.reshape(*lead, 5)
        y = cnorm.cosine_norm(given, weight)
        assert y.shape == (*lead, 7)
        np.testing.assert_allclose(y.reshape(-1, 7), wanted[: max(1, y.size // 7)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_large_and_a_small_vector(kind: Any) -> None:
    x = np.array([2606.67, 2477.72, 3251.84], kind)
    weight = np.array([[3.47e-9, 1.83e-9, 8.35e-9]], kind)
    np.testing.assert_allclose(cnorm.cosine_norm(x, weight), [0.91060827], rtol=2e-7)


def test_vectors_of_the_two_ways_side_by_side(dtype: Any) -> None:
    """A vector whose norm is out of the ordinary, whatever its neighbours are."""
    x, weight = _pair(5, 33, 4, dtype)
    wanted = cnorm.cosine_norm(x, weight, 0)
    x[2] *= 2.0 ** (-100 if dtype == np.float32 else -900)
    weight[1] *= 2.0**70
    got = cnorm.cosine_norm(x, weight, 0)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=16 * np.finfo(dtype).eps)


def test_sixteen_bits_are_rounded_once() -> None:
    x, weight = _pair(9, 64, 5, np.float16)
    y = cnorm.cosine_norm(x * 900, weight)
    assert y.dtype == np.float16
    wide = cnorm.cosine_norm((x * 900).astype(np.float32), weight.astype(np.float32))
    np.testing.assert_array_equal(y, wide.astype(np.float16))


def test_parallel_vectors_stay_within_one(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for n in range(1, 71):
        x = rng.standard_normal((50, n)).astype(dtype)
        y = cnorm.cosine_norm(x, np.concatenate([x, -3 * x]))
        assert np.abs(y).max() <= 1
        np.testing.assert_allclose(np.diagonal(y), 1, rtol=1e-6)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_traps(trap: Any, eps: float, dtype: Any) -> None:
    for rows, n in ((15, 1), (15, 9), (5, 255)):
        x, weight = trap(rows, n, dtype), _pair(1, n, 4, dtype)[1]
        _assert_exact(cnorm.cosine_norm(x, weight, eps), x, weight, eps)
        _assert_exact(cnorm.cosine_norm(weight, x, eps), weight, x, eps)
        _assert_exact(cnorm.cosine_norm(x, x, eps), x, x, eps, lost=1)  # some of these do their worst


def test_eps_bounds_the_product_of_the_norms(dtype: Any) -> None:
    x, weight = _pair(4, 6, 3, dtype)
    x *= np.array([[1e-20], [1e-4], [0], [1]], dtype)
    weight *= np.array([[1e15], [1e-5], [1]], dtype)
    for eps in (1e-8, 1e-3, 1.0, 1e-30):
        _assert_exact(cnorm.cosine_norm(x, weight, eps), x, weight, eps)


def test_non_finite_values_stay_in_their_vector(dtype: Any) -> None:
    x, weight = _pair(5, 6, 4, dtype)
    wanted = cnorm.cosine_norm(x, weight)
    x[1, 2], weight[3, 0] = np.nan, np.inf
    y = cnorm.cosine_norm(x, weight)
    assert np.isnan(y[1]).all()
    assert np.isnan(y[:, 3]).all()
    rest = np.delete(np.delete(y, 1, 0), 3, 1)
    np.testing.assert_allclose(rest, np.delete(np.delete(wanted, 1, 0), 3, 1), rtol=1e-5)


@pytest.mark.parametrize("layout", layouts.ANY.values(), ids=layouts.ANY)
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_layouts(layout: layouts.Layout, kind: Any) -> None:
    x, weight = _pair(8, 33, 5, kind)
    wanted, grads = cnorm.cosine_norm(x, weight), cnorm.cosine_norm_backward(np.ones((8, 5), kind), x, weight)
    given, other, dy = layout(x)[0], layout(weight)[0], layout(np.ones((8, 5), kind))[0]
    y = cnorm.cosine_norm(given, other)
    assert y.dtype == given.dtype
    np.testing.assert_array_equal(y, wanted)
    again = cnorm.cosine_norm_backward(dy, given, other)
    assert again.x.dtype == given.dtype
    assert again.weight.dtype == np.float32
    np.testing.assert_array_equal(again.x, grads.x)
    np.testing.assert_array_equal(again.weight, grads.weight)
    np.testing.assert_array_equal(given, x)


def test_out_receives(dtype: Any) -> None:
    x, weight = _pair(8, 5, 5, dtype)
    wanted = cnorm.cosine_norm(x, weight)
    for out in (np.full((8, 5), np.nan, dtype), np.full((5, 8), np.nan, dtype).T):
        assert cnorm.cosine_norm(x, weight, out=out) is out
        np.testing.assert_array_equal(out, wanted)


def test_empty_arrays(dtype: Any) -> None:
    for rows, n, out in ((0, 5, 3), (3, 0, 2), (3, 5, 0)):
        x, weight = np.ones((rows, n), dtype), np.ones((out, n), dtype)
        y = cnorm.cosine_norm(x, weight)
        assert y.shape == (rows, out)
        assert not y.any()
        grads = cnorm.cosine_norm_backward(y, x, weight)
        assert grads.x.shape == x.shape
        assert grads.weight.shape == weight.shape
        assert not grads.x.any()
        assert not grads.weight.any()


def _expected_gradients(dy: Any, x: Any, weight: Any, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's, in float64, of the formula."""
    leaves = [tensor(a.astype(np.float64)).requires_grad_() for a in (x, weight)]
    norms = [(leaf * leaf).sum(-1).clamp_min(1e-300).sqrt() for leaf in leaves]
    products = torch().outer(*norms)
    y = leaves[0] @ leaves[1].T / products.clamp_min(eps)
    y.backward(tensor(dy.astype(np.float64)))
    return leaves[0].grad.numpy(), leaves[1].grad.numpy()


@pytest.mark.peers
@pytest.mark.parametrize("eps", [0.0, 1e-8, 1e-2, 30.0])
@pytest.mark.parametrize("sizes", [(3, 5, 2), (17, 64, 33), (4, 1, 3)])
def test_pytorch_autograd_agrees(sizes: tuple[int, int, int], eps: float, dtype: Any) -> None:
    """Some products of norms are below eps, some above."""
    x, weight = _pair(*sizes, dtype)
    x[0] *= dtype.type(1e-3)
    dy = np.random.default_rng(3).standard_normal((sizes[0], sizes[2])).astype(dtype)
    grads = cnorm.cosine_norm_backward(dy, x, weight, eps)
    assert grads._fields == ("x", "weight")
    unit = float(np.finfo(dtype).eps) / 2
    for ours, theirs in zip(grads, _expected_gradients(dy, x, weight, eps), strict=True):
        scale = np.abs(theirs).max(-1, keepdims=True) + np.abs(dy).max() / np.linalg.norm(x, axis=1).min() * (
            sizes[1] == 1
        )
        assert (np.abs(ours - theirs) <= 32 * unit * scale).all()


def test_zero_vectors_have_finite_gradients(dtype: Any) -> None:
    x, weight = _pair(3, 4, 2, dtype)
    x[1] = 0
    dy = np.ones((3, 2), dtype)
    grads = cnorm.cosine_norm_backward(dy, x, weight)
    np.testing.assert_allclose(grads.x[1], weight.sum(0) / 1e-8, rtol=1e-5)
    assert np.isfinite(grads.x).all()
    assert np.isfinite(grads.weight).all()
    assert not cnorm.cosine_norm_backward(dy, x, weight, 0.0).x[1].any()


def test_need_says_what_is_computed(dtype: Any) -> None:
    x, weight = _pair(3, 4, 2, dtype)
    dy = np.ones((3, 2), dtype)
    both = cnorm.cosine_norm_backward(dy, x, weight)
    only_x = cnorm.cosine_norm_backward(dy, x, weight, need="x")
    only_weight = cnorm.cosine_norm_backward(dy, x, weight, need=["weight"])
    assert only_x.weight is None
    assert only_weight.x is None
    np.testing.assert_array_equal(only_x.x, both.x)
    np.testing.assert_array_equal(only_weight.weight, both.weight)


X, W = np.ones((3, 4), np.float32), np.ones((2, 4), np.float32)
WRONG = [
    ({"x": [[1.0]]}, TypeError, "x"),
    ({"x": np.ones((3, 4), int)}, TypeError, "x"),
    ({"x": np.float32(1)}, ValueError, "x"),
    ({"weight": np.ones((4, 2), np.float32)}, ValueError, "weight"),
    ({"weight": np.ones(4, np.float32)}, ValueError, "weight"),
    ({"weight": np.ones((2, 4), int)}, TypeError, "weight"),
    ({"eps": -1.0}, ValueError, "eps"),
    ({"eps": "1"}, TypeError, "eps"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        *WRONG,
        ({"out": np.ones((3, 2))}, TypeError, "out"),
        ({"out": np.ones((2, 3), np.float32)}, ValueError, "out"),
        ({"out": X[:, :2]}, ValueError, "out"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.cosine_norm(**{"x": X, "weight": W, **arguments})


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        *WRONG,
        ({"dy": X}, ValueError, "dy"),
        ({"need": "g"}, ValueError, "need"),
        ({"need": 1}, TypeError, "need"),
    ],
)
def test_wrong_backward_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.cosine_norm_backward(**{"dy": np.ones((3, 2), np.float32), "x": X, "weight": W, **arguments})
