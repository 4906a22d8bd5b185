"""Calls of layers: what is remembered for the gradients, how these add up, and what is refused."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
from layer_cases import CASES, NAMES, Case, randomize

each_case = pytest.mark.parametrize("case", CASES, ids=NAMES)


def _same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@each_case
def test_a_call_is_used_once(case: Case) -> None:
    layer = case.ours()
    x = case.draw(np.random.default_rng(0))
    with pytest.raises(RuntimeError, match=rf"{case.name}\.backward: expected a call"):
        layer.backward(x)
    layer(x)
    layer.backward(x)
    grads = {name: g.copy() for name, g in layer.grads.items()}
    with pytest.raises(RuntimeError, match="one for each"):
        layer.backward(x)
    assert _same(layer.grads, grads)


def test_backward_is_that_of_the_latest_call() -> None:
    layer = cnorm.LayerNorm(3)
    first, second = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
    layer(first)
    layer(second)
    dx = layer.backward(first)
    other = cnorm.LayerNorm(3)
    other(second)
    np.testing.assert_array_equal(dx, other.backward(first))


def test_a_call_is_released_after_use() -> None:
    layer = cnorm.BatchNorm1d(3)
    x = np.ones((4, 3), np.float32)
    alive = weakref.ref(x)
    layer(x)
    layer.backward(x)
    del x
    gc.collect()
    assert alive() is None


def test_nothing_is_remembered_without_save() -> None:
    layer = cnorm.BatchNorm1d(3)
    x = np.random.default_rng(2).standard_normal((4, 3))
    alive = weakref.ref(x)
    wanted = cnorm.BatchNorm1d(3)(x)
    layer(np.ones((2, 3)))
    layer.load_state_dict(cnorm.BatchNorm1d(3).state_dict())
    np.testing.assert_array_equal(layer(x, save=False), wanted)
    assert layer.num_batches_tracked == 1
    with pytest.raises(RuntimeError, match="save=False"):
        layer.backward(x)
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("dy", "error"),
    [(np.ones((4, 2)), ValueError), (np.ones((4, 3), int), TypeError), ([[1.0] * 3] * 4, TypeError)],
)
@pytest.mark.parametrize("name", ["BatchNorm1d", "LayerNorm", "RMSNorm"])
def test_a_refused_gradient_may_be_given_again(name: str, dy: Any, error: type[Exception]) -> None:
    layer = getattr(cnorm, name)(3)
    x = np.random.default_rng(3).standard_normal((4, 3))
    layer(x)
    with pytest.raises(error, match="dy: "):
        layer.backward(dy)
    assert not layer.grads
    assert layer.backward(x).shape == x.shape


def test_a_refused_call_leaves_the_one_before() -> None:
    layer = cnorm.LayerNorm(3)
    x = np.random.default_rng(4).standard_normal((4, 3))
    layer(x)
    with pytest.raises(ValueError, match="normalized_shape"):
        layer(x.T)
    assert layer.backward(x).shape == x.shape


@each_case
def test_gradients_add_up_until_they_are_cleared(case: Case) -> None:
    layer = case.ours()
    rng = np.random.default_rng(5)
    x, dy = case.draw(rng), case.draw(rng)
    layer(x)
    layer.backward(dy)
    once, held = {name: g.copy() for name, g in layer.grads.items()}, dict(layer.grads)
    assert once.keys() == layer.parameters().keys()
    layer(x)
    layer.backward(dy)
    for name, gradient in layer.grads.items():
        assert gradient is held[name]
        np.testing.assert_array_equal(gradient, 2 * once[name])
    layer.zero_grad()
    assert not layer.grads
    layer(x)
    layer.backward(dy)
    assert _same(layer.grads, once)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("x_kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@each_case
def test_dtypes(case: Case, kind: Any, x_kind: Any) -> None:
    """Parameters have theirs, gradients at least float32 whatever x is, running statistics too."""
    layer = case.ours(kind)
    at_least = np.float64 if kind is np.float64 else np.float32
    x = case.draw(np.random.default_rng(6), x_kind)
    for _ in range(2):
        assert layer(x).dtype == x_kind
        assert layer.backward(x).dtype == x_kind
    for name, parameter in layer.parameters().items():
        assert parameter.dtype == kind
        assert layer.grads[name].dtype == at_least
        assert layer.grads[name].shape == parameter.shape
    for name in layer.state_dict().keys() - layer.parameters().keys():
        assert getattr(layer, name).dtype == (np.int64 if name == "num_batches_tracked" else at_least)


def test_default_dtype_is_float32() -> None:
    for layer in (cnorm.LayerNorm(3), cnorm.LayerNorm(3, dtype=None), cnorm.BatchNorm1d(3, dtype="f4")):
        assert {p.dtype for p in layer.parameters().values()} == {np.dtype(np.float32)}


@each_case
def test_parameters_may_be_replaced(case: Case) -> None:
    layer, other = case.ours(), case.ours()
    randomize(layer, 7)
    for name, parameter in layer.parameters().items():
        assert getattr(layer, name) is parameter
        setattr(other, name, parameter)
    x = case.draw(np.random.default_rng(7))
    np.testing.assert_array_equal(other(x), layer(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", [case for case in CASES if case.batched], ids=str)
def test_empty_batch(case: Case, training: bool) -> None:
    """Nothing is counted, and gradients of parameters are zeros."""
    layer = case.ours().train(training)
    randomize(layer, 8)
    before = layer.state_dict()
    x = np.empty((0, *case.shape[1:]))
    assert layer(x).shape == x.shape
    assert layer.backward(x).shape == x.shape
    assert _same(layer.state_dict(), before)
    for name, parameter in layer.parameters().items():
        np.testing.assert_array_equal(layer.grads[name], np.zeros(parameter.shape))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("BatchNorm1d", (1, 3)), ("BatchNorm1d", (1, 3, 1)), ("BatchNorm2d", (1, 3, 1, 1)),
     ("BatchNorm3d", (1, 3, 1, 1, 1)), ("InstanceNorm1d", (3, 1)), ("InstanceNorm1d", (2, 3, 1)),
     ("InstanceNorm2d", (2, 3, 1, 1)), ("InstanceNorm3d", (3, 1, 1, 1))],
)  # fmt: skip
@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_of_one_value_are_refused(
    name: str, shape: tuple[int, ...], momentum: float | None
) -> None:
    layer = getattr(cnorm, name)(3, momentum=momentum, track_running_stats=True)
    randomize(layer, 9)
    before = layer.state_dict()
    x = np.ones(shape, np.float32)
    with pytest.raises(ValueError, match="x: expected more than one value per channel"):
        layer(x)
    assert _same(layer.state_dict(), before)
    with pytest.raises(RuntimeError):
        layer.backward(x)
    assert layer.eval()(x).shape == shape


def test_one_value_per_channel_and_sample_is_enough_for_batch_norm() -> None:
    assert cnorm.BatchNorm2d(3)(np.ones((1, 3, 2, 1), np.float32)).shape == (1, 3, 2, 1)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("BatchNorm1d", (2, 3)), ("BatchNorm2d", (4,)), ("BatchNorm3d", (5,)),
     ("InstanceNorm1d", (2, 3)), ("InstanceNorm2d", (3, 4)), ("InstanceNorm3d", (4, 5))],
)  # fmt: skip
@pytest.mark.parametrize("rank", range(7))
def test_number_of_axes(name: str, ranks: tuple[int, ...], rank: int) -> None:
    layer = getattr(cnorm, name)(2, affine=False, track_running_stats=False)
    x = np.ones((2,) * rank, np.float32)
    if rank in ranks:
        assert layer(x).shape == x.shape
        return
    with pytest.raises(ValueError, match=f"x: expected {' or '.join(map(str, ranks))} axes, got shape"):
        layer(x)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d", "GroupNorm"])
@pytest.mark.parametrize("axis", [1, -1])
def test_number_of_channels(name: str, affine: bool, axis: int) -> None:
    args = (2, 6) if name == "GroupNorm" else (6,)
    layer = getattr(cnorm, name)(*args, affine=affine, axis=axis)
    with pytest.raises(ValueError, match=r"x: expected 6 channels on axis [12], got shape \(2, 4, 4\)"):
        layer(np.ones((2, 4, 4), np.float32))


@pytest.mark.parametrize("layer", [cnorm.LayerNorm((3, 4)), cnorm.RMSNorm((3, 4)),
                                   cnorm.LayerNorm((3, 4), elementwise_affine=False)])  # fmt: skip
@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 4, 3), ()])
def test_rows_of_another_shape(layer: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected (the last axes of x|at least 1 axis)"):
        layer(np.ones(shape, np.float32))


@each_case
@pytest.mark.parametrize("x", [3.0, [[1.0]], None, "x"])
def test_what_is_no_array(case: Case, x: Any) -> None:
    with pytest.raises(TypeError, match="x: expected an array"):
        case.ours()(x)


@each_case
@pytest.mark.parametrize("kind", [np.int64, np.complex64, object, bool])
def test_arrays_of_other_types(case: Case, kind: Any) -> None:
    with pytest.raises(TypeError, match="x: expected dtype"):
        case.ours()(np.ones(case.shape, kind))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: cnorm.BatchNorm1d(-1), ValueError, "num_features: expected an integer >= 0, got -1"),
        (lambda: cnorm.BatchNorm2d(3.0), TypeError, "num_features: expected an integer, got float"),
        (lambda: cnorm.BatchNorm2d(3, eps=-1), ValueError, "eps: expected a number >= 0"),
        (lambda: cnorm.InstanceNorm1d(3, eps="1"), TypeError, "eps: expected a number"),
        (lambda: cnorm.BatchNorm2d(3, momentum=np.nan), ValueError, "momentum: expected a finite number"),
        (lambda: cnorm.InstanceNorm3d(3, momentum="x"), TypeError, "momentum: expected a number"),
        (lambda: cnorm.BatchNorm2d(3, axis=1.5), TypeError, "axis: expected an integer"),
        (lambda: cnorm.BatchNorm2d(3, dtype=np.int32), TypeError, "dtype: expected dtype float16"),
        (lambda: cnorm.LayerNorm(3, dtype=np.complex64), TypeError, "dtype: expected dtype float16"),
        (lambda: cnorm.GroupNorm(4, 6), ValueError, "num_groups: expected a positive divisor of the 6"),
        (lambda: cnorm.GroupNorm(0, 6), ValueError, "num_groups: expected a positive divisor"),
        (lambda: cnorm.GroupNorm(2, -6), ValueError, "num_channels: expected an integer >= 0"),
        (lambda: cnorm.GroupNorm(2, 6, eps=np.inf), ValueError, "eps: expected a finite number"),
        (lambda: cnorm.LayerNorm(()), ValueError, "normalized_shape: expected at least 1 axis"),
        (lambda: cnorm.LayerNorm((3, -1)), ValueError, "normalized_shape: expected an integer >= 0"),
        (lambda: cnorm.RMSNorm((3, 2.5)), TypeError, "normalized_shape: expected an integer"),
        (lambda: cnorm.RMSNorm(3, eps=-1e-5), ValueError, "eps: expected a number >= 0"),
    ],
)
def test_arguments_are_checked_when_a_layer_is_made(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize("axis", [0, 5, -6])
def test_axes_that_cannot_be_the_channels(axis: int) -> None:
    with pytest.raises(ValueError, match="axis: expected an axis of x"):
        cnorm.GroupNorm(1, 3, axis=axis)(np.ones((3, 3, 3), np.float32))


@each_case
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_have_the_state_but_not_the_call(case: Case, how: Any) -> None:
    layer = case.ours()
    randomize(layer, 10)
    x = case.draw(np.random.default_rng(10))
    layer(x)
    layer.backward(x)
    layer(x)
    twin = how(layer)
    assert repr(twin) == repr(layer)
    assert _same(twin.state_dict(), layer.state_dict())
    assert _same(twin.grads, layer.grads)
    with pytest.raises(RuntimeError):
        twin.backward(x)
    np.testing.assert_array_equal(layer.backward(x).shape, x.shape)
    if how is not copy.copy:
        assert not any(np.shares_memory(twin.parameters()[n], p) for n, p in layer.parameters().items())


def test_modes() -> None:
    layer = cnorm.BatchNorm1d(3)
    assert layer.training is True
    assert layer.eval() is layer
    assert layer.training is False
    assert layer.train() is layer
    assert layer.training is True
    assert layer.train(False).training is False
