"""ada_layer_norm_backward: exactness, PyTorch's gradients, layouts, bits, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
import oracle
from conftest import THREAD_COUNTS
from peer import keyword_only, tensor, torch
from placement import digest
from test_ada_layer_norm import SHAPES, modulation_of, rows_of
from traps import TRAPS

BOUND = 16.0
NAMES = ("x", "scale", "shift")


def _upstream(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape).astype(dtype)


def _gradients(x: Any, scale: Any, dy: Any, eps: float = 1e-5, **options: Any) -> Any:
    shift = np.zeros((x.shape[0], x.shape[-1]))
    _, mean, rstd = cnorm.ada_layer_norm(x, scale, shift, eps, return_stats=True)
    return cnorm.ada_layer_norm_backward(dy, x, mean, rstd, scale, **options)


def _worst(x: Any, scale: Any, dy: Any, eps: float = 1e-5) -> float:
    """Layer norm's exact gradients of each sample, with a weight of 1 + scale."""
    compute = oracle.compute_dtype(x.dtype)
    grads, worst = _gradients(x, scale, dy, eps), 0.0
    for n in range(len(x)):
        weight = scale[n].astype(compute) + compute.type(1)
        exact = gradient_oracle.layer_norm(dy[n], x[n], weight, eps)
        for ours, name in ((grads.x, "x"), (grads.scale, "weight"), (grads.shift, "bias")):
            worst = max(worst, gradient_oracle.units(ours[n], getattr(exact, name)))
    return worst


