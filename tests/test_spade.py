"""spade: accuracy on traps, broadcasts, layouts, dtypes, bits, arguments, and PyTorch's composition."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
import oracle
from norms import far_from_one
from peer import tensor, torch
from placement import digest
from spade_cases import BROADCASTS, GROUPS, NORMS, SHAPES, arrange, arranged, draw, options
from traps import TRAPS

BOUND = 6.0
each_norm = pytest.mark.parametrize("norm", NORMS)
each_broadcast = pytest.mark.parametrize("broadcast", BROADCASTS)
each_layout = pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])


def _drawn(*args: Any, is_last: bool = False) -> tuple[Any, ...]:
    return arranged(draw(*args), is_last)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_accuracy_on_traps(trap: Any, dtype: Any) -> None:
    for norm, is_last, elements in product(NORMS, (False, True), (2, 130)):
        rng = np.random.default_rng(elements)
        x = arrange(trap(4, elements, dtype), norm)
        gamma, beta = (far_from_one(rng, x.shape, dtype) for _ in range(2))
        x, gamma, beta, axis = arranged((x, gamma, beta), is_last)
        given = options(norm, axis, gamma_offset=0.0)
        y = cnorm.spade(x, gamma, beta, trap.eps, **given)
        assert oracle.worst_units(y, oracle.spade(x, gamma, beta, trap.eps, **given)) <= BOUND, norm


@each_norm
@each_broadcast
def test_broadcasts(norm: str, broadcast: str, dtype: Any) -> None:
    for shape, is_last in product(SHAPES, (False, True)):
        x, gamma, beta, _, axis = _drawn(shape, broadcast, dtype, is_last=is_last)
        given = options(norm, axis)
        y, mean, rstd = cnorm.spade(x, gamma, beta, return_stats=True, **given)
        exact = oracle.spade(x, gamma, beta, **given)
        assert y.dtype == dtype
        assert oracle.worst_units(y, exact) <= BOUND
        np.testing.assert_allclose(mean.ravel(), exact.mean.astype(dtype).ravel(), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rstd.ravel(), exact.rstd.astype(dtype).ravel(), rtol=1e-6)
        batch, channels = x.shape[0], x.shape[axis]
        shapes = {"batch": (channels,), "instance": (batch, channels), "layer": (batch, 1, 1, 1)}
        assert mean.shape == rstd.shape == shapes.get(norm, (batch, GROUPS))


@each_norm
@each_layout
@pytest.mark.parametrize("value", [0.1, 1e7, 1e-30, 3e38])
def test_a_constant_group_is_exactly_beta(norm: str, is_last: bool, value: float) -> None:
    x, gamma, beta, _, axis = _drawn((2, 4, 5, 9), "each element", np.float32, is_last=is_last)
    x = np.full_like(x, value)
    np.testing.assert_array_equal(cnorm.spade(x, gamma, beta, **options(norm, axis)), beta)


@each_norm
@each_layout
def test_not_a_number_stays_in_its_group(norm: str, is_last: bool, dtype: Any) -> None:
    x, gamma, beta, _, axis = _drawn((3, 4, 3, 40), "each element", dtype, is_last=is_last)
    clean = cnorm.spade(x, gamma, beta, **options(norm, axis))
    x[1, 1, 2, 1] = np.inf
    y = cnorm.spade(x, gamma, beta, **options(norm, axis))
    first, before = (np.moveaxis(a, axis, 1) for a in (y, clean))
    channel = 1 if axis == -1 or axis == 1 else 0
    places = {
        "batch": np.s_[:, channel],
        "instance": np.s_[1, channel],
        "layer": np.s_[1],
        "group": np.s_[1, : 4 // GROUPS],
    }
    bad = np.zeros(first.shape, bool)
    bad[places[norm]] = True
    assert np.isnan(first[bad]).all()
    np.testing.assert_array_equal(first[~bad], before[~bad])


@pytest.mark.usefixtures("native")
@each_norm
@each_layout
@pytest.mark.parametrize("broadcast", ["each element", "by rows and columns"])
def test_bits(norm: str, is_last: bool, broadcast: str, dtype: Any) -> None:
    """The same on every level and for any number of threads; and of a sample alone, if that has groups."""
    x, gamma, beta, _, axis = _drawn((2, 4, 150, 270), broadcast, dtype, is_last=is_last)
    given = options(norm, axis, return_stats=True)
    seen = set()
    for level in cnorm.isa_levels():
        for threads in (1, 2, 3, 7):
            cnorm.set_isa(level)
            cnorm.set_num_threads(threads)
            seen.add(digest(cnorm.spade(x, gamma, beta, **given)))
    assert len(seen) == 1
    if norm != "batch":
        y = cnorm.spade(x, gamma, beta, **options(norm, axis))
        one = [array if array.shape[0] == 1 or array.ndim < 4 else array[1:] for array in (x, gamma, beta)]
        np.testing.assert_array_equal(cnorm.spade(*one, **options(norm, axis)), y[1:])


@each_norm
@pytest.mark.parametrize("layout", layouts.of(channels=True, batch=True))
def test_layouts(norm: str, layout: str) -> None:
    """Of each argument by itself, the others contiguous."""
    x, gamma, beta, _ = draw((3, 4, 5, 6), "each element", np.float32)
    wanted = cnorm.spade(x, gamma, beta, **options(norm))
    change = layouts.of(channels=True, batch=norm == "batch").get(layout)
    if change is None:
        pytest.skip("samples are apart in this norm")
    moved, axis = change(x)
    if moved.shape == x.shape and axis == 1:
        for arrays in ((moved, gamma, beta), (x, change(gamma)[0], beta), (x, gamma, change(beta)[0])):
            kept = [array.copy() for array in arrays]
            y = cnorm.spade(*arrays, **options(norm))
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=2e-6)
            for array, copy in zip(arrays, kept, strict=True):
                np.testing.assert_array_equal(array, copy)
    else:
        arrays = [change(array)[0] for array in (x, gamma, beta)]
        y = cnorm.spade(*arrays, **options(norm, axis))
        np.testing.assert_allclose(y, change(wanted)[0], rtol=1e-5, atol=2e-6)


@each_norm
@each_broadcast
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bits_are_rounded_once(norm: str, broadcast: str, half: Any) -> None:
    x, gamma, beta, _ = draw((2, 4, 5, 7), broadcast, half)
    y = cnorm.spade(x, gamma, beta, **options(norm))
    single = cnorm.spade(*(array.astype(np.float32) for array in (x, gamma, beta)), **options(norm))
    assert y.dtype == half
    np.testing.assert_array_equal(y, single.astype(half))


@each_norm
@each_layout
def test_out(norm: str, is_last: bool, dtype: Any) -> None:
    x, gamma, beta, _, axis = _drawn((2, 4, 5, 7), "each element", dtype, is_last=is_last)
    wanted = cnorm.spade(x, gamma, beta, **options(norm, axis))
    target = x.copy()
    assert cnorm.spade(target, gamma, beta, out=target, **options(norm, axis)) is target
    np.testing.assert_array_equal(target, wanted)
    strided = np.empty((*x.shape, 2), dtype)[..., 0]
    np.testing.assert_array_equal(cnorm.spade(x, gamma, beta, out=strided, **options(norm, axis)), wanted)
    for name, other in (("gamma", gamma), ("beta", beta)):
        with pytest.raises(ValueError, match=rf"out: .*memory of {name}"):
            cnorm.spade(x, gamma, beta, out=other, **options(norm, axis))


@each_broadcast
@each_layout
def test_running_statistics(broadcast: str, is_last: bool, dtype: Any) -> None:
    """Those of batch norm: updated in training, used without; unusual magnitudes among them."""
    x, gamma, beta, _, axis = _drawn((3, 4, 5, 7), broadcast, dtype, is_last=is_last)
    statistics = [np.array([0, 1, -3, 1e30], dtype), np.array([1, 0.25, 1e-12, 1e36], dtype)]
    plain = [array.copy() for array in statistics]
    cnorm.batch_norm(x, *plain, training=True, momentum=0.3, axis=axis)
    changed = [array.copy() for array in statistics]
    cnorm.spade(x, gamma, beta, momentum=0.3, running_mean=changed[0], running_var=changed[1], axis=axis)
    for ours, theirs in zip(changed, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    given = {"running_mean": statistics[0], "running_var": statistics[1], "training": False, "axis": axis}
    y, mean, rstd = cnorm.spade(x, gamma, beta, return_stats=True, **given)
    exact = oracle.spade(x, gamma, beta, axis=axis, running=(statistics[0], statistics[1]))
    assert oracle.worst_units(y, exact) <= BOUND
    np.testing.assert_array_equal(mean, statistics[0])
    np.testing.assert_allclose(rstd, exact.rstd.astype(dtype), rtol=1e-6)


def test_inference_beyond_the_range(dtype: Any) -> None:
    """xhat alone overflows; times gamma it does not."""
    largest, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_normal
    x = np.full((2, 1, 300), largest / 2, dtype)
    statistics = {"running_mean": -np.full(1, largest / 2, dtype), "running_var": np.full(1, 1e-4, dtype)}
    gamma = np.full((2, 1, 300), 8 * tiny, dtype)
    y = cnorm.spade(x, gamma, np.ones(1, dtype), 0.0, gamma_offset=0.0, training=False, **statistics)
    np.testing.assert_allclose(y, np.longdouble(largest) * 8 * tiny * 100 + 1, rtol=1e-3)


@pytest.mark.peers
@each_norm
@each_broadcast
def test_pytorchs_composition(norm: str, broadcast: str) -> None:
    x, gamma, beta, _ = draw((2, 4, 5, 6), broadcast, np.float64)
    functional = torch().nn.functional
    xhat = {
        "batch": lambda t: functional.batch_norm(t, None, None, training=True),
        "instance": functional.instance_norm,
        "layer": lambda t: functional.layer_norm(t, t.shape[1:]),
        "group": lambda t: functional.group_norm(t, GROUPS),
    }[norm](tensor(x))
    wanted = xhat * (1 + tensor(gamma)) + tensor(beta)
    np.testing.assert_allclose(cnorm.spade(x, gamma, beta, **options(norm)), wanted, rtol=1e-12, atol=1e-12)


@each_norm
@pytest.mark.parametrize("shape", [(0, 4, 2, 3), (2, 4, 0, 3)])
def test_empty(norm: str, shape: tuple[int, ...]) -> None:
    x, gamma, beta, _ = draw(shape, "each element", np.float32)
    running = (
        (np.array([1, 2, 3, 4], np.float32), np.ones(4, np.float32)) if norm == "batch" else (None, None)
    )
    y, mean, rstd = cnorm.spade(
        x, gamma, beta, running_mean=running[0], running_var=running[1], return_stats=True, **options(norm)
    )
    assert y.shape == shape
    assert not mean.any()
    assert not rstd.any()
    if norm == "batch":
        np.testing.assert_array_equal(running[0], [1, 2, 3, 4])


X = np.ones((2, 4, 3), np.float32)
ONES = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (TypeError, "x: ", {"x": X.astype(np.int32)}),
        (TypeError, "gamma: ", {"gamma": X.astype(np.int32)}),
        (TypeError, "beta: expected an array", {"beta": None}),
        (ValueError, "gamma: expected a shape that broadcasts", {"gamma": X[:, :, :2]}),
        (ValueError, "gamma: expected a shape that broadcasts", {"gamma": X[None]}),
        (ValueError, "beta: expected a shape that broadcasts", {"beta": np.ones((3, 4, 3), np.float32)}),
        (ValueError, "beta: expected a shape that broadcasts", {"beta": ONES}),
        (TypeError, "norm: ", {"norm": 1}),
        (ValueError, "norm: ", {"norm": "batch_norm"}),
        (ValueError, "num_groups: ", {"norm": "group", "num_groups": 3}),
        (TypeError, "num_groups: ", {"norm": "group"}),
        (ValueError, "num_groups: expected None", {"norm": "layer", "num_groups": 1}),
        (ValueError, "axis: ", {"axis": 3}),
        (ValueError, "axis: ", {"axis": 0, "norm": "instance"}),
        (ValueError, "eps: ", {"eps": -1.0}),
        (ValueError, "gamma_offset: ", {"gamma_offset": np.nan}),
        (TypeError, "gamma_offset: ", {"gamma_offset": "1"}),
        (ValueError, "momentum: ", {"momentum": np.inf}),
        (ValueError, "running_mean: ", {"training": False}),
        (ValueError, "running_var: ", {"running_mean": ONES}),
        (ValueError, "running_mean: expected None", {"norm": "instance", "running_mean": ONES}),
        (ValueError, "x: expected more than one value", {"x": X[:1, :, :1], "gamma": ONES[:, None]}),
        (ValueError, "out: ", {"out": X[:1]}),
        (TypeError, "out: ", {"out": X.astype(np.float64)}),
    ],
)
def test_wrong_arguments(error: type[Exception], match: str, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"x": X, "gamma": X[:, :, :1], "beta": X[:, :, :1], **change}
    if "gamma" in change and "beta" not in change:
        given["beta"] = ONES[:, None]
    with pytest.raises(error, match=match):
        cnorm.spade(**given)
