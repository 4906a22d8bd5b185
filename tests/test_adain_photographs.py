"""The example that recolours a photograph: its statistics become the other's, in both colour spaces."""

import numpy as np
import pytest

import cnorm
from example_modules import load_example

pytestmark = pytest.mark.models


@pytest.fixture
def example(monkeypatch):
    return load_example(monkeypatch, "adain_photographs", dict.fromkeys(["PIL", "sklearn"], "'.[examples]'"))


@pytest.mark.parametrize("space", ["rgb", "lab"])
def test_the_result_has_the_statistics_of_the_style(example, space, monkeypatch, tmp_path, capsys):
    calls = []
    original = cnorm.adain
    monkeypatch.setattr(cnorm, "adain", lambda *a, **k: calls.append(k) or original(*a, **k))
    output = tmp_path / "recoloured.png"
    picture = example.main(["--space", space, "--output", str(output)])
    assert calls == [{"axis": -1}]

    content, style = example.read_photo("china.jpg"), example.read_photo("flower.jpg")
    painted, given, wanted = example.transfer(content, style, space)
    found = painted if space == "rgb" else example.to_lab(painted)
    for statistic in (np.mean, np.std):
        theirs = statistic(wanted, axis=(0, 1, 2), dtype=np.float64)
        assert np.abs(statistic(given, axis=(0, 1, 2), dtype=np.float64) - theirs).max() > 0.05
        ours = statistic(found, axis=(0, 1, 2), dtype=np.float64)
        np.testing.assert_allclose(ours, theirs, atol=1e-4 if space == "rgb" else 2e-2)

    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        "content",
        "style",
        "result",
        printed[3].split()[0],
        "wrote",
    ]
    shown = np.asarray(example.Image.open(output), np.float32) / 255
    np.testing.assert_allclose(shown, picture, atol=0.5 / 255 + 1e-6)
    assert shown.shape == content.shape[1:]
    assert shown.std() > 0.05  # a picture, not a flat colour


def test_a_photograph_in_its_own_colours_is_itself(example, tmp_path):
    picture = example.main(["china.jpg", "china.jpg", "--output", str(tmp_path / "same.png")])
    np.testing.assert_allclose(picture, example.read_photo("china.jpg")[0], atol=1e-6)


def test_colour_spaces_are_each_others_inverse(example):
    rgb = np.random.default_rng(0).uniform(0.05, 1, (4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(example.to_rgb(example.to_lab(rgb)), rgb, rtol=1e-4)


def test_no_such_photograph_ends_with_a_message(example, capsys):
    with pytest.raises(SystemExit):
        example.main(["absent.jpg"])
    assert "no such photograph" in capsys.readouterr().err
