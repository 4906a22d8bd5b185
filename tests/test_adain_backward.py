"""adain_backward and the AdaIN layer: exactness, PyTorch's gradients, algebra, bits, and what is refused."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import adain_oracle
import cnorm
import gradient_oracle
import layouts
import oracle
from conftest import THREAD_COUNTS
from peer import keyword_only, tensor, torch
from placement import digest
from test_adain import SHAPES, _calc_mean_std, _last, _maps
from traps import TRAPS

BOUND = 16.0


def _upstream(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([8, seed]).standard_normal(shape).astype(dtype)


def _gradients(content: Any, style: Any, dy: Any, eps: float = 1e-5, need: Any = None, **options: Any) -> Any:
    _, *stats = cnorm.adain(content, style, eps, return_stats=True, **options)
    needed = {} if need is None else {"need": need}
    return cnorm.adain_backward(dy, content, style, *stats, **options, **needed)


def _worst(content: Any, style: Any, dy: Any, eps: float = 1e-5, **options: Any) -> float:
    exact = adain_oracle.adain_backward(dy, content, style, eps, **options)
    grads = _gradients(content, style, dy, eps, **options)
    return max(gradient_oracle.units(value, wanted) for value, wanted in zip(grads, exact, strict=True))


@pytest.mark.parametrize(("shape", "style_shape"), SHAPES)
@pytest.mark.parametrize("unbiased", [True, False])
def test_every_rank_axis_and_need(shape: Any, style_shape: Any, unbiased: bool, dtype: Any) -> None:
    content, style, dy = _maps(shape, dtype), _maps(style_shape, dtype, 1), _upstream(shape, dtype)
    for axis in (1, -1):
        arrays = [_last(a, axis) for a in (content, style, dy)]
        assert _worst(*arrays, axis=axis, unbiased=unbiased) <= BOUND
        both = _gradients(*arrays, axis=axis, unbiased=unbiased)
        assert both.content.dtype == both.style.dtype == dtype
        for need in (("content",), ("style",), "content", "style", ()):
            some = _gradients(*arrays, axis=axis, unbiased=unbiased, need=need)
            for name in ("content", "style"):
                value = getattr(some, name)
                if name in need or name == need:
                    np.testing.assert_array_equal(value, getattr(both, name))
                else:
                    assert value is None


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize("axis", [1, -1])
def test_traps_in_content_and_in_style(trap: Any, axis: int, dtype: Any) -> None:
    normal = _last(_maps((3, 5, 40), dtype), axis)
    for elements in (1, 9, 255, 1030):
        x = _last(trap(15, elements, dtype).reshape(3, 5, elements), axis)
        dy, other = _upstream(x.shape, dtype), _upstream(normal.shape, dtype)
        assert _worst(x, normal, dy, trap.eps, axis=axis) <= BOUND
        assert _worst(normal, x, other, trap.eps, axis=axis) <= BOUND


@pytest.mark.parametrize("axis", [1, -1])
def test_every_tail(axis: int, dtype: Any) -> None:
    for n in range(1, 71, 3):
        content, style = (_last(_maps((2, 3, m), dtype, n) + 1e3, axis) for m in (n, 71 - n))
        assert _worst(content, style, _upstream(content.shape, dtype, n), axis=axis) <= BOUND


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("axis", [1, -1])
def test_gradients_of_any_size(scale: float, axis: int, dtype: Any) -> None:
    content, style = _last(_maps((2, 3, 300), dtype), axis), _last(_maps((2, 3, 70), dtype), axis)
    dy = (_upstream(content.shape, dtype) * scale).astype(dtype)
    assert _worst(content, style, dy, axis=axis) <= BOUND


def test_sums_larger_than_the_largest_number(dtype: Any) -> None:
    """The gradient of the style is an average of dy, whose sum is beyond float32."""
    content, style = _maps((1, 2, 300), dtype), _maps((1, 2, 70), dtype)
    dy = np.full(content.shape, 2e37 if dtype == np.float32 else 2e305, dtype)
    for axis in (1, -1):
        grads = _gradients(_last(content, axis), _last(style, axis), _last(dy, axis), axis=axis)
        np.testing.assert_allclose(grads.style / dy.flat[0], 300 / 70, rtol=1e-5)


@pytest.mark.parametrize("axis", [1, -1])
def test_algebra(axis: int, dtype: Any) -> None:
    """A shift or scale of the content changes nothing, and those of the style are those of the result."""
    content, style = _last(_maps((3, 5, 90), dtype), axis), _last(_maps((3, 5, 64), dtype, 1), axis)
    dy = _upstream(content.shape, dtype)
    y, *stats = cnorm.adain(content, style, 0.0, axis=axis, return_stats=True)
    grads = cnorm.adain_backward(dy, content, style, *stats, axis=axis)
    along = -1 if axis == 1 else 1
    wide = [v.astype(np.float64) for v in (grads.content, grads.style, content, style, dy, y)]
    dcontent, dstyle, c, s, d, out = wide
    tolerance = {"rtol": 0, "atol": 1e-3 if dtype == np.float32 else 1e-11}
    np.testing.assert_allclose(dcontent.sum(along), 0, **tolerance)
    np.testing.assert_allclose((dcontent * c).sum(along), 0, **tolerance)
    np.testing.assert_allclose(dstyle.sum(along), d.sum(along), **tolerance)
    np.testing.assert_allclose((dstyle * s).sum(along), (d * out).sum(along), **tolerance)


@pytest.mark.peers
@pytest.mark.parametrize(("shape", "style_shape"), SHAPES[:3:2])
@pytest.mark.parametrize("unbiased", [True, False])
def test_pytorch_autograd_agrees(shape: Any, style_shape: Any, unbiased: bool) -> None:
    torch()
    content, style, dy = (
        _maps(shape, np.float64),
        _maps(style_shape, np.float64, 1),
        _upstream(shape, np.float64),
    )
    x, s = tensor(content).requires_grad_(), tensor(style).requires_grad_()
    (mean, std), (style_mean, style_std) = (_calc_mean_std(t, 1e-5, unbiased) for t in (x, s))
    ((x - mean) / std * style_std + style_mean).backward(tensor(dy))
    grads = _gradients(content, style, dy, unbiased=unbiased)
    for ours, theirs in ((grads.content, x.grad.numpy()), (grads.style, s.grad.numpy())):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


def test_finite_differences() -> None:
    content, style, dy = (
        _maps((1, 2, 7), np.float64),
        _maps((1, 2, 5), np.float64, 1),
        _upstream((1, 2, 7), float),
    )
    grads, step = _gradients(content, style, dy), 1e-6
    for array, gradient in ((content, grads.content), (style, grads.style)):
        for index in np.ndindex(array.shape):
            value, found = array[index], []
            for sign in (1, -1):
                array[index] = value + sign * step
                found.append((dy * cnorm.adain(content, style)).sum())
            array[index] = value
            assert gradient[index] == pytest.approx((found[0] - found[1]) / (2 * step), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("content_layout", [*layouts.ANY, "channels last view"])
@pytest.mark.parametrize("style_layout", ["contiguous", "steps", "other byte order", "channels last view"])
def test_every_pair_of_layouts(content_layout: str, style_layout: str, dtype: Any) -> None:
    every = layouts.of(channels=True, batch=False)
    for shape in ((3, 5, 33), (3, 70, 3001)):
        content, style = _maps(shape, dtype), _maps((*shape[:2], 90), dtype, 1)
        dy = _upstream(shape, dtype)
        _, *stats = cnorm.adain(content, style, return_stats=True)
        wanted = cnorm.adain_backward(dy, content, style, *stats)
        x, s = every[content_layout](content)[0], every[style_layout](style)[0]
        for d in (dy, every[style_layout](dy)[0]):
            before = x.copy(), s.copy(), d.copy()
            for ours, theirs in zip(cnorm.adain_backward(d, x, s, *stats), wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
            for given, kept in zip((x, s, d), before, strict=True):
                np.testing.assert_array_equal(given, kept)


@pytest.mark.parametrize("kind", [np.float16, oracle.BFLOAT16])
def test_sixteen_bits_are_computed_in_float32(kind: Any) -> None:
    content, style, dy = _maps((2, 3, 50), kind), _maps((2, 3, 33), kind, 1), _upstream((2, 3, 50), kind)
    exact = adain_oracle.adain_backward(dy, content, style)
    for value, wanted in zip(_gradients(content, style, dy), exact, strict=True):
        assert value.dtype == kind
        low, high = gradient_oracle.rounded_range(wanted, kind, BOUND)
        assert ((low <= value.astype(oracle.Long)) & (value.astype(oracle.Long) <= high)).all()


def test_one_hash_over_levels_and_threads(dtype: Any) -> None:
    problems = []
    for trap in TRAPS:
        if trap.name in ("first element 1e8", "every magnitude", "rows of different kinds"):
            for n, m in ((7, 255), (4099, 70), (50_001, 33_000))[: 3 if trap.name[0] == "f" else 2]:
                content, style = (trap(6, k, dtype).reshape(2, 3, k) for k in (n, m))
                arrays = content, style, _upstream(content.shape, dtype)
                problems += [(*(_last(a, axis) for a in arrays), axis) for axis in (1, -1)]
    arrays = _maps((9, 70, 100), dtype), _maps((9, 70, 80), dtype), _upstream((9, 70, 100), dtype)
    problems += [(*(_last(a, axis) for a in arrays), axis) for axis in (1, -1)]
    hashes = []
    for level, threads in itertools.product(cnorm.isa_levels(), THREAD_COUNTS):
        cnorm.set_isa(level)
        with cnorm.num_threads(threads):
            hashes.append([digest(_gradients(*some, axis=axis)) for *some, axis in problems])
    assert all(each == hashes[0] for each in hashes)


@pytest.mark.parametrize("axis", [1, -1])
def test_bits_do_not_depend_on_the_batch(axis: int, dtype: Any) -> None:
    arrays = [_last(a, axis) for a in (_maps((9, 5, 300), dtype), _maps((9, 5, 70), dtype))]
    arrays.append(_upstream(arrays[0].shape, dtype))
    whole = _gradients(*arrays, axis=axis)
    for n in (0, 4, 8):
        for one, all_of_them in zip(
            _gradients(*(a[n : n + 1] for a in arrays), axis=axis), whole, strict=True
        ):
            np.testing.assert_array_equal(one[0], all_of_them[n])


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_what_is_not_finite_stays_in_its_channel(axis: int, where: int, dtype: Any) -> None:
    first = [_maps((3, 5, 300), dtype), _maps((3, 5, 70), dtype), _upstream((3, 5, 300), dtype)]
    wanted = _gradients(*(_last(a, axis) for a in first), axis=axis)
    first[where][1, 2, 40] = np.nan
    others = np.ones((3, 5), bool)
    others[1, 2] = False
    for value, clean in zip(_gradients(*(_last(a, axis) for a in first), axis=axis), wanted, strict=True):
        moved = np.moveaxis(value, axis, 1)
        assert np.isnan(moved[1, 2]).all()
        np.testing.assert_array_equal(moved[others], np.moveaxis(clean, axis, 1)[others])


def test_the_gradient_of_the_content_goes_to_out(dtype: Any) -> None:
    content, style, dy = _maps((2, 5, 11), dtype), _maps((2, 5, 7), dtype), _upstream((2, 5, 11), dtype)
    _, *stats = cnorm.adain(content, style, return_stats=True)
    wanted = cnorm.adain_backward(dy, content, style, *stats)
    for out in (np.full_like(dy, np.nan), dy.copy(), np.asfortranarray(dy)):
        given = out if not np.isnan(out).any() else dy
        grads = cnorm.adain_backward(given, content, style, *stats, out=out)
        assert grads.content is out
        for ours, theirs in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_constant_maps_and_single_positions(dtype: Any) -> None:
    """Without spread in the content nothing reaches std_s; and each position of the style gets the mean."""
    for n, m in ((1, 1), (1, 8), (8, 1), (8, 8)):
        content, style = np.full((1, 2, n), 3, dtype), np.full((1, 2, m), 5, dtype)
        dy = np.ones((1, 2, n), dtype)
        for axis in (1, -1):
            grads = _gradients(_last(content, axis), _last(style, axis), _last(dy, axis), axis=axis)
            assert not grads.content.any()
            np.testing.assert_allclose(grads.style, n / m, rtol=1e-6)
            flat = _gradients(_last(content, axis), _last(style, axis), _last(dy, axis), eps=0.0, axis=axis)
            np.testing.assert_allclose(flat.style, n / m, rtol=1e-6)
            assert not flat.content.any()


def test_no_content_gives_the_style_no_gradient(dtype: Any) -> None:
    stats = [np.ones((2, 3), dtype)] * 4
    for shape, other in (
        ((2, 3, 0), (2, 3, 5)),
        ((0, 3, 4), (0, 3, 5)),
        ((2, 0, 4), (2, 0, 5)),
        ((2, 3, 0),) * 2,
    ):
        some = [s[: shape[0], : shape[1]] for s in stats]
        grads = cnorm.adain_backward(
            np.empty(shape, dtype), np.empty(shape, dtype), np.ones(other, dtype), *some
        )
        assert grads.content.shape == shape
        assert grads.style.shape == other
        assert not grads.style.any()


def test_defaults() -> None:
    assert keyword_only(cnorm.adain_backward) == {
        "axis": 1, "unbiased": True, "need": ("content", "style"), "out": None,
    }  # fmt: skip


_X, _S = np.ones((2, 3, 4), np.float32), np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("error", "word", "changes", "options"),
    [
        (TypeError, "dy", {0: _X.astype(int)}, {}),
        (ValueError, "dy", {0: _X[:, :, :3]}, {}),
        (TypeError, "content", {1: _X.astype(int)}, {}),
        (TypeError, "style", {2: _X.astype(int)}, {}),
        (ValueError, "style", {2: _X[:1]}, {}),
        (ValueError, "style", {2: _X[:, :, :0]}, {}),
        (ValueError, "content_mean", {3: _S[:1]}, {}),
        (TypeError, "content_rstd", {4: _S.astype(int)}, {}),
        (ValueError, "style_mean", {5: _S.T}, {}),
        (ValueError, "style_rstd", {6: _S[0]}, {}),
        (ValueError, "axis", {}, {"axis": 0}),
        (ValueError, "need", {}, {"need": ("x",)}),
        (TypeError, "need", {}, {"need": 3}),
        (ValueError, "out", {}, {"need": "style", "out": np.ones_like(_X)}),
        (TypeError, "out", {}, {"out": np.ones((2, 3, 4))}),
        (ValueError, "out", {}, {"out": np.ones((2, 3, 5), np.float32)}),
        (ValueError, "out", {}, {"out": _X}),
    ],
)
def test_wrong_arguments_are_named(error: Any, word: str, changes: Any, options: Any) -> None:
    arguments = [_X.copy(), _X, _X.copy(), _S, _S, _S, _S]
    for place, value in changes.items():
        arguments[place] = value
    with pytest.raises(error, match=f"^{word}"):
        cnorm.adain_backward(*arguments, **options)


class TestLayer:
    def test_it_is_the_functions(self, dtype: Any) -> None:
        content, style = _maps((2, 4, 4, 3), dtype), _maps((2, 5, 2, 3), dtype)
        dy = _upstream(content.shape, dtype)
        layer = cnorm.AdaIN(eps=1e-3, unbiased=False, axis=-1)
        np.testing.assert_array_equal(
            layer(content, style), cnorm.adain(content, style, 1e-3, axis=-1, unbiased=False)
        )
        wanted = _gradients(content, style, dy, 1e-3, axis=-1, unbiased=False)
        for ours, theirs in zip(layer.backward(dy), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_a_call_is_used_once(self) -> None:
        layer = cnorm.AdaIN()
        with pytest.raises(RuntimeError, match=r"AdaIN\.backward"):
            layer.backward(_X)
        layer(_X, _X)
        with pytest.raises(ValueError, match="dy"):
            layer.backward(_X[:1])
        layer.backward(_X)
        layer(_X, _X, save=False)
        with pytest.raises(RuntimeError, match="save=False"):
            layer.backward(_X)

    def test_it_has_no_state(self) -> None:
        layer = cnorm.AdaIN(0.5)
        layer(_X, _X)
        copy = pickle.loads(pickle.dumps(layer))
        assert repr(copy) == repr(layer) == "AdaIN(eps=0.5, unbiased=True, axis=1)"
        assert copy.state_dict() == copy.parameters() == {}
        assert copy.eval().train().load_state_dict({}) == ([], [])
        with pytest.raises(RuntimeError):
            copy.backward(_X)

    @pytest.mark.parametrize(("error", "options"), [(ValueError, {"eps": -1}), (TypeError, {"axis": 1.5})])
    def test_wrong_arguments(self, error: Any, options: Any) -> None:
        with pytest.raises(error, match=next(iter(options))):
            cnorm.AdaIN(**options)