@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_and_need(shape: tuple[int, ...], dtype: Any) -> None:
    x, scale, dy = rows_of(shape, dtype), modulation_of(shape, dtype), _upstream(shape, dtype)
    assert _worst(x, scale, dy) <= BOUND
    whole = _gradients(x, scale, dy)
    assert whole.x.dtype == whole.scale.dtype == whole.shift.dtype == dtype
    for need in [*itertools.combinations(NAMES, 2), *((name,) for name in NAMES), "scale", ()]:
        some = _gradients(x, scale, dy, need=need)
        for name in NAMES:
            if name in need or name == need:
                np.testing.assert_array_equal(getattr(some, name), getattr(whole, name))
            else:
                assert getattr(some, name) is None
    long = (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
    again = _gradients(x, scale.reshape(long), dy)
    assert again.scale.shape == again.shift.shape == long
    np.testing.assert_array_equal(again.scale.reshape(scale.shape), whole.scale)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_traps(trap: Any, dtype: Any) -> None:
    for elements in (1, 9, 255, 1030):
        x = trap(15, elements, dtype).reshape(3, 5, elements)
        assert _worst(x, modulation_of(x.shape, dtype), _upstream(x.shape, dtype), trap.eps) <= BOUND


def test_every_tail_and_number_of_rows(dtype: Any) -> None:
    for n in range(1, 71):
        x = rows_of((2, 71 - n, n), dtype, n) + dtype.type(1e4)
        assert _worst(x, modulation_of(x.shape, dtype), _upstream(x.shape, dtype)) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize("shape", SHAPES[2:])
def test_pytorch_autograd_agrees(shape: tuple[int, ...]) -> None:
    torch()
    x, dy = rows_of(shape, np.float64), _upstream(shape, np.float64)
    scale = modulation_of(shape, np.float64)
    between = (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
    leaves = [tensor(v).requires_grad_() for v in (x, scale, 0 * scale)]
    hat = torch().nn.functional.layer_norm(leaves[0], shape[-1:], eps=1e-5)
    (hat * (1 + leaves[1].view(between)) + leaves[2].view(between)).backward(tensor(dy))
    for ours, leaf in zip(_gradients(x, scale, dy), leaves, strict=True):
        theirs = leaf.grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("layout", layouts.ANY)
def test_every_layout(layout: str, dtype: Any) -> None:
    """Samples that are cut into tiles add up their parts in float64."""
    for shape in ((3, 5, 33), (2, 700, 501), (300, 2, 51), (300, 5)):
        first = rows_of(shape, dtype), modulation_of(shape, dtype), _upstream(shape, dtype)
        wanted = _gradients(*first)
        arrays = [layouts.ANY[layout](a)[0] for a in first]
        kept = [a.copy() for a in arrays]
        for ours, theirs in zip(_gradients(*arrays), wanted, strict=True):
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=8 * oracle.unit(dtype) * np.abs(theirs).max()
            )
        for given, before in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("kind", [np.float16, oracle.BFLOAT16])
def test_sixteen_bits_are_computed_in_float32(kind: Any) -> None:
    x, scale, dy = rows_of((2, 5, 70), kind), modulation_of((2, 70), np.float32), _upstream((2, 5, 70), kind)
    grads = _gradients(x, scale, dy)
    wanted = [gradient_oracle.layer_norm(dy[n], x[n], scale[n] + np.float32(1)) for n in range(2)]
    assert grads.x.dtype == kind
    assert grads.scale.dtype == grads.shift.dtype == np.float32
    for n in range(2):
        low, high = gradient_oracle.rounded_range(wanted[n].x, kind, BOUND)
        assert ((low <= grads.x[n].astype(oracle.Long)) & (grads.x[n].astype(oracle.Long) <= high)).all()
        assert gradient_oracle.units(grads.scale[n], wanted[n].weight) <= BOUND


def test_one_hash_over_levels_and_threads(dtype: Any) -> None:
    problems = []
    for trap in TRAPS:
        if trap.name in ("first element 1e8", "every magnitude", "rows of different kinds"):
            for shape in ((3, 5, 7), (9, 3, 255), (2, 70, 1025), (1, 2, 70_001)):
                x = trap(shape[0] * shape[1], shape[2], dtype).reshape(shape)
                problems.append((x, modulation_of(shape, dtype), _upstream(shape, dtype)))
    hashes = []
    for level, threads in itertools.product(cnorm.isa_levels(), THREAD_COUNTS):
        cnorm.set_isa(level)
        with cnorm.num_threads(threads):
            hashes.append([digest(_gradients(*some)) for some in problems])
    assert all(each == hashes[0] for each in hashes)


def test_bits_do_not_depend_on_the_batch(dtype: Any) -> None:
    x = rows_of((9, 5, 300), dtype)
    arrays = x, modulation_of(x.shape, dtype), _upstream(x.shape, dtype)
    whole = _gradients(*arrays)
    for n in (0, 4, 8):
        for one, all_of_them in zip(_gradients(*(a[n : n + 1] for a in arrays)), whole, strict=True):
            np.testing.assert_array_equal(one[0], all_of_them[n])


@pytest.mark.parametrize("where", [0, 2])
def test_what_is_not_finite_stays_in_its_sample(where: int, dtype: Any) -> None:
    arrays = [rows_of((3, 5, 70), dtype), modulation_of((3, 70), dtype), _upstream((3, 5, 70), dtype)]
    wanted = _gradients(*arrays)
    arrays[where][1, 2, 40] = np.nan
    grads = _gradients(*arrays)
    assert np.isnan(grads.x[1, 2]).all()
    grads.x[1, 2] = wanted.x[1, 2]
    for ours, clean in zip(grads, wanted, strict=True):
        np.testing.assert_array_equal(ours[[0, 2]], clean[[0, 2]])
    np.testing.assert_array_equal(grads.x, wanted.x)


def test_the_gradient_of_x_goes_to_out(dtype: Any) -> None:
    x, scale, dy = rows_of((3, 5, 70), dtype), modulation_of((3, 70), dtype), _upstream((3, 5, 70), dtype)
    wanted = _gradients(x, scale, dy)
    for out in (np.full_like(dy, np.nan), dy.copy(), np.asfortranarray(dy)):
        given = dy if np.isnan(out).any() else out
        assert _gradients(x, scale, given, out=out).x is out
        np.testing.assert_array_equal(out, wanted.x)


def test_empty_arrays(dtype: Any) -> None:
    for shape in ((0, 3, 5), (2, 0, 5), (2, 3, 0)):
        grads = _gradients(
            np.empty(shape, dtype), np.ones((shape[0], shape[-1]), dtype), np.empty(shape, dtype)
        )
        assert grads.x.shape == shape
        assert grads.scale.shape == grads.shift.shape == (shape[0], shape[-1])
        assert not grads.scale.any()
        assert not grads.shift.any()


def test_defaults() -> None:
    assert keyword_only(cnorm.ada_layer_norm_backward) == {"need": NAMES, "out": None}


_X, _S, _M = np.ones((2, 3, 4), np.float32), np.ones((2, 3, 1), np.float32), np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("error", "word", "changes", "options"),
    [
        (TypeError, "dy", {0: _X.astype(int)}, {}),
        (ValueError, "dy", {0: _X[:, :2]}, {}),
        (TypeError, "x", {1: _X.astype(int)}, {}),
        (ValueError, "x", {1: _X[0, 0]}, {}),
        (ValueError, "mean", {2: _S[:, :, 0]}, {}),
        (TypeError, "rstd", {3: _S.astype(int)}, {}),
        (ValueError, "scale", {4: _M.T}, {}),
        (ValueError, "need", {}, {"need": ("weight",)}),
        (TypeError, "need", {}, {"need": 1}),
        (ValueError, "out", {}, {"need": "scale", "out": np.ones_like(_X)}),
        (TypeError, "out", {}, {"out": np.ones((2, 3, 4))}),
        (ValueError, "out", {}, {"out": _X}),
    ],
)
def test_wrong_arguments_are_named(error: Any, word: str, changes: Any, options: Any) -> None:
    arguments = [_X.copy(), _X, _S, _S, _M]
    for place, value in changes.items():
        arguments[place] = value
    with pytest.raises(error, match=f"^{word}"):
        cnorm.ada_layer_norm_backward(*arguments, **options)
