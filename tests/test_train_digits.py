"""The training example: what it computes, writes and reaches, and that PyTorch goes on from its files."""

import contextlib
import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from example_modules import load_example

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def train_digits():
    extra = ["matplotlib", "safetensors", "sklearn", "threadpoolctl", "tqdm"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield load_example(monkeypatch, "train_digits", dict.fromkeys(extra, "'.[examples]'"))


@pytest.fixture(scope="module")
def trained(train_digits, tmp_path_factory):
    """Two epochs: the runs, the directory they were written to, and what was printed."""
    directory = tmp_path_factory.mktemp("trained")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runs = train_digits.main(["--epochs", "2", "--output", str(directory)])
    return runs, directory, printed.getvalue()


@pytest.fixture
def numpy_network(monkeypatch):
    return load_example(monkeypatch, "numpy_network", {})


def torch_network(torch: ModuleType, norm: str, groups: int) -> Any:
    """Return the network that train_digits.py trains, in PyTorch."""
    nn = torch.nn
    norms = {"batch_norm": nn.BatchNorm2d, "group_norm": lambda channels: nn.GroupNorm(groups, channels)}

    def block(channels: int, filters: int) -> list[Any]:
        convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=norm == "no_norm")
        return [convolution, *(norms[name](filters) for name in norms if name == norm), nn.ReLU()]

    first, second = [*block(1, 16), *block(16, 16)], [*block(16, 32), *block(32, 32)]
    end = [nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(*first, nn.AvgPool2d(2), *second, *end)


class TestTrainDigits:
    def test_two_epochs_train_and_are_written(self, trained):
        runs, directory, printed = trained
        assert list(runs) == ["batch_norm", "group_norm", "no_norm"]
        for run in runs.values():
            assert np.isfinite(run.losses).all()
        losses = runs["batch_norm"].losses
        assert losses[-10:].mean() < losses[:10].mean() / 3
        assert losses[-10:].mean() < runs["no_norm"].losses[-10:].mean() / 3
        assert runs["batch_norm"].accuracy > 0.85

        for norm, run in runs.items():
            assert f"{norm:12} {run.accuracy:13.2%}" in printed
        image = pytest.importorskip("PIL.Image").open(directory / "loss.png")
        assert image.size == (1050, 600)
        assert len(image.convert("RGB").getcolors(1 << 20)) > 3  # three lines on white

    def test_file_has_the_names_dtypes_and_shapes_of_pytorch(self, trained):
        from safetensors.numpy import load_file

        _, directory, _ = trained
        state = load_file(directory / "batch_norm.safetensors")
        ends = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
        norms = {f"{layer}.{end}" for layer in (1, 4, 8, 11) for end in ends}
        convolutions = {f"{layer}.weight" for layer in (0, 3, 7, 10)}
        assert set(state) == norms | convolutions | {"15.weight", "15.bias"}
        assert state["7.weight"].shape == (32, 16, 3, 3)
        assert state["8.num_batches_tracked"] == 2 * 21  # steps in two epochs
        assert state.pop("8.num_batches_tracked").dtype == np.int64
        assert (state["8.running_var"] != 1).all()

        assert "0.bias" in load_file(directory / "no_norm.safetensors")
        assert "1.running_mean" not in load_file(directory / "group_norm.safetensors")

    @pytest.mark.peers
    @pytest.mark.parametrize("norm", ["batch_norm", "group_norm", "no_norm"])
    def test_pytorch_loads_the_file_and_computes_the_same(self, train_digits, trained, norm):
        torch = pytest.importorskip("torch")
        load_file = pytest.importorskip("safetensors.torch").load_file
        runs, directory, _ = trained
        state = load_file(directory / f"{norm}.safetensors")
        peer = torch_network(torch, norm, train_digits.GROUPS)
        peer.load_state_dict(state, strict=True)
        if norm == "batch_norm":
            alone = {name[2:]: value for name, value in state.items() if name.startswith("1.")}
            torch.nn.BatchNorm2d(16).load_state_dict(alone, strict=True)

        images = train_digits.read_digits(0).test_images
        with torch.no_grad():
            expected = peer.eval()(torch.from_numpy(images)).numpy()
        scores = runs[norm].network(images)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("norm", ["batch_norm", "group_norm", "no_norm"])
    def test_a_seed_decides_everything(self, train_digits, norm):
        digits = train_digits.read_digits(0)
        few = train_digits.Digits(*(values[:128] for values in vars(digits).values()))
        first, again, other = (train_digits.train(norm, few, 2, seed) for seed in (5, 5, 6))
        np.testing.assert_array_equal(first.losses, again.losses)
        assert (first.losses != other.losses).all()
        for name, value in first.network.state_dict().items():
            np.testing.assert_array_equal(value, again.network.state_dict()[name])

    def test_loss_and_its_gradient(self, train_digits):
        rng = np.random.default_rng(0)
        scores, labels = rng.standard_normal((5, 4)), np.array([0, 3, 1, 1, 2])
        loss, gradient = train_digits.cross_entropy(scores, labels)
        probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        assert loss == pytest.approx(-np.log(probabilities[range(5), labels]).mean())
        for at in np.ndindex(scores.shape):
            step = np.zeros_like(scores)
            step[at] = 1e-6
            ahead, behind = (train_digits.cross_entropy(scores + s, labels)[0] for s in (step, -step))
            assert gradient[at] == pytest.approx((ahead - behind) / 2e-6, abs=1e-8)
        assert train_digits.cross_entropy(np.array([[1e4, -1e4]]), np.array([1]))[0] == 2e4

    @pytest.mark.parametrize("arguments", [["--epochs=0"], ["--seed=-1"]])
    def test_bad_options_end_with_a_message(self, train_digits, arguments, capsys):
        with pytest.raises(SystemExit):
            train_digits.main(arguments)
        assert "error:" in capsys.readouterr().err

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", ["0", "1"])
    def test_both_norms_reach_97_percent(self, train_digits, tmp_path, seed):
        runs = train_digits.main(["--output", str(tmp_path), "--seed", seed])
        assert runs["batch_norm"].accuracy >= 0.97
        assert runs["group_norm"].accuracy >= 0.97
        loss = {norm: run.losses[-21:].mean() for norm, run in runs.items()}
        assert loss["batch_norm"] < loss["group_norm"] < loss["no_norm"]


class TestNumpyNetwork:
    @pytest.mark.peers
    @pytest.mark.parametrize("bias", [True, False])
    def test_results_and_gradients_are_those_of_autograd(self, numpy_network, bias):
        torch = pytest.importorskip("torch")
        layers, peers, rng = numpy_network, torch.nn, np.random.default_rng(0)
        network = layers.Sequential(
            layers.Conv2d(3, 8, 3, rng, bias),
            layers.ReLU(),
            layers.MeanPool2d(2),
            layers.Conv2d(8, 5, 5, rng, bias),
            layers.MeanPool2d(4),
            layers.Flatten(),
            layers.Linear(10, 7, rng),
        )
        for parameter in network.parameters().values():
            parameter += 0.1 * rng.standard_normal(parameter.shape, np.float32)
        peer = peers.Sequential(
            peers.Conv2d(3, 8, 3, padding=1, bias=bias),
            peers.ReLU(),
            peers.AvgPool2d(2),
            peers.Conv2d(8, 5, 5, padding=2, bias=bias),
            peers.AvgPool2d(4),
            peers.Flatten(),
            peers.Linear(10, 7),
        ).double()
        peer.load_state_dict({name: torch.from_numpy(a) for name, a in network.state_dict().items()})
        x, dy = rng.standard_normal((4, 3, 8, 16), np.float32), rng.standard_normal((4, 7), np.float32)
        tensor = torch.from_numpy(x.astype(np.float64)).requires_grad_()
        expected = peer(tensor)
        expected.backward(torch.from_numpy(dy.astype(np.float64)))

        np.testing.assert_allclose(network(x), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(network.backward(dy), tensor.grad.numpy(), rtol=1e-5, atol=1e-5)
        gradients = {name: parameter.grad.numpy() for name, parameter in peer.named_parameters()}
        assert network.grads.keys() == gradients.keys()
        for name, gradient in network.grads.items():
            assert gradient.dtype == np.float32
            np.testing.assert_allclose(gradient, gradients[name], rtol=1e-5, atol=1e-5)

    def test_gradients_add_up_until_zero_grad(self, numpy_network):
        rng = np.random.default_rng(0)
        network = numpy_network.Sequential(numpy_network.Linear(3, 2, rng))
        x, dy = rng.standard_normal((4, 3), np.float32), rng.standard_normal((4, 2), np.float32)
        for times in (1, 2):
            network(x)
            network.backward(dy)
            np.testing.assert_allclose(network.grads["0.weight"], times * dy.T @ x, rtol=1e-6)
        network.zero_grad()
        assert network.grads == {}
