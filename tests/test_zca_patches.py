"""The ZCA example: what it cuts out, computes, prints and draws."""

import numpy as np
import pytest

from example_modules import load_example

pytestmark = pytest.mark.models


@pytest.fixture
def zca_patches(monkeypatch):
    return load_example(
        monkeypatch, "zca_patches", dict.fromkeys(["matplotlib", "PIL", "sklearn"], "'.[examples]'")
    )


def test_patches_become_white(zca_patches, tmp_path, capsys):
    path = tmp_path / "picture.png"
    before, after = zca_patches.main(["--patches", "9000", "--output", str(path)])
    assert before > 0.5
    assert after < 0.05, "eps keeps what is noise below 1"
    printed = capsys.readouterr().out
    assert f"{before:.4f} before, {after:.4f} after" in printed
    assert str(path) in printed
    with zca_patches.Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000


def test_other_photographs(zca_patches, tmp_path):
    photo = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    zca_patches.Image.fromarray(photo).save(tmp_path / "noise.png")
    output = tmp_path / "picture.png"
    before, after = zca_patches.main(
        [str(tmp_path / "noise.png"), "--side", "4", "--patches", "2000", "--output", str(output)]
    )
    assert before < 0.1, "noise is nearly white as it is"
    assert after < 0.05
    assert output.is_file()


def test_patches_are_squares_of_the_photograph(zca_patches):
    photo = np.arange(20 * 30 * 3, dtype=np.float32).reshape(20, 30, 3)
    for patch in zca_patches.cut_patches(photo, 5, 40, seed=1).reshape(40, 5, 5, 3):
        row, column = divmod(int(patch[0, 0, 0]) // 3, 30)
        np.testing.assert_array_equal(patch, photo[row : row + 5, column : column + 5])


def test_the_filters_answer_to_their_own_pixel(zca_patches):
    x = zca_patches.cut_patches(zca_patches.read_photo(None), 5, 9000, seed=0)
    _, _, factors = zca_patches.cnorm.whiten(x, eps=zca_patches.EPS, return_stats=True)
    np.testing.assert_array_equal(np.abs(factors.matrix[0]).argmax(axis=1), np.arange(75))


@pytest.mark.parametrize(
    "arguments", [["absent.jpg"], ["--side=1"], ["--side=999"], ["--patches=3"], ["--seed=-1"]]
)
def test_bad_arguments_end_with_a_message(zca_patches, arguments, capsys):
    with pytest.raises(SystemExit):
        zca_patches.main(arguments)
    assert "error:" in capsys.readouterr().err
