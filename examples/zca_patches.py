"""Whiten small patches of a photograph with ZCA, and draw them before and after, beside the filters.

    pip install '.[examples]'
    python examples/zca_patches.py                            # scikit-learn's china.jpg, a few seconds
    python examples/zca_patches.py photo.jpg --side 8 --patches 40000 --output whitened.png

Neighbouring pixels of a photograph are alike: the covariance of its patches is far from the identity, and
what is there to learn is hidden behind it. Whitening takes it out. ZCA does so with the least change of the
patches, so that one still sees what they show, now mostly edges. Each filter, a row of W, answers to one
pixel, less what its surroundings say about it.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import cnorm

Array = np.ndarray[Any, np.dtype[Any]]

SHOWN = 8  # patches and filters in a row and a column of the picture
EPS = 1e-4  # of pixels between 0 and 1: below it there is noise


def read_photo(path: Path | None) -> Array:
    """Return (height, width, 3) in [0, 1]."""
    if path is None:
        from sklearn.datasets import load_sample_image

        return (load_sample_image("china.jpg") / 255).astype(np.float32)
    return np.asarray(Image.open(path).convert("RGB"), np.float32) / 255


def cut_patches(photo: Array, side: int, count: int, seed: int) -> Array:
    """Return `count` squares from anywhere in the photograph, each a row of side * side * 3 values."""
    rng = np.random.default_rng(seed)
    windows = np.lib.stride_tricks.sliding_window_view(photo, (side, side), axis=(0, 1))
    rows, columns = (rng.integers(0, n, count) for n in windows.shape[:2])
    return np.ascontiguousarray(windows[rows, columns].transpose(0, 2, 3, 1)).reshape(count, -1)


def distance_from_identity(x: Array) -> float:
    """Root mean square of covariance - I, with the covariance scaled to a mean variance of 1."""
    covariance = np.cov(x.T.astype(np.float64), bias=True)
    covariance /= np.trace(covariance) / len(covariance)
    return float(np.sqrt(np.mean(np.square(covariance - np.eye(len(covariance))))))


def mosaic(squares: Array, side: int) -> Array:
    """Return (height, width, 3): squares side by side, each from its own darkest to its brightest."""
    tiles = squares[: SHOWN * SHOWN].reshape(-1, side, side, 3).astype(np.float64)
    low, high = (f(tiles, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    tiles = (tiles - low) / np.maximum(high - low, 1e-12)
    framed = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=1)
    across = framed.reshape(-1, SHOWN, side + 1, side + 1, 3).transpose(0, 2, 1, 3, 4)
    return across.reshape(-1, SHOWN * (side + 1), 3)


def draw(pictures: dict[str, Array], path: Path) -> None:
    """Write pictures side by side, with their titles, as a PNG."""
    figure = Figure(figsize=(4 * len(pictures), 4.3), layout="constrained")
    for axes, (title, picture) in zip(figure.subplots(1, len(pictures)), pictures.items(), strict=True):
        axes.imshow(picture, interpolation="nearest")
        axes.set_title(title)
        axes.set_axis_off()
    figure.savefig(path, format="png", dpi=120)


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Whiten and draw as the command line says; return the covariance's distance from I before and after."""
    parser = argparse.ArgumentParser(description="Whiten patches of a photograph in NumPy and cnorm.")
    parser.add_argument("image", nargs="?", type=Path, help="photograph (default: scikit-learn's china.jpg)")
    parser.add_argument("--side", default=6, type=int, help="of a patch, in pixels (default: %(default)s)")
    parser.add_argument("--patches", default=60_000, type=int, help="(default: %(default)s)")
    parser.add_argument("--output", default="zca_patches.png", type=Path, help="PNG (default: %(default)s)")
    parser.add_argument("--seed", default=0, type=int, help="of the patches' places (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        photo = read_photo(options.image)
    except OSError as error:
        parser.error(str(error))
    if not 2 <= options.side <= min(photo.shape[:2]) or options.patches < SHOWN * SHOWN or options.seed < 0:
        parser.error(
            f"--side is 2 to {min(photo.shape[:2])}, --patches at least {SHOWN * SHOWN}, --seed at least 0"
        )

    x = cut_patches(photo, options.side, options.patches, options.seed)
    begin = time.perf_counter()
    y, _, factors = cnorm.whiten(x, method="zca", eps=EPS, return_stats=True)
    seconds = time.perf_counter() - begin
    before, after = distance_from_identity(x), distance_from_identity(y)
    print(f"{len(x)} patches of {options.side} x {options.side} pixels, {x.shape[1]} values: {seconds:.3f} s")
    print(f"covariance, root mean square distance from I: {before:.4f} before, {after:.4f} after")
    pictures = {
        "patches": mosaic(x, options.side),
        "whitened": mosaic(y, options.side),
        "ZCA filters": mosaic(factors.matrix[0], options.side),
    }
    draw(pictures, options.output)
    print(f"wrote {options.output.resolve()}")
    return before, after


if __name__ == "__main__":
    main()
