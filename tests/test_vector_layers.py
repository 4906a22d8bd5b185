"""WeightNorm and CosineLinear: PyTorch's parameters and results over several steps, state dicts both ways."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import cnorm
from peer import tensor, torch


def _weight(dtype: Any, shape: tuple[int, ...] = (6, 5, 3)) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def _their_convolution(weight: np.ndarray, dim: int | None, old: bool) -> Any:
    nn = torch().nn
    module = nn.Conv1d(5, 6, 3, bias=False, dtype=tensor(weight).dtype)
    module.weight.data = tensor(weight)
    if not old:
        return nn.utils.parametrizations.weight_norm(module, dim=dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module, dim=dim)


@pytest.mark.peers
@pytest.mark.parametrize("dim", [0, 2, None])
def test_steps_are_pytorchs(dim: int | None) -> None:
    weight = _weight(np.float64)
    ours, theirs = cnorm.WeightNorm(weight, dim), _their_convolution(weight, dim, old=True)
    rng = np.random.default_rng(2)
    for _ in range(10):
        x = torch().from_numpy(rng.standard_normal((2, 5, 9)))
        theirs.zero_grad()
        loss = theirs(x).square().sum()
        loss.backward()
        plain = tensor(ours()).requires_grad_()
        torch().nn.functional.conv1d(x, plain).square().sum().backward()
        ours.zero_grad()
        ours.backward(plain.grad.numpy())
        for name, parameter in ours.parameters().items():
            other = getattr(theirs, name)
            np.testing.assert_allclose(
                ours.grads[name].reshape(-1), other.grad.numpy().reshape(-1), rtol=1e-8, atol=1e-9
            )
            parameter -= 0.001 * ours.grads[name]
            other.data -= 0.001 * other.grad
    theirs(x)  # computes its weight
    np.testing.assert_allclose(ours.bake(), theirs.weight.detach().numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.weight_v, theirs.weight_v.detach().numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.peers
@pytest.mark.parametrize("old", [True, False])
def test_state_dicts_of_pytorch_load(old: bool, dtype: Any) -> None:
    theirs = _their_convolution(_weight(dtype), 0, old)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    ours = cnorm.WeightNorm(np.ones((6, 5, 3), dtype))
    assert ours.load_state_dict(state) == ([], [])
    np.testing.assert_allclose(ours(), theirs.weight.detach().numpy(), rtol=1e-6)
    if old:
        assert ours.state_dict().keys() == state.keys()
        assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in state.items()}
        theirs.load_state_dict({name: tensor(value) for name, value in ours.state_dict().items()})


def test_the_first_weight_is_the_one_given(dtype: Any) -> None:
    weight = _weight(dtype)
    weight[2] = 0
    for dim in (None, 0, 1, -1):
        layer = cnorm.WeightNorm(weight, dim)
        np.testing.assert_allclose(layer(), weight, rtol=1e-6)
        np.testing.assert_array_equal(layer(), layer.bake())
        assert layer.weight_v is not weight
        assert layer.weight_g.dtype == layer.weight_v.dtype == layer.bake().dtype == dtype


def test_gradients_add_up_and_each_call_is_used_once(dtype: Any) -> None:
    layer, dw = cnorm.WeightNorm(_weight(dtype)), _weight(dtype)[::-1]
    wanted = cnorm.weight_norm_backward(dw, layer.weight_v, layer.weight_g)
    for times in (1, 2):
        layer()
        np.testing.assert_array_equal(layer.backward(dw), wanted.v)
        np.testing.assert_allclose(layer.grads["weight_g"], times * wanted.g)
    with pytest.raises(RuntimeError, match="a call of the layer first"):
        layer.backward(dw)
    layer(save=False)
    with pytest.raises(RuntimeError, match="save=False"):
        copy.deepcopy(layer).backward(dw)


def test_sixteen_bit_weights() -> None:
    layer = cnorm.WeightNorm(_weight(np.float32), dtype=np.float16)
    assert layer().dtype == layer.weight_g.dtype == np.float16
    layer.backward(np.ones((6, 5, 3), np.float16))
    assert layer.grads["weight_g"].dtype == np.float32


def test_wrong_arguments_of_weight_norm() -> None:
    with pytest.raises(ValueError, match="dim"):
        cnorm.WeightNorm(_weight(np.float32), 3)
    with pytest.raises(TypeError, match="weight"):
        cnorm.WeightNorm(np.ones((3, 3), int))
    layer = cnorm.WeightNorm(_weight(np.float32))
    with pytest.raises(ValueError, match="missing keys 'weight_v'"):
        layer.load_state_dict({"weight_g": layer.weight_g})
    assert repr(layer) == "WeightNorm((6, 5, 3), dim=0)"


@pytest.mark.peers
def test_cosine_linear_learns_as_pytorchs_composition() -> None:
    ours = cnorm.CosineLinear(5, 3, dtype=np.float64)
    weight = tensor(ours.weight).requires_grad_()
    functional, rng = torch().nn.functional, np.random.default_rng(3)
    for _ in range(5):
        x, dy = rng.standard_normal((7, 5)), rng.standard_normal((7, 3))
        leaf = tensor(x).requires_grad_()
        y = functional.linear(functional.normalize(leaf), functional.normalize(weight))
        y.backward(tensor(dy))
        np.testing.assert_allclose(ours(x), y.detach().numpy(), rtol=1e-12, atol=1e-14)
        ours.zero_grad()
        np.testing.assert_allclose(ours.backward(dy), leaf.grad.numpy(), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(ours.grads["weight"], weight.grad.numpy(), rtol=1e-10, atol=1e-13)
        ours.weight -= 0.1 * ours.grads["weight"]
        with torch().no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None


def test_cosine_linear_state_and_arguments() -> None:
    layer = cnorm.CosineLinear(5, 3)
    assert {name: value.shape for name, value in layer.state_dict().items()} == {"weight": (3, 5)}
    assert layer.weight.dtype == np.float32
    assert 0 < np.abs(layer.weight).max() <= 1 / np.sqrt(5)
    other = cnorm.CosineLinear(5, 3)
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.weight, layer.weight)
    assert repr(layer) == "CosineLinear(5, 3, eps=1e-08)"
    with pytest.raises(ValueError, match="in_features"):
        cnorm.CosineLinear(-1, 3)
    with pytest.raises(ValueError, match="eps"):
        cnorm.CosineLinear(1, 3, -1.0)
    with pytest.raises(ValueError, match="weight"):
        layer(np.ones((2, 4), np.float32))
