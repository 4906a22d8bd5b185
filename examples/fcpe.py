"""FCPE, a network that hears the pitch of a sound in its mel spectrogram.

The network ("Fast Context-based Pitch Estimation", in the form that the torchfcpe package ships) takes 128
mel bands every 10 ms. Two convolutions around a group norm, then six blocks of a gated convolution with a
layer norm before each, a last layer norm, and a linear layer whose weight is stored under weight norm: a
direction and a length for each of its 360 pitches. `cnorm.group_norm` and `cnorm.layer_norm` run on (1,
time, 512), channels last; `cnorm.weight_norm` makes the plain weight once, when the network is loaded.
"""

from typing import Any

import numpy as np
from scipy.special import expit

import cnorm
from convolution import convolve
from model_files import package_file
from torch_files import load_torch_file

Array = np.ndarray[Any, np.dtype[Any]]

RATE = 16000  # samples per second
WINDOW = 1024  # samples
HOP = 160
BANDS = 128
LINEAR_UP_TO = 1000.0  # Hz: Slaney's mel scale is linear below, logarithmic above
HERTZ_PER_MEL = 200 / 3
LOG_STEP = np.log(6.4) / 27  # from 1000 to 6400 Hz in 27 mels


class Fcpe:
    """The network: its weights, by the names they have in the file, and its forward pass."""

    def __init__(self) -> None:
        pip_arguments = "--no-deps torchfcpe==0.0.4"
        saved = load_torch_file(package_file("torchfcpe", "assets/fcpe_c_v001.pt", pip_arguments))
        self.weights = saved["model"]
        self.layers = saved["config_dict"]["model"]["n_layers"]
        self.cents = self.weights["cent_table"]  # above 10 Hz, of each pitch
        v, g = (self.weights[f"output_proj.weight_{letter}"] for letter in "vg")
        self.output_weight = cnorm.weight_norm(v, g)

    def confidences(self, audio: Array) -> Array:
        """Return how likely each pitch is every 10 ms: (frames, 360), each in [0, 1]."""
        return self.run(mel_spectrogram(audio))

    def run(self, mel: Array) -> Array:
        """Run the network on (time, 128)."""
        x = self.convolution("input_stack.0", mel)
        weight, bias = self.parameters("input_stack.1")
        x = cnorm.group_norm(x[None], 4, weight, bias, axis=-1)[0]
        x = self.convolution("input_stack.3", np.where(x >= 0, x, np.float32(0.01) * x))
        for number in range(self.layers):
            x += self.gated_convolution(f"net.encoder_layers.{number}.conformer.net", x)
        weight, bias = self.parameters("norm")
        x = cnorm.layer_norm(x, 512, weight, bias)
        return expit(x @ self.output_weight.T + self.weights["output_proj.bias"])

    def gated_convolution(self, name: str, x: Array) -> Array:
        """Norm, channels gated by others, a filter for each channel, SiLU, and back to 512 channels."""
        weight, bias = self.parameters(f"{name}.0")
        values, gates = np.split(
            self.pointwise(f"{name}.2", cnorm.layer_norm(x, 512, weight, bias)), 2, axis=1
        )
        x = values * expit(gates)
        weight, bias = self.parameters(f"{name}.4.conv")
        x = filter_channels(x, weight[:, 0]) + bias
        return self.pointwise(f"{name}.6", x * expit(x))

    def convolution(self, name: str, x: Array) -> Array:
        """Convolve (time, channels) with filters of width 3, zeros beyond the ends."""
        weight, bias = self.parameters(name)
        return convolve(np.pad(x, ((1, 1), (0, 0))), weight) + bias

    def pointwise(self, name: str, x: Array) -> Array:
        """Mix the channels of every instant."""
        weight, bias = self.parameters(name)
        return x @ weight[..., 0].T + bias

    def parameters(self, name: str) -> tuple[Array, Array]:
        """Return weight and bias of a layer."""
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]


def filter_channels(x: Array, weight: Array) -> Array:
    """Filter every channel of (time, channels) along time with its own row of `weight`, of odd width."""
    width = weight.shape[1]
    padded = np.pad(x, ((width // 2, width // 2), (0, 0)))
    y = np.zeros_like(x)
    for tap in range(width):
        y += padded[tap : tap + len(x)] * weight[:, tap]
    return y


def mel_spectrogram(audio: Array) -> Array:
    """Return the logarithm of the energy in 128 mel bands every 10 ms: (frames, 128)."""
    audio = audio / max(1.0, np.abs(audio).max(initial=0))
    before = (WINDOW - HOP) // 2
    after = max(before, WINDOW - len(audio) - before)
    mode = "reflect" if after < len(audio) else "constant"
    padded = np.pad(audio, (before, after), mode=mode)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    magnitude = np.sqrt(np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2 + 1e-9)
    mel = np.log(np.maximum(magnitude @ mel_filters().T, 1e-5)).astype(np.float32)
    wanted = len(audio) // HOP + 1
    return np.concatenate([mel, mel[-1:]])[:wanted]


def mel_filters() -> Array:
    """Return Slaney's triangular filters of equal area, from 0 Hz to half the sample rate: (bands, bins)."""
    top = LINEAR_UP_TO / HERTZ_PER_MEL + np.log(RATE / 2 / LINEAR_UP_TO) / LOG_STEP
    mels = np.linspace(0, top, BANDS + 2)
    above = mels - LINEAR_UP_TO / HERTZ_PER_MEL
    corners = np.where(above > 0, LINEAR_UP_TO * np.exp(LOG_STEP * above), HERTZ_PER_MEL * mels)
    bins = np.fft.rfftfreq(WINDOW, 1 / RATE)
    low, centre, high = (corners[i : i + BANDS, None] for i in range(3))
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
