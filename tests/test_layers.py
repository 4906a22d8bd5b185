"""Layers: PyTorch's arguments, defaults and results, step by step."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cnorm
from layer_cases import CASES, NAMES, Case, randomize, step, their_step
from peer import tensor, torch

#: PyTorch's float32 error over a run of steps; in float64 its own sums lose some bits too.
TOLERANCE = {"float32": 3e-5, "float64": 1e-12}

each_case = pytest.mark.parametrize("case", CASES, ids=NAMES)


def _assert_close(ours: np.ndarray, theirs: np.ndarray, tolerance: float, what: str) -> None:
    scale = max(1.0, float(np.abs(theirs).max(initial=0)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=what)


@pytest.mark.peers
@each_case
def test_twenty_steps_are_pytorchs(case: Case, dtype: Any) -> None:
    """Training, evaluation with frozen statistics, training again."""
    ours, theirs = case.ours(dtype), case.theirs(dtype)
    rng = np.random.default_rng(1)
    tolerance = TOLERANCE[np.dtype(dtype).name]
    for n in range(20):
        mode = not 8 <= n < 12
        ours.train(mode)
        theirs.train(mode)
        x = case.draw(rng, dtype) * (1 + n / 10)
        dy = rng.standard_normal(x.shape).astype(dtype)
        results, wanted = step(ours, x, dy, 0.1), their_step(theirs, x, dy, 0.1)
        assert results.keys() == wanted.keys()
        for name, value in wanted.items():
            assert results[name].dtype == value.dtype
            _assert_close(results[name], value, tolerance, f"{name} of step {n}")
        state, wanted = ours.state_dict(), theirs.state_dict()
        assert state.keys() == wanted.keys()
        for name, value in wanted.items():
            _assert_close(state[name], value.numpy(), tolerance, f"{name} after step {n}")


@pytest.mark.peers
@pytest.mark.parametrize("name", dict.fromkeys(case.name for case in CASES))
def test_arguments_are_pytorchs(name: str) -> None:
    """In order and with their defaults, without the device; those of ours alone are keywords."""
    theirs = dict(inspect.signature(getattr(torch().nn, name)).parameters)
    del theirs["device"]
    ours = dict(inspect.signature(getattr(cnorm, name)).parameters)
    if axis := ours.pop("axis", None):
        assert axis.kind is axis.KEYWORD_ONLY
        assert axis.default == 1
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.peers
@each_case
def test_repr_is_pytorchs(case: Case) -> None:
    assert repr(case.ours()) == repr(case.theirs())


@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d"])
def test_repr_says_where_channels_are(name: str) -> None:
    assert repr(getattr(cnorm, name)(3, axis=-1)).endswith(f"track_running_stats={name[0] == 'B'}, axis=-1)")
    assert (
        repr(cnorm.GroupNorm(1, 3, axis=-1)) == "GroupNorm(1, 3, eps=1e-05, affine=True, bias=True, axis=-1)"
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.by_channel], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_channels_last_is_the_same_on_moved_axes(case: Case, training: bool) -> None:
    first, last = case.ours().train(training), case.ours(axis=-1).train(training)
    randomize(first, 2)
    randomize(last, 2)
    rng = np.random.default_rng(2)
    channels = 1 if case.batched else 0
    x, dy = case.draw(rng), case.draw(rng)
    moved, moved_dy = (np.ascontiguousarray(np.moveaxis(a, channels, -1)) for a in (x, dy))
    y, y_last = first(x), last(moved)
    np.testing.assert_allclose(np.moveaxis(y_last, -1, channels), y, rtol=1e-13, atol=1e-14)
    dx, dx_last = first.backward(dy), last.backward(moved_dy)
    np.testing.assert_allclose(np.moveaxis(dx_last, -1, channels), dx, rtol=1e-11, atol=1e-13)
    assert first.grads.keys() == last.grads.keys()
    for name in first.grads:
        np.testing.assert_allclose(last.grads[name], first.grads[name], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d"])
def test_without_momentum_running_statistics_are_the_average_of_all_batches(name: str) -> None:
    layer = getattr(cnorm, name)(1, momentum=None, track_running_stats=True, dtype=np.float64)
    averages = []
    for n, mean in enumerate((1.0, 2.0, 6.0), 1):
        layer(np.array([[[mean - n, mean + n]]]))
        averages.append(float(layer.running_mean[0]))
        assert layer.num_batches_tracked == n
    assert averages == [1, 1.5, 3]
    np.testing.assert_allclose(layer.running_var, np.mean([2.0, 8.0, 18.0]))


def test_running_variance_takes_the_unbiased_one() -> None:
    layer = cnorm.BatchNorm2d(1)
    layer(np.sqrt(2.5, dtype=np.float32) * np.tile([1, -1], 8).astype(np.float32).reshape(4, 1, 2, 2))
    np.testing.assert_allclose(layer.running_var, [0.9 + 0.1 * 2.5 * 16 / 15], rtol=1e-6)


def test_batch_statistics_are_used_in_evaluation_without_running_ones() -> None:
    layer = cnorm.BatchNorm1d(2, track_running_stats=False)
    x = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(layer.eval()(x), cnorm.batch_norm(x, training=True))
    assert layer.running_mean is layer.running_var is layer.num_batches_tracked is None


@pytest.mark.parametrize("case", [case for case in CASES if case.ours().buffer_names], ids=str)
def test_evaluation_leaves_the_state_alone(case: Case) -> None:
    layer = case.ours().eval()
    randomize(layer, 3)
    before = layer.state_dict()
    x = case.draw(np.random.default_rng(3))
    layer(x)
    layer.backward(x)
    after = layer.state_dict()
    assert all(np.array_equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("training", [True, False])
@each_case
def test_inputs_are_left_alone(case: Case, training: bool) -> None:
    layer = case.ours().train(training)
    x, dy = (case.draw(np.random.default_rng(seed)) for seed in (4, 5))
    kept = x.copy(), dy.copy()
    layer(x)
    layer.backward(dy)
    np.testing.assert_array_equal((x, dy), kept)


def test_frozen_batch_norm_is_affine_backwards() -> None:
    layer = cnorm.BatchNorm2d(3, dtype=np.float64).eval()
    randomize(layer, 6)
    rng = np.random.default_rng(6)
    x, dy = rng.standard_normal((2, 2, 3, 4, 5))
    layer(x)
    scale = layer.weight / np.sqrt(layer.running_var + layer.eps)
    np.testing.assert_allclose(layer.backward(dy), dy * scale[:, None, None], rtol=1e-13)
    np.testing.assert_allclose(layer.grads["bias"], dy.sum((0, 2, 3)), rtol=1e-12)


@pytest.mark.peers
def test_training_begun_in_pytorch_goes_on_here() -> None:
    """Ten steps there, ten here, are twenty there."""
    case = Case("BatchNorm2d", (3,), {"momentum": None}, (4, 3, 5, 2))
    theirs, ours = case.theirs(), case.ours()
    rng = np.random.default_rng(7)
    batches = [(case.draw(rng), case.draw(rng)) for _ in range(20)]
    for x, dy in batches[:10]:
        their_step(theirs, x, dy, 0.1)
    ours.load_state_dict(theirs.state_dict())
    for x, dy in batches[10:]:
        their_step(theirs, x, dy, 0.1)
        step(ours, x, dy, 0.1)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name], value.numpy(), rtol=1e-11)
    x = case.draw(rng)
    np.testing.assert_allclose(
        ours.eval()(x), theirs.eval()(tensor(x)).detach().numpy(), rtol=1e-10, atol=1e-12
    )
