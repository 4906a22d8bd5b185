"""spade_backward: accuracy, broadcasts, bits, layouts, frozen statistics, arguments, PyTorch's gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
from norms import far_from_one
from peer import tensor, torch
from placement import digest
from spade_cases import BROADCASTS, GROUPS, NORMS, SHAPES, arrange, arranged, draw, gradients, options
from traps import TRAPS

BOUND = 16.0
each_norm = pytest.mark.parametrize("norm", NORMS)
each_broadcast = pytest.mark.parametrize("broadcast", BROADCASTS)
each_layout = pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])


def _drawn(*args: Any, is_last: bool = False) -> tuple[Any, ...]:
    return arranged(draw(*args), is_last)


def _assert_exact(grads: cnorm.SpadeGradients, exact: gradient_oracle.ExactGradients) -> None:
    pairs = {"x": (grads.x, exact.x), "gamma": (grads.gamma, exact.weight), "beta": (grads.beta, exact.bias)}
    for name, (value, wanted) in pairs.items():
        assert value is not None
        assert value.shape == wanted.values.shape, name
        assert gradient_oracle.units(value, wanted) <= BOUND, name


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_accuracy_on_traps(trap: Any, dtype: Any) -> None:
    for norm, is_last, elements in product(NORMS, (False, True), (2, 130)):
        rng = np.random.default_rng(elements)
        x = arrange(trap(4, elements, dtype), norm)
        gamma, dy = far_from_one(rng, x.shape, dtype), rng.standard_normal(x.shape).astype(dtype)
        x, gamma, dy, axis = arranged((x, gamma, dy), is_last)
        given = options(norm, axis, gamma_offset=0.0)
        grads = gradients(dy, x, gamma, gamma, trap.eps, **given)
        _assert_exact(grads, gradient_oracle.spade(dy, x, gamma, gamma.shape, trap.eps, **given))


@each_norm
@each_broadcast
def test_broadcasts(norm: str, broadcast: str, dtype: Any) -> None:
    for shape, is_last in product(SHAPES, (False, True)):
        x, gamma, beta, dy, axis = _drawn(shape, broadcast, dtype, is_last=is_last)
        given = options(norm, axis)
        grads = gradients(dy, x, gamma, beta, **given)
        assert grads.x.dtype == grads.gamma.dtype == grads.beta.dtype == dtype
        _assert_exact(grads, gradient_oracle.spade(dy, x, gamma, beta.shape, **given))


@pytest.mark.parametrize("exponent", [-0.9, -0.6, 0.4, 0.9])
@each_norm
@each_layout
def test_any_magnitude_of_dy(exponent: float, norm: str, is_last: bool, dtype: Any) -> None:
    """Large and small dy, and gammas of the other end of the range."""
    x, gamma, beta, dy, axis = _drawn((2, 4, 3, 40), "each element", dtype, is_last=is_last)
    power = dtype.type(2.0 ** int(exponent * np.finfo(dtype).maxexp))
    given = options(norm, axis, gamma_offset=0.0)
    wanted = gradients(dy, x, gamma, beta, **given)
    grads = gradients(dy * power, x, gamma / power, beta, **given)
    np.testing.assert_allclose(grads.x, wanted.x, rtol=1e-5, atol=1e-6)
    spacing = np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(grads.gamma, wanted.gamma * power, rtol=1e-5, atol=4 * spacing)


@each_norm
@each_layout
@pytest.mark.parametrize("zero", ["dy", "gamma"])
def test_zeros(norm: str, is_last: bool, zero: str, dtype: Any) -> None:
    x, gamma, beta, dy, axis = _drawn((2, 4, 3, 40), "each element", dtype, is_last=is_last)
    given = options(norm, axis, gamma_offset=0.0)
    wanted = gradients(dy, x, gamma, beta, **given)
    (dy if zero == "dy" else gamma)[:] = 0
    grads = gradients(dy, x, gamma, beta, **given)
    np.testing.assert_array_equal(grads.x, np.zeros_like(x))
    np.testing.assert_array_equal(grads.gamma, 0 * wanted.gamma if zero == "dy" else wanted.gamma)


@each_norm
@each_layout
@pytest.mark.parametrize("where", ["x", "dy"])
def test_not_a_number_stays_in_its_group(norm: str, is_last: bool, where: str, dtype: Any) -> None:
    x, gamma, beta, dy, axis = _drawn((3, 4, 3, 40), "each element", dtype, is_last=is_last)
    clean = gradients(dy, x, gamma, beta, **options(norm, axis)).x
    index = (1, 2, 0, 1) if is_last else (1, 1, 2, 0)
    (x if where == "x" else dy)[index] = np.nan
    dx = gradients(dy, x, gamma, beta, **options(norm, axis)).x
    places = {
        "batch": np.s_[:, 1],
        "instance": np.s_[1, 1],
        "layer": np.s_[1],
        "group": np.s_[1, : 4 // GROUPS],
    }
    dx, clean = (np.moveaxis(a, axis, 1) for a in (dx, clean))
    bad = np.zeros(dx.shape, bool)
    bad[places[norm]] = True
    assert np.isnan(dx[bad]).all()
    np.testing.assert_array_equal(dx[~bad], clean[~bad])


@pytest.mark.usefixtures("native")
@each_norm
@each_layout
@pytest.mark.parametrize("broadcast", ["each element", "each position"])
def test_bits(norm: str, is_last: bool, broadcast: str, dtype: Any) -> None:
    """The same on every level and for any number of threads; and of a sample alone, if that has groups."""
    x, gamma, beta, dy, axis = _drawn((2, 4, 150, 270), broadcast, dtype, is_last=is_last)
    given = options(norm, axis)
    _, mean, rstd = cnorm.spade(x, gamma, beta, return_stats=True, **given)
    seen = set()
    for level in cnorm.isa_levels():
        for threads in (1, 2, 3, 7):
            cnorm.set_isa(level)
            cnorm.set_num_threads(threads)
            seen.add(digest(cnorm.spade_backward(dy, x, mean, rstd, gamma, **given)))
    assert len(seen) == 1
    if norm != "batch":
        grads = cnorm.spade_backward(dy, x, mean, rstd, gamma, **given)
        one = cnorm.spade_backward(dy[1:], x[1:], mean[1:], rstd[1:], gamma[1:], **given)
        np.testing.assert_array_equal(one.x, grads.x[1:])


@each_norm
@each_layout
def test_need_and_out(norm: str, is_last: bool, dtype: Any) -> None:
    """What is asked for alone has the same bits; dx may replace dy, whose gradients are taken before."""
    for broadcast in ("each element", "each channel", "each position"):
        x, gamma, beta, dy, axis = _drawn((2, 4, 5, 7), broadcast, dtype, is_last=is_last)
        given = options(norm, axis)
        _, mean, rstd = cnorm.spade(x, gamma, beta, return_stats=True, **given)
        every = cnorm.spade_backward(dy, x, mean, rstd, gamma, **given)
        for name in ("x", "gamma", "beta"):
            some = cnorm.spade_backward(dy, x, mean, rstd, gamma, need=name, **given)
            for field in some._fields:
                if field == name:
                    np.testing.assert_array_equal(getattr(some, field), getattr(every, field))
                else:
                    assert getattr(some, field) is None
        target = dy.copy()
        grads = cnorm.spade_backward(target, x, mean, rstd, gamma, out=target, **given)
        assert grads.x is target
        for ours, wanted in zip(grads, every, strict=True):
            np.testing.assert_array_equal(ours, wanted)
        assert not np.shares_memory(every.beta, dy)


@each_norm
@pytest.mark.parametrize("layout", layouts.of(channels=True, batch=False))
def test_layouts(norm: str, layout: str) -> None:
    x, gamma, beta, dy = draw((3, 4, 5, 6), "each element", np.float32)
    wanted = gradients(dy, x, gamma, beta, **options(norm))
    change = layouts.of(channels=True, batch=False)[layout]
    moved = [change(array)[0] for array in (dy, x, gamma, beta)]
    axis = change(x)[1]
    for ours, theirs in zip(gradients(*moved, **options(norm, axis)), wanted, strict=True):
        np.testing.assert_allclose(ours, change(theirs)[0], rtol=1e-5, atol=5e-6)
    if axis == 1:
        _, mean, rstd = cnorm.spade(x, gamma, beta, return_stats=True, **options(norm))
        for k in range(3):
            arrays = [dy, x, gamma]
            arrays[k] = moved[k]
            grads = cnorm.spade_backward(*arrays[:2], mean, rstd, arrays[2], **options(norm))
            for ours, theirs in zip(grads, wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=5e-6)


@each_norm
@each_broadcast
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bits(norm: str, broadcast: str, half: Any) -> None:
    arrays = draw((2, 4, 5, 7), broadcast, half)
    x, gamma, beta, dy = arrays
    grads = gradients(dy, x, gamma, beta, **options(norm))
    x, gamma, beta, dy = (array.astype(np.float32) for array in arrays)
    single = gradients(dy, x, gamma, beta, **options(norm))
    assert grads.x.dtype == half
    np.testing.assert_array_equal(grads.x, single.x.astype(half))
    for ours, wanted in zip(grads[1:], single[1:], strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)


@each_broadcast
@each_layout
def test_frozen_statistics(broadcast: str, is_last: bool, dtype: Any) -> None:
    x, gamma, beta, dy, axis = _drawn((3, 4, 5, 7), broadcast, dtype, is_last=is_last)
    mean, rstd = np.array([0, 1, -3, 2], dtype), np.array([1, 0.25, 3, 1e3], dtype)
    shape = [1] * 4
    shape[axis] = 4
    wide = [array.astype(np.longdouble) for array in (dy, x, gamma)]
    hat = (wide[1] - mean.reshape(shape)) * rstd.reshape(shape)
    wanted = wide[0] * (1 + wide[2]) * rstd.reshape(shape)
    grads = cnorm.spade_backward(dy, x, mean, rstd, gamma, beta_shape=beta.shape, training=False, axis=axis)
    unit = np.finfo(dtype).eps / 2
    np.testing.assert_allclose(grads.x, wanted, rtol=BOUND * unit)
    for ours, terms in ((grads.gamma, wide[0] * hat), (grads.beta, wide[0])):
        full = (1,) * (4 - ours.ndim) + ours.shape
        summed = tuple(a for a in range(4) if full[a] == 1 and x.shape[a] > 1)
        total = terms.sum(axis=summed, keepdims=True).reshape(ours.shape)
        np.testing.assert_allclose(ours, total, rtol=0, atol=BOUND * unit * abs(total).max())


def test_frozen_statistics_beyond_the_range(dtype: Any) -> None:
    """Products of two factors overflow or vanish; of three they do not."""
    info = np.finfo(dtype)
    dy = np.array([info.max / 4, info.smallest_normal * 4, 0], dtype)
    gamma = np.array([1024, 1 / 1024, 1], dtype)
    x, mean = np.array([info.max / 2, -info.max / 2, 0], dtype), np.array([-info.max / 2], dtype)
    for scale, number in ((2.0**-20, 0), (2.0**40, 1)):
        rstd = np.array([scale], dtype)
        given = {"training": False, "gamma_offset": 0.0}
        arrays = (array[:, None] for array in (dy, x))
        grads = cnorm.spade_backward(*arrays, mean, rstd, gamma[:, None], **given)
        wanted = np.longdouble(dy[number]) * gamma[number] * scale
        np.testing.assert_allclose(grads.x[number, 0], wanted, rtol=1e-6)
        assert grads.x[2, 0] == 0


@pytest.mark.peers
@each_norm
@each_broadcast
def test_pytorchs_gradients(norm: str, broadcast: str) -> None:
    arrays = draw((2, 4, 5, 6), broadcast, np.float64)
    x, gamma, beta = (tensor(array).requires_grad_() for array in arrays[:3])
    functional = torch().nn.functional
    xhat = {
        "batch": lambda t: functional.batch_norm(t, None, None, training=True),
        "instance": functional.instance_norm,
        "layer": lambda t: functional.layer_norm(t, t.shape[1:]),
        "group": lambda t: functional.group_norm(t, GROUPS),
    }[norm](x)
    (xhat * (1 + gamma) + beta).backward(tensor(arrays[3]))
    ours = gradients(arrays[3], *arrays[:3], **options(norm))
    for grad, theirs in zip(ours, (x, gamma, beta), strict=True):
        np.testing.assert_allclose(grad, theirs.grad, rtol=1e-11, atol=1e-11)


@each_norm
@pytest.mark.parametrize("shape", [(0, 4, 2, 3), (2, 4, 0, 3)])
def test_empty(norm: str, shape: tuple[int, ...]) -> None:
    x, gamma, _, dy = draw(shape, "each element", np.float32)
    grads = gradients(dy, x, gamma[:1, :, :, :1], np.ones((4, 1, 1), np.float32), **options(norm))
    assert grads.x.shape == shape
    np.testing.assert_array_equal(grads.beta, np.zeros((4, 1, 1)))
    np.testing.assert_array_equal(grads.gamma, np.zeros_like(gamma[:1, :, :, :1]))


X = np.ones((2, 4, 3), np.float32)
ONES = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (TypeError, "x: ", {"x": X.astype(np.int32)}),
        (TypeError, "dy: ", {"dy": X.astype(np.int32)}),
        (ValueError, "dy: ", {"dy": X[:1]}),
        (ValueError, "mean: ", {"mean": ONES[:2]}),
        (ValueError, "rstd: ", {"norm": "instance", "mean": X[:, :, 0]}),
        (TypeError, "gamma: ", {"gamma": None}),
        (ValueError, "gamma: expected a shape that broadcasts", {"gamma": X[:, :2]}),
        (ValueError, "beta_shape: expected a shape that broadcasts", {"beta_shape": (3, 4, 3)}),
        (TypeError, "beta_shape: ", {"beta_shape": 3}),
        (TypeError, "beta_shape: ", {"beta_shape": (1.5,)}),
        (ValueError, "norm: ", {"norm": "rms"}),
        (ValueError, "num_groups: ", {"norm": "group", "num_groups": 3}),
        (ValueError, "axis: ", {"axis": 3}),
        (ValueError, "gamma_offset: ", {"gamma_offset": np.inf}),
        (ValueError, "need: ", {"need": ("x", "weight")}),
        (TypeError, "need: ", {"need": None}),
        (TypeError, "need: ", {"need": (1,)}),
        (ValueError, "out: ", {"need": ("gamma",), "out": X.copy()}),
        (ValueError, "out: ", {"out": X}),
        (TypeError, "out: ", {"out": X.astype(np.float64)}),
    ],
)
def test_wrong_arguments(error: type[Exception], match: str, change: dict[str, Any]) -> None:
    given = {"dy": X + 1, "x": X, "mean": ONES, "rstd": ONES, "gamma": X + 2, **change}
    with pytest.raises(error, match=match):
        cnorm.spade_backward(**given)
