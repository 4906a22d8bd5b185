"""Give one photograph the colours of another: adaptive instance norm on pixels.

    pip install '.[examples]'
    python examples/adain_photographs.py                              # china.jpg in the colours of flower.jpg
    python examples/adain_photographs.py photo.jpg other.jpg --output painted.png
    python examples/adain_photographs.py --space lab                  # channels that vary independently

AdaIN (Huang and Belongie, ICCV 2017) gives each channel of the content the mean and standard deviation of the
style's. On a network's features that transfers style; on the three channels of a photograph it is the colour
transfer of Reinhard, Ashikhmin, Gooch and Shirley ("Color Transfer between Images", 2001), who do it in a
decorrelated colour space, since red, green and blue of photographs rise and fall together.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_image

import cnorm

Array = np.ndarray[Any, np.dtype[Any]]

# Ruderman, Cronin and Chiao's l-alpha-beta: logarithms of cone responses, rotated until they do not covary.
CONES = np.array([[0.3811, 0.5783, 0.0402], [0.1967, 0.7244, 0.0782], [0.0241, 0.1288, 0.8444]])
ROTATION = np.array([[1, 1, 1], [1, 1, -2], [1, -1, 0]]) / np.sqrt([[3], [6], [2]])
DARKEST = 1 / 255  # of a cone's response: its logarithm is taken

CHANNELS = {"rgb": ("red", "green", "blue"), "lab": ("lightness", "yellow-blue", "red-green")}


def read_photo(name: str) -> Array:
    """Return a photograph (1, height, width, 3) in [0, 1]: a file, or scikit-learn's of that name."""
    if Path(name).exists():
        pixels = np.asarray(ImageOps.exif_transpose(Image.open(name)).convert("RGB"))
    else:
        pixels = load_sample_image(name)
    return pixels[np.newaxis].astype(np.float32) / 255


def to_lab(rgb: Array) -> Array:
    """Decorrelate colours, which are the last axis."""
    cones = np.maximum(rgb @ CONES.T.astype(np.float32), np.float32(DARKEST))
    return np.log10(cones) @ ROTATION.T.astype(np.float32)


def to_rgb(lab: Array) -> Array:
    """Undo `to_lab`."""
    cones = 10 ** (lab @ np.linalg.inv(ROTATION).T.astype(np.float32))
    return cones @ np.linalg.inv(CONES).T.astype(np.float32)


def transfer(content: Array, style: Array, space: str) -> tuple[Array, Array, Array]:
    """Return the content in the style's colours, and what AdaIN was given: both in its colour space."""
    if space == "lab":
        content, style = to_lab(content), to_lab(style)
    y = cnorm.adain(content, style, axis=-1)
    return (to_rgb(y) if space == "lab" else y), content, style


def report(title: str, image: Array, channels: tuple[str, ...]) -> None:
    """Print mean and standard deviation of each channel."""
    mean, std = image.mean((0, 1, 2), dtype=np.float64), image.std((0, 1, 2), dtype=np.float64)
    columns = (f"{name} {m:7.4f} +- {s:.4f}" for name, m, s in zip(channels, mean, std, strict=True))
    print(f"{title:8} {'   '.join(columns)}")


def main(argv: list[str] | None = None) -> Array:
    """Run the command line; return the picture (height, width, 3) in [0, 1]."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("content", nargs="?", default="china.jpg", help="a photograph, or scikit-learn's")
    parser.add_argument("style", nargs="?", default="flower.jpg", help="the one that gives its colours")
    parser.add_argument("--space", choices=CHANNELS, default="rgb", help="where statistics are taken")
    parser.add_argument("--output", type=Path, default=Path("recoloured.png"))
    arguments = parser.parse_args(argv)
    try:
        photos = [read_photo(name) for name in (arguments.content, arguments.style)]
    except (AttributeError, OSError, ValueError) as error:
        parser.error(f"no such photograph: {error}")
    painted, content, style = transfer(*photos, arguments.space)
    channels = CHANNELS[arguments.space]
    report("content", content, channels)
    report("style", style, channels)
    report("result", to_lab(painted) if arguments.space == "lab" else painted, channels)
    picture: Array = np.clip(painted[0], 0, 1)
    Image.fromarray(np.rint(picture * 255).astype(np.uint8)).save(arguments.output)
    print(f"{np.mean((painted < 0) | (painted > 1)):.1%} of the values were beyond what a picture can show")
    print(f"wrote {arguments.output}")
    return picture


if __name__ == "__main__":
    main()
