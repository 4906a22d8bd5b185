"""Train a small convolutional network on digits with two norms and without one, in NumPy and cnorm.

    pip install '.[examples]'
    python examples/train_digits.py                         # less than a minute on two cores
    python examples/train_digits.py --epochs 30 --seed 1 --output trained

The digits are scikit-learn's, handwritten: 1797 images of 8 x 8 pixels, a quarter of them kept for the test.
The network is four convolutions, each followed by a norm (batch norm, group norm, or none) and a ReLU, two
mean poolings and a linear layer. Apart from the norm the three runs are the same: initial weights, order of
the images, learning rate.

Each network is saved as a safetensors file with PyTorch's names and shapes; README.md has the lines that load
one into torch.nn.Sequential. The chart, loss.png, shows the training loss of the three.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import cnorm
from numpy_network import Conv2d, Flatten, Layer, Linear, MeanPool2d, ReLU, Sequential

Array = np.ndarray[Any, np.dtype[Any]]

BATCH = 64
LEARNING_RATE = 0.1  # at the start; falls to 0 as half a cosine
MOMENTUM = 0.9
GROUPS = 4

NORMS: dict[str, Callable[[int], Layer] | None] = {
    "batch_norm": cnorm.BatchNorm2d,
    "group_norm": partial(cnorm.GroupNorm, GROUPS),
    "no_norm": None,
}
COLORS = {"batch_norm": "#1f5fa8", "group_norm": "#2e8b57", "no_norm": "#b0413e"}


@dataclass(frozen=True)
class Digits:
    """Images (batch, 1, 8, 8) with values from 0 to 1, and the digits they show."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


@dataclass(frozen=True)
class Run:
    """What training one network gave."""

    network: Sequential
    losses: Array  # of every step
    accuracy: float  # on the test images
    seconds: float


def read_digits(seed: int) -> Digits:
    """Return scikit-learn's digits, shuffled, three quarters for training."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order]
    kept = len(images) * 3 // 4
    return Digits(images[:kept], labels[:kept], images[kept:], labels[kept:])


def build_network(norm: Callable[[int], Layer] | None, rng: np.random.Generator) -> Sequential:
    """Return the network with `norm` after each convolution, which needs no bias of its own then."""

    def block(channels: int, filters: int) -> list[Layer]:
        convolution = Conv2d(channels, filters, 3, rng, bias=norm is None)
        return [convolution, ReLU()] if norm is None else [convolution, norm(filters), ReLU()]

    return Sequential(
        *block(1, 16),
        *block(16, 16),
        MeanPool2d(2),
        *block(16, 32),
        *block(32, 32),
        MeanPool2d(4),
        Flatten(),
        Linear(32, 10, rng),
    )


def cross_entropy(scores: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean of -log softmax(scores)[label], and its gradient with respect to the scores."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    gradient = np.exp(logs)
    gradient[rows, labels] -= 1
    return float(-logs[rows, labels].mean()), gradient / len(labels)


def train(norm: str, digits: Digits, epochs: int, seed: int) -> Run:
    """Train by stochastic gradient descent with momentum; then count what is right in the test images."""
    begin = time.perf_counter()
    rng = np.random.default_rng(seed)
    network = build_network(NORMS[norm], rng).train()
    parameters = network.parameters()
    velocities = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}
    steps = epochs * (len(digits.train_images) // BATCH)
    losses = np.empty(steps)
    progress = tqdm(batches(digits, epochs, rng), norm, total=steps)
    for step, (images, labels) in enumerate(progress):
        losses[step], dscores = cross_entropy(network(images), labels)
        network.zero_grad()
        network.backward(dscores)
        rate = LEARNING_RATE * (1 + np.cos(np.pi * step / steps)) / 2
        for name, gradient in network.grads.items():
            velocities[name] *= MOMENTUM
            velocities[name] += gradient
            parameters[name] -= np.float32(rate) * velocities[name]
        progress.set_postfix(loss=f"{losses[step]:.4f}", refresh=False)
    scores = network.train(False)(digits.test_images)
    accuracy = float(np.mean(scores.argmax(axis=1) == digits.test_labels))
    return Run(network, losses, accuracy, time.perf_counter() - begin)


def batches(digits: Digits, epochs: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Yield the training images in a new order each epoch; the few left over wait for the next one."""
    for _ in range(epochs):
        order = rng.permutation(len(digits.train_images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield digits.train_images[chosen], digits.train_labels[chosen]


def draw_losses(runs: dict[str, Run], epochs: int, path: Path) -> None:
    """Draw each run's training loss, averaged over an epoch around every step, as a PNG."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for norm, run in runs.items():
        width = len(run.losses) // epochs
        means = np.convolve(run.losses, np.full(width, 1 / width), mode="valid")
        at = (np.arange(len(means)) + width / 2) / width
        label = f"{norm.replace('_', ' ')}: {run.accuracy:.1%} of the test right"
        axes.semilogy(at, means, color=COLORS[norm], label=label)
    axes.set(xlabel="epoch", ylabel="training loss, mean of an epoch", xlim=(0, epochs))
    axes.grid(color="#e0e0e0", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, format="png", dpi=150)


def main(arguments: list[str] | None = None) -> dict[str, Run]:
    """Train, save and draw as the command line says; return the runs."""
    parser = argparse.ArgumentParser(description="Train networks on digits in NumPy and cnorm.")
    parser.add_argument("--epochs", default=15, type=int, help="(default: %(default)s)")
    parser.add_argument("--output", default="digits", type=Path, help="directory (default: %(default)s)")
    parser.add_argument("--seed", default=0, type=int, help="of weights and order (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs is at least 1, --seed at least 0")

    options.output.mkdir(parents=True, exist_ok=True)
    digits = read_digits(options.seed)
    with threadpool_limits(1, user_api="blas"):  # for products this small a second one only waits
        runs = {norm: train(norm, digits, options.epochs, options.seed) for norm in NORMS}
    print(f"{'norm':12} {'test accuracy':>13} {'loss, last epoch':>17} {'time':>8}")
    for norm, run in runs.items():
        loss = run.losses[-(len(run.losses) // options.epochs) :].mean()
        print(f"{norm:12} {run.accuracy:13.2%} {loss:17.5f} {run.seconds:6.1f} s")
        save_file(run.network.state_dict(), options.output / f"{norm}.safetensors")
    draw_losses(runs, options.epochs, options.output / "loss.png")
    files = [*(f"{norm}.safetensors" for norm in runs), "loss.png"]
    print(f"wrote {', '.join(files)} to {options.output.resolve()}")
    return runs


if __name__ == "__main__":
    main()
