"""SPADE as a layer: PyTorch's batch norm inside step by step, state dicts both ways, and the other norms."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import cnorm
from peer import tensor, torch
from spade_cases import GROUPS, NORMS, draw, options


@pytest.mark.peers
@pytest.mark.parametrize("momentum", [0.1, None])
def test_steps_are_pytorchs(momentum: float | None) -> None:
    ours = cnorm.SPADE(4, momentum=momentum, dtype=np.float64)
    theirs = torch().nn.BatchNorm2d(4, momentum=momentum, affine=False, dtype=torch().float64)
    for step in range(6):
        mode = step != 3
        ours.train(mode)
        theirs.train(mode)
        x, gamma, beta, dy = draw((3, 4, 5, 6), "each element", np.float64, seed=step)
        inputs = [tensor(array).requires_grad_() for array in (x, gamma, beta)]
        y = theirs(inputs[0]) * (1 + inputs[1]) + inputs[2]
        y.backward(tensor(dy))
        np.testing.assert_allclose(ours(x, gamma, beta), y.detach(), rtol=1e-11, atol=1e-11)
        for grad, their in zip(ours.backward(dy), inputs, strict=True):
            np.testing.assert_allclose(grad, their.grad, rtol=1e-11, atol=1e-11)
        state, wanted = ours.state_dict(), theirs.state_dict()
        assert state.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-12)
    theirs.load_state_dict({name: tensor(value) for name, value in ours.state_dict().items()})
    other = cnorm.SPADE(4, dtype=np.float64).eval()
    other.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(other(x, gamma, beta), ours.eval()(x, gamma, beta))


@pytest.mark.parametrize("norm", NORMS)
def test_is_the_function(norm: str) -> None:
    x, gamma, beta, dy = draw((2, 4, 5, 6), "each position", np.float32)
    groups = GROUPS if norm == "group" else None
    layer = cnorm.SPADE(4, norm, eps=0.1, num_groups=groups, gamma_offset=0.5)
    given = options(norm, gamma_offset=0.5)
    y, mean, rstd = cnorm.spade(x, gamma, beta, 0.1, return_stats=True, **given)
    np.testing.assert_array_equal(layer(x, gamma, beta), y)
    wanted = cnorm.spade_backward(dy, x, mean, rstd, gamma, **given)
    for ours, theirs in zip(layer.backward(dy), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert layer.grads == layer.parameters() == {}
    assert (layer.state_dict() == {}) is (norm != "batch")
    if norm != "batch":
        np.testing.assert_array_equal(layer.eval()(x, gamma, beta), y)


def test_backward_takes_one_call() -> None:
    x, gamma, beta, dy = draw((2, 4, 5, 6), "each element", np.float32)
    layer = cnorm.SPADE(4)
    with pytest.raises(RuntimeError, match="SPADE"):
        layer.backward(dy)
    layer(x, gamma, beta, save=False)
    with pytest.raises(RuntimeError):
        layer.backward(dy)
    layer(x, gamma, beta)
    with pytest.raises(ValueError, match="dy: "):
        layer.backward(dy[:1])
    layer.backward(dy)
    with pytest.raises(RuntimeError):
        copy.deepcopy(layer).backward(dy)


def test_a_call_that_fails_changes_nothing() -> None:
    x, gamma, beta, _ = draw((2, 4, 5, 6), "each element", np.float32)
    layer = cnorm.SPADE(4)
    with pytest.raises(ValueError, match="gamma: "):
        layer(x, gamma[:, :3], beta)
    with pytest.raises(ValueError, match="x: expected 4 channels"):
        layer(x[:, :3], gamma, beta)
    assert layer.num_batches_tracked == 0
    assert not layer.running_mean.any()


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (ValueError, "norm: ", {"norm": "spatial"}),
        (TypeError, "num_groups: ", {"norm": "group"}),
        (ValueError, "num_groups: ", {"norm": "group", "num_groups": 3}),
        (ValueError, "num_groups: ", {"num_groups": 2}),
        (ValueError, "num_features: ", {"num_features": -1}),
        (ValueError, "eps: ", {"eps": -1.0}),
        (ValueError, "gamma_offset: ", {"gamma_offset": np.nan}),
        (TypeError, "dtype: ", {"dtype": np.int32}),
    ],
)
def test_wrong_arguments(error: type[Exception], match: str, change: dict[str, Any]) -> None:
    with pytest.raises(error, match=match):
        cnorm.SPADE(**{"num_features": 4, **change})


def test_repr() -> None:
    layer = cnorm.SPADE(4, "group", num_groups=2, axis=-1)
    assert repr(layer) == (
        "SPADE(4, norm='group', eps=1e-05, momentum=0.1, track_running_stats=False, gamma_offset=1.0, "
        "num_groups=2, axis=-1)"
    )
