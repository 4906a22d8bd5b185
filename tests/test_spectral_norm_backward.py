"""spectral_norm_backward: gradients at every magnitude, finite differences, autograd, bits and mistakes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
import spectral_oracle as exact
from conftest import THREAD_COUNTS
from peer import tensor, torch
from placement import at_offset, digest
from spectral_oracle import SHAPES, TRAPS, Problem, problem, units

BOUND = 16.0


def _upstream(weight: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(9).standard_normal(weight.shape)).astype(weight.dtype)


def _forward(p: Problem, eps: float = 1e-12, iterations: int = 5) -> float:
    """Update the vectors of `p`; return sigma."""
    return cnorm.spectral_norm(p.weight, p.u, p.v, n_power_iterations=iterations, dim=p.dim, eps=eps)[1]


def _assert_right(p: Problem, dw: np.ndarray, sigma: float) -> None:
    gradient = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma, dim=p.dim)
    wanted, scale = exact.gradient(dw, p, exact.Long(sigma))
    assert gradient.dtype == p.weight.dtype
    assert units(gradient, wanted, scale) <= BOUND


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_every_shape(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    p = problem(shape, dim, dtype)
    sigma = _forward(p)
    _assert_right(p, _upstream(p.weight), sigma)
    _assert_right(p, p.weight, sigma)  # in the direction that the division takes away


def test_every_magnitude(dtype: Any) -> None:
    for _, scale, offset, eps in TRAPS[dtype.name]:
        for shape, dim in (((7, 9), 0), ((7, 9), 1), ((20, 12, 4, 4), 1), ((70, 600), 0)):
            p = problem(shape, dim, dtype, scale, offset)
            sigma = _forward(p, eps)
            if np.isfinite(sigma) and sigma < float(np.finfo(dtype).max) / 10:
                for size in (1.0, min(1e-30, 1e3 * scale or 1e-30), max(1e-3, 1e-3 * scale)):
                    if float(np.finfo(dtype).tiny) < size / sigma < float(np.finfo(dtype).max) / 100:
                        _assert_right(p, _upstream(p.weight, size), sigma)


def test_one_element_has_no_gradient(dtype: Any) -> None:
    """Its w is 1 or -1 whatever it is."""
    for value in (3.7, -0.1, 1e30, 1e-30, 0.3):
        for dw in (1.1, -7.3, 1e-3):
            weight, u, v = np.full((1, 1), value, dtype), np.ones(1, dtype), np.ones(1, dtype)
            w, sigma = cnorm.spectral_norm(weight, u, v, eps=0.0)
            assert abs(w[0, 0]) == 1
            assert cnorm.spectral_norm_backward(np.full((1, 1), dw, dtype), weight, u, v, sigma) == 0


def test_zero_weights_have_gradient_zero(dtype: Any) -> None:
    p = problem((33, 50), 0, dtype)
    weight = np.zeros_like(p.weight)
    _, sigma = cnorm.spectral_norm(weight, p.u, p.v)
    assert not cnorm.spectral_norm_backward(_upstream(weight), weight, p.u, p.v, sigma).any()


def test_zero_gradients_stay_zero(dtype: Any) -> None:
    p = problem((33, 50), 0, dtype)
    sigma = _forward(p)
    assert not cnorm.spectral_norm_backward(np.zeros_like(p.weight), p.weight, p.u, p.v, sigma).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["dw", "weight", "u", "v", "sigma"])
def test_what_is_not_finite_makes_everything_nan(where: str, bad: float, dtype: Any) -> None:
    p = problem((33, 50), 0, dtype)
    sigma, dw = _forward(p), _upstream(p.weight)
    if where == "sigma":
        bad, sigma = np.nan, np.nan
    else:
        {**p._asdict(), "dw": dw}[where].flat[7] = bad
    assert np.isnan(cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma)).all()


@pytest.mark.parametrize(("shape", "dim"), [((6, 5), 0), ((4, 3, 2, 2), 1)])
def test_finite_differences(shape: tuple[int, ...], dim: int) -> None:
    p = problem(shape, dim, np.float64)
    sigma, dw = _forward(p, iterations=3), _upstream(p.weight)
    gradient = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma, dim=dim)
    step = 1e-6
    for index in np.ndindex(p.weight.shape):
        sides = []
        for sign in (1, -1):
            moved = p.weight.copy()
            moved[index] += sign * step
            w, _ = cnorm.spectral_norm(moved, p.u, p.v, dim=dim, training=False)
            sides.append((w * dw).sum())
        assert abs((sides[0] - sides[1]) / (2 * step) - gradient[index]) <= 1e-8


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_pytorchs_autograd(shape: tuple[int, ...], dim: int) -> None:
    p = problem(shape, dim, np.float64)
    sigma, dw = _forward(p), _upstream(p.weight)
    weight = tensor(p.weight).requires_grad_()
    matrix = weight.movedim(dim, 0).reshape(len(p.u), -1)
    (weight / torch().dot(tensor(p.u), torch().mv(matrix, tensor(p.v)))).backward(tensor(dw))
    gradient = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma, dim=dim)
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=0, atol=1e-13 * abs(dw).max() / sigma)


def test_the_gradient_is_orthogonal_to_the_weight(dtype: Any) -> None:
    """w does not change with the weight's length."""
    p = problem((40, 300), 0, dtype)
    sigma, dw = _forward(p, iterations=50), _upstream(p.weight)
    gradient = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma).astype(np.float64)
    terms = abs(gradient * p.weight).sum()
    assert abs((gradient * p.weight).sum()) <= 4 * np.finfo(dtype).eps * terms


