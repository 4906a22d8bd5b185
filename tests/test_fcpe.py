"""FCPE, the pitch example's other network: its tones, its layers beside PyTorch's, its weights."""

import importlib

import numpy as np
import pytest

import cnorm
from example_modules import load_example

pytestmark = pytest.mark.models

NEEDS = {
    "scipy": "'.[examples]'",
    "threadpoolctl": "'.[examples]'",
    "torchfcpe": "--no-deps torchfcpe==0.0.4",
}


@pytest.fixture
def pitch(monkeypatch):
    return load_example(monkeypatch, "pitch", NEEDS)


@pytest.fixture
def fcpe(monkeypatch):
    return load_example(monkeypatch, "fcpe", NEEDS)


def test_tones_are_within_three_thousandths(pitch, monkeypatch, capsys):
    calls = []
    for name in ("group_norm", "layer_norm", "weight_norm"):
        original = getattr(cnorm, name)
        monkeypatch.setattr(
            cnorm, name, lambda *a, name=name, op=original, **k: calls.append(name) or op(*a, **k)
        )
    monkeypatch.setattr(pitch, "sung_glide", lambda: np.zeros(3200, np.float32))
    monkeypatch.setattr(pitch, "RECORDING", pitch.Path("absent.wav"))
    errors, _, confidences = pitch.main(["--network", "fcpe"])
    assert np.abs(2 ** (errors / 1200) - 1).max() < 0.003
    assert confidences.max() < pitch.VOICED["fcpe"]  # silence
    assert calls.count("weight_norm") == 1
    assert calls.count("group_norm") == 5  # four tones, and silence
    assert calls.count("layer_norm") == 7 * 5
    assert "880 Hz" in capsys.readouterr().out


@pytest.mark.peers
def test_confidences_are_those_of_pytorch(fcpe):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    network = fcpe.Fcpe()
    weights = {name: torch.tensor(np.array(value)) for name, value in network.weights.items()}

    def parameters(name):
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    mel = np.random.default_rng(0).normal(-4, 2, (23, 128)).astype(np.float32)
    x = torch.from_numpy(mel).T[None]
    x = functional.conv1d(x, *parameters("input_stack.0"), padding=1)
    x = functional.leaky_relu(functional.group_norm(x, 4, *parameters("input_stack.1")))
    x = functional.conv1d(x, *parameters("input_stack.3"), padding=1)
    for n in range(6):
        name = f"net.encoder_layers.{n}.conformer.net"
        h = functional.layer_norm(x.mT, (512,), *parameters(f"{name}.0")).mT
        h = functional.glu(functional.conv1d(h, *parameters(f"{name}.2")), dim=1)
        h = functional.silu(functional.conv1d(h, *parameters(f"{name}.4.conv"), padding=15, groups=1024))
        x = x + functional.conv1d(h, *parameters(f"{name}.6"))
    x = functional.layer_norm(x.mT, (512,), *parameters("norm"))
    linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(512, 360))
    with torch.no_grad():
        linear.bias.copy_(weights["output_proj.bias"])
        linear.parametrizations.weight.original0.copy_(weights["output_proj.weight_g"])
        linear.parametrizations.weight.original1.copy_(weights["output_proj.weight_v"])
        expected = linear(x)[0].sigmoid().numpy()
    np.testing.assert_allclose(network.run(mel), expected, rtol=0, atol=2e-5)


def test_mel_filters_are_triangles_of_equal_area(fcpe):
    filters = fcpe.mel_filters()
    peaks = np.fft.rfftfreq(fcpe.WINDOW, 1 / fcpe.RATE)[filters.argmax(axis=1)]
    assert filters.shape == (128, 513)
    assert filters.min() == 0
    assert (np.diff(peaks) >= 0).all()
    wide = slice(80, None)  # those of many bins
    np.testing.assert_allclose(filters[wide].sum(axis=1) * fcpe.RATE / fcpe.WINDOW, 1, rtol=0.02)


def test_spectral_norm_of_its_convolutions_is_their_largest_singular_value(fcpe):
    rng = np.random.default_rng(0)
    network = fcpe.Fcpe()
    for name in ("input_stack.0.weight", "input_stack.3.weight", "output_proj.weight_v"):
        weight = network.weights[name]
        matrix = weight.reshape(len(weight), -1)
        u, v = (rng.standard_normal(n).astype(np.float32) for n in matrix.shape)
        w, sigma = cnorm.spectral_norm(weight, u, v, n_power_iterations=300)
        largest = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)[0]
        assert sigma == pytest.approx(largest, rel=1e-5)
        assert np.linalg.svd(w.reshape(matrix.shape), compute_uv=False)[0] == pytest.approx(1, rel=1e-5)


def test_missing_weights_name_the_pip_command(fcpe, monkeypatch):
    monkeypatch.setattr(importlib.import_module("model_files"), "find_spec", lambda package: None)
    with pytest.raises(SystemExit, match=r"pip install --no-deps torchfcpe==0\.0\.4"):
        fcpe.Fcpe()
