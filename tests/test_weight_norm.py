"""weight_norm and its gradients: every dim, traps, zero rows, layouts, bits, PyTorch, arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import layouts
import vector_oracle as oracle
from conftest import THREAD_COUNTS
from peer import tensor, torch
from placement import digest
from traps import TRAPS

#: Linear, convolution and transposed convolution; runs too long for a tile; one channel; tiny ones.
SHAPES = [(7,), (5, 3), (36, 51), (16, 5, 3), (3, 4, 5, 7), (70, 2, 16), (3, 2, 700), (1, 300), (2, 9000)]

#: More rows than a tile of columns has room for.
TALL = [(702, 391), (450, 37, 17)]


def dims(shape: tuple[int, ...]) -> list[int | None]:
    return [None, *range(-len(shape), len(shape))]


def magnitudes(v: np.ndarray, dim: int | None) -> np.ndarray:
    """g of both signs and some magnitudes, 0 among them."""
    rng = np.random.default_rng(v.size)
    if dim is None:
        return np.array(-2.5, v.dtype)
    shape = [n if i == dim % v.ndim else 1 for i, n in enumerate(v.shape)]
    g = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    g.reshape(-1)[3::11] = 0
    return g.astype(v.dtype)


def _input(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (0.1 + np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def _assert_exact(v: np.ndarray, g: np.ndarray, dim: int | None) -> None:
    exact, axes = oracle.weight_norm(v, g, dim), oracle.others(v, dim)
    w = cnorm.weight_norm(v, g, dim)
    assert w.dtype == v.dtype
    assert oracle.units(w, exact, oracle.row_scale(exact, axes), v.dtype) <= oracle.FORWARD


def _assert_gradients(dw: np.ndarray, v: np.ndarray, g: np.ndarray, dim: int | None) -> None:
    dv, dv_scale, dg, dg_scale = oracle.weight_norm_backward(dw, v, g, dim)
    grads = cnorm.weight_norm_backward(dw, v, g, dim)
    assert grads._fields == ("v", "g")
    assert grads.g.shape == g.shape
    inside = np.isfinite(grads.v) | (np.abs(dv) < float(np.finfo(v.dtype).max))
    assert (
        oracle.units(np.where(inside, grads.v, 0), np.where(inside, dv, 0), dv_scale, v.dtype)
        <= oracle.BACKWARD
    )
    assert oracle.units(grads.g, dg, dg_scale, v.dtype) <= oracle.BACKWARD


@pytest.mark.parametrize("shape", [*SHAPES, *TALL], ids=str)
def test_every_dim(shape: tuple[int, ...], dtype: Any) -> None:
    v, dw = _input(shape, dtype), _input(shape, dtype, 1)
    for dim in dims(shape):
        g = magnitudes(v, dim)
        _assert_exact(v, g, dim)
        _assert_gradients(dw, v, g, dim)


def test_the_last_axis_is_not_everything(dtype: Any) -> None:
    v = _input((4, 6), dtype)
    last = cnorm.weight_norm(v, np.ones((1, 6), dtype), -1)
    np.testing.assert_allclose(np.linalg.norm(last, axis=0), 1, rtol=1e-6)
    everything = cnorm.weight_norm(v, np.ones((), dtype), None)
    np.testing.assert_allclose(np.linalg.norm(everything), 1, rtol=1e-6)
    np.testing.assert_array_equal(cnorm.weight_norm(v, np.ones((1, 1), dtype), None), everything)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_traps(trap: Any, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    for rows, elements in ((15, 1), (15, 9), (5, 255), (2, 8199)):
        v = trap(rows, elements, dtype)
        g = (rng.standard_normal((rows, 1)) * 10.0 ** rng.integers(-20, 20, (rows, 1))).astype(dtype)
        dw = _input(v.shape, dtype)
        _assert_exact(v, g, 0)
        _assert_exact(np.ascontiguousarray(v.T), g.T, 1)
        _assert_gradients(dw, v, g, 0)
        _assert_gradients(np.ascontiguousarray(dw.T), np.ascontiguousarray(v.T), np.ascontiguousarray(g.T), 1)


def test_zero_rows_give_zeros(dtype: Any) -> None:
    for dim in (0, 1):
        v, dw = _input((5, 6), dtype), _input((5, 6), dtype, 1)
        np.moveaxis(v, dim, 0)[2] = 0
        g = magnitudes(v, dim)
        grads = cnorm.weight_norm_backward(dw, v, g, dim)
        for zeros in (cnorm.weight_norm(v, g, dim), grads.v, np.broadcast_to(grads.g, v.shape)):
            assert not np.moveaxis(zeros, dim, 0)[2].any()
            assert np.isfinite(zeros).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_non_finite_values_stay_in_their_channel(which: int, bad: float, dtype: Any) -> None:
    dw, v = _input((6, 40), dtype, 1), _input((6, 40), dtype)
    arrays = [dw, v, magnitudes(v, 0)]
    w, wanted = cnorm.weight_norm(v, arrays[2]), cnorm.weight_norm_backward(*arrays)
    arrays[which][2, 0] = bad
    if which:
        result = cnorm.weight_norm(*arrays[1:])
        assert np.isnan(result[2]).all()
        np.testing.assert_array_equal(np.delete(result, 2, 0), np.delete(w, 2, 0))
    grads = cnorm.weight_norm_backward(*arrays)
    assert np.isnan(grads.v[2]).all()
    assert np.isnan(grads.g[2]).all()
    np.testing.assert_array_equal(np.delete(grads.v, 2, 0), np.delete(wanted.v, 2, 0))
    np.testing.assert_array_equal(np.delete(grads.g, 2, 0), np.delete(wanted.g, 2, 0))


@pytest.mark.parametrize("layout", layouts.ANY.values(), ids=layouts.ANY)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_layouts(layout: layouts.Layout, kind: Any) -> None:
    v, dw = _input((4, 33, 6), kind), _input((4, 33, 6), kind, 1)
    given, incoming = layout(v)[0], layout(dw)[0]
    for dim in (None, 0, 1, 2):
        g = magnitudes(v, dim).astype(np.float32 if kind == np.float16 else kind)
        w, grads = cnorm.weight_norm(given, g, dim), cnorm.weight_norm_backward(incoming, given, g, dim)
        np.testing.assert_array_equal(w, cnorm.weight_norm(v, g, dim))
        wanted = cnorm.weight_norm_backward(dw, v, g, dim)
        np.testing.assert_array_equal(grads.v, wanted.v)
        np.testing.assert_array_equal(grads.g, wanted.g)
        assert w.dtype == grads.v.dtype == given.dtype
        assert grads.g.dtype == g.dtype
    np.testing.assert_array_equal(given, v)


@pytest.mark.usefixtures("native")
def test_bits_do_not_depend_on_level_or_threads(dtype: Any) -> None:
    seen = set()
    shapes = [*SHAPES, *TALL, (360, 512), (64, 256, 16), (3, 200_000)]
    problems = [
        (_input(s, dtype, 1), _input(s, dtype), dim) for s in shapes for dim in (None, *range(len(s)))
    ]
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            cnorm.set_num_threads(threads)
            results = []
            for dw, v, dim in problems:
                g = magnitudes(v, dim)
                results += [cnorm.weight_norm(v, g, dim), *cnorm.weight_norm_backward(dw, v, g, dim)]
            seen.add(digest(results))
    assert len(seen) == 1


def test_out_receives_and_may_be_v(dtype: Any) -> None:
    for dim in (None, 0, 1, 2):
        v = _input((4, 9, 3), dtype)
        g, out = magnitudes(v, dim), np.full_like(v, np.nan)
        wanted = cnorm.weight_norm(v, g, dim)
        assert cnorm.weight_norm(v, g, dim, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        assert cnorm.weight_norm(v, g, dim, out=v) is v
        np.testing.assert_array_equal(v, wanted)


def test_need_says_what_is_computed(dtype: Any) -> None:
    v, dw = _input((4, 9), dtype), _input((4, 9), dtype, 1)
    g = magnitudes(v, 0)
    both = cnorm.weight_norm_backward(dw, v, g)
    for need in ("v", ["g"], (), ("g", "v")):
        grads = cnorm.weight_norm_backward(dw, v, g, need=need)
        for name in ("v", "g"):
            value = getattr(grads, name)
            if name in need:
                np.testing.assert_array_equal(value, getattr(both, name))
            else:
                assert value is None


def test_empty_weights(dtype: Any) -> None:
    v, g = np.empty((3, 0), dtype), np.ones((3, 1), dtype)
    assert cnorm.weight_norm(v, g).shape == (3, 0)
    np.testing.assert_array_equal(cnorm.weight_norm_backward(v, v, g).g, np.zeros((3, 1)))


V, G = np.ones((3, 4), np.float32), np.ones((3, 1), np.float32)
WRONG = [
    ({"v": [[1.0]]}, TypeError, "v"),
    ({"v": np.ones((3, 4), int)}, TypeError, "v"),
    ({"v": np.float32(1), "g": np.float32(1)}, ValueError, "v"),
    ({"g": np.ones(3, np.float32)}, ValueError, "g"),
    ({"g": np.ones((1, 4), np.float32)}, ValueError, "g"),
    ({"g": np.ones((), np.float32)}, ValueError, "g"),
    ({"g": np.ones((3, 1), int)}, TypeError, "g"),
    ({"g": 1.0}, TypeError, "g"),
    ({"g": G, "dim": None}, ValueError, "g"),
    ({"g": G, "dim": -1}, ValueError, "g"),
    ({"dim": 2}, ValueError, "dim"),
    ({"dim": "0"}, TypeError, "dim"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        *WRONG,
        ({"out": np.ones((3, 4))}, TypeError, "out"),
        ({"out": np.ones((4, 3), np.float32)}, ValueError, "out"),
        ({"out": V[:, ::-1]}, ValueError, "out"),
        ({"g": V[:, :1], "out": V}, ValueError, "out"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.weight_norm(**{"v": V, "g": G, **arguments})


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        *WRONG,
        ({"dw": V[:2]}, ValueError, "dw"),
        ({"dw": np.ones((3, 4), int)}, TypeError, "dw"),
        ({"need": "x"}, ValueError, "need"),
        ({"need": 3}, TypeError, "need"),
    ],
)
def test_wrong_backward_arguments(arguments: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=rf"^{name}\b"):
        cnorm.weight_norm_backward(**{"dw": V, "v": V, "g": G, **arguments})


@pytest.mark.peers
@pytest.mark.parametrize("shape", [*SHAPES, *TALL], ids=str)
def test_pytorch_autograd_agrees(shape: tuple[int, ...]) -> None:
    """PyTorch's fused op knows the first and the last axis, and with -1 for everything a scalar g."""
    dw, v = _input(shape, np.float64, 1), _input(shape, np.float64)
    for dim in {0, len(shape) - 1}:
        g = magnitudes(v, dim)
        leaves = [tensor(v).requires_grad_(), tensor(g).requires_grad_()]
        w = torch()._weight_norm(*leaves, dim)
        w.backward(tensor(dw))
        np.testing.assert_allclose(cnorm.weight_norm(v, g, dim), w.detach().numpy(), rtol=1e-13)
        grads = cnorm.weight_norm_backward(dw, v, g, dim)
        for ours, leaf in zip(grads, leaves, strict=True):
            scale = max(10, float(leaf.grad.abs().max()))
            np.testing.assert_allclose(ours, leaf.grad.numpy(), rtol=1e-11, atol=1e-13 * scale)


def test_finite_differences() -> None:
    dw, v, step = _input((3, 4, 2), np.float64, 1), _input((3, 4, 2), np.float64), 1e-6
    for dim in (None, 0, 1, 2):
        g = np.asarray(magnitudes(v, dim) + 1)
        grads = cnorm.weight_norm_backward(dw, v, g, dim)
        for array, ours in ((v, grads.v), (g, grads.g)):
            numeric = np.empty_like(array)
            for i in np.ndindex(array.shape):
                kept = array[i]
                array[i] = kept + step
                up = (dw * cnorm.weight_norm(v, g, dim)).sum()
                array[i] = kept - step
                numeric[i] = (up - (dw * cnorm.weight_norm(v, g, dim)).sum()) / (2 * step)
                array[i] = kept
            np.testing.assert_allclose(ours, numeric, rtol=1e-5, atol=1e-6 * np.abs(numeric).max())