@pytest.mark.parametrize("layout", [layouts.columns, layouts.steps, layouts.reversed_all, layouts.swapped,
                                    layouts.unaligned, layouts.packed_record])  # fmt: skip
def test_layouts_and_out(layout: Any, dtype: Any) -> None:
    for dim in (0, 1, 2):
        p = problem((12, 5, 7), dim, dtype)
        sigma, dw = _forward(p), _upstream(p.weight)
        wanted = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma, dim=dim)
        strange, upstream = layout(p.weight)[0], layout(dw)[0]
        other = np.repeat(p.u, 2)[::2]
        for call in ((dw, strange), (upstream, p.weight), (upstream, strange)):
            gradient = cnorm.spectral_norm_backward(*call, other, p.v, sigma, dim=dim)
            np.testing.assert_array_equal(gradient, wanted)
        gradient = cnorm.spectral_norm_backward(upstream, strange, p.u, p.v, sigma, dim=dim, out=upstream)
        assert gradient is upstream
        np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_16_bits_are_computed_in_float32(kind: Any) -> None:
    p = problem((20, 33), 0, np.float32)
    weight, dw = p.weight.astype(kind), _upstream(p.weight).astype(kind)
    wide = weight.astype(np.float32), dw.astype(np.float32)
    _, sigma = cnorm.spectral_norm(weight, p.u, p.v)
    gradient = cnorm.spectral_norm_backward(dw, weight, p.u, p.v, sigma)
    assert gradient.dtype == kind
    wanted = cnorm.spectral_norm_backward(wide[1], wide[0], p.u, p.v, sigma)
    np.testing.assert_array_equal(gradient, wanted.astype(kind))


def test_empty_weights(dtype: Any) -> None:
    weight = np.empty((5, 0, 3), dtype)
    gradient = cnorm.spectral_norm_backward(weight, weight, np.ones(5, dtype), np.ones(0, dtype), 0.0)
    assert gradient.shape == weight.shape


@pytest.mark.usefixtures("native")
def test_one_hash_over_levels_threads_and_places(dtype: Any) -> None:
    for shape, dim in (((600, 70), 1), ((40, 300, 9), 1), ((3, 70_000), 0), ((700, 900), 0)):
        p = problem(shape, dim, dtype)
        sigma, dw = _forward(p), _upstream(p.weight)
        hashes = set()
        for level in cnorm.isa_levels():
            cnorm.set_isa(level)
            for threads in THREAD_COUNTS:
                with cnorm.num_threads(threads):
                    placed = at_offset(dw, threads * dw.itemsize)
                    gradient = cnorm.spectral_norm_backward(placed, p.weight, p.u, p.v, sigma, dim=dim)
                    hashes.add(digest([gradient]))
        assert len(hashes) == 1, shape


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dw": [[1.0]]}, TypeError, "dw"),
    ({"dw": np.ones((3, 4), int)}, TypeError, "dw"),
    ({"dw": np.ones((4, 3), np.float32)}, ValueError, "dw"),
    ({"weight": np.ones((3, 4), int)}, TypeError, "weight"),
    ({"weight": np.array(1.0, np.float32), "dw": np.array(1.0, np.float32)}, ValueError, "weight"),
    ({"u": np.ones(4, np.float32)}, ValueError, "u"),
    ({"u": None}, TypeError, "u"),
    ({"v": np.ones(4, int)}, TypeError, "v"),
    ({"v": np.ones((2, 2), np.float32)}, ValueError, "v"),
    ({"sigma": None}, TypeError, "sigma"),
    ({"sigma": "1"}, TypeError, "sigma"),
    ({"sigma": np.ones(1)}, TypeError, "sigma"),
    ({"dim": 2}, ValueError, "dim"),
    ({"dim": 0.0}, TypeError, "dim"),
    ({"out": np.ones((3, 4))}, TypeError, "out"),
    ({"out": np.ones((4, 3), np.float32)}, ValueError, "out"),
    ({"out": np.broadcast_to(np.float32(1), (3, 4))}, ValueError, "out"),
]


@pytest.mark.parametrize(("changes", "error", "name"), MISTAKES)
def test_mistakes_are_named(changes: Any, error: Any, name: str) -> None:
    p = problem((3, 4), 0, np.float32)
    arguments = {"dw": p.weight.copy(), "weight": p.weight, "u": p.u, "v": p.v, "sigma": 2.0, **changes}
    call = [arguments.pop(argument) for argument in ("dw", "weight", "u", "v", "sigma")]
    with pytest.raises(error, match=f"^{name}: expected"):
        cnorm.spectral_norm_backward(*call, **arguments)


def test_out_may_be_dw_and_nothing_else() -> None:
    p = problem((3, 4), 0, np.float32)
    dw = _upstream(p.weight)
    for name, value in (("weight", p.weight), ("v", None)):
        memory = np.zeros(12, np.float32)
        out, v = (value, p.v) if value is not None else (memory.reshape(3, 4), memory[:4])
        with pytest.raises(ValueError, match=rf"^out: .* memory of {name}"):
            cnorm.spectral_norm_backward(dw, p.weight, p.u, v, 2.0, out=out)
    wanted = cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, 2.0)
    assert cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, 2.0, out=dw) is dw
    np.testing.assert_array_equal(dw, wanted)
