"""The benchmark's forward cases: shapes of real models, by op. The backward ones are in cases_backward.py,
those of the ops that no peer has as one function in cases_others.py.

Useful traffic counts every byte that has to move once: `passes` times the size of x (2 for a forward pass:
read x, write y), whatever the implementation reads again.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.machine import beyond_cache_bytes

FORWARD, BACKWARD = DIRECTIONS = ("forward", "backward")
OTHERS = "others"
PARTS = (*DIRECTIONS, OTHERS)
"""Of the benchmark: both directions of the norms that PyTorch has, and the other ops."""

COMMON = ("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm")


@dataclass(frozen=True)
class Case:
    """One call of one op: where its shape comes from, and what to call it with."""

    op: str
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    channels_last: bool = False
    num_groups: int = 0
    training: bool = False
    backward: bool = False
    passes: int = 2
    beyond_cache: bool = False
    quick: bool = False

    @property
    def direction(self) -> str:
        """Forward or backward."""
        return BACKWARD if self.backward else FORWARD

    @property
    def part(self) -> str:
        """Of the benchmark."""
        return self.direction if self.op in COMMON else OTHERS

    @property
    def family(self) -> str:
        """The line of the summary this case counts in: the function, and for batch norm its mode."""
        function = f"{self.op}_backward" if self.backward else self.op
        if self.op != "batch_norm":
            return function
        return f"{function}, {'training' if self.training else 'frozen' if self.backward else 'inference'}"

    @property
    def channels(self) -> int:
        """Length of weight and bias."""
        return (
            self.shape[-1] if self.channels_last or self.op in ("layer_norm", "rms_norm") else self.shape[1]
        )

    @property
    def axis(self) -> int:
        """The channel axis."""
        return -1 if self.channels_last else 1

    @property
    def nbytes(self) -> int:
        """Size of x in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def traffic(self) -> int:
        """Useful bytes of one call."""
        return self.passes * self.nbytes

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def beyond_cache(op: str, name: str, sample: tuple[int, ...], **options: Any) -> Case:
    """Return a case of as many `sample` as it takes for x to be twice the last-level cache (float32)."""
    batch = math.ceil(beyond_cache_bytes() / (4 * math.prod(sample)))
    return Case(op, f"{name}, beyond the cache", (batch, *sample), beyond_cache=True, **options)


def resnet50(training: bool) -> list[Case]:
    """ResNet-50's batch norms for 8 images of 224 x 224 pixels."""
    return [
        Case("batch_norm", "ResNet-50 stem", (8, 64, 112, 112), training=training),
        Case("batch_norm", "ResNet-50 stage 1", (8, 256, 56, 56), training=training),
        Case("batch_norm", "ResNet-50 stage 2", (8, 512, 28, 28), training=training),
        Case("batch_norm", "ResNet-50 stage 3", (8, 1024, 14, 14), training=training, quick=True),
        Case("batch_norm", "ResNet-50 stage 4", (8, 2048, 7, 7), training=training),
        Case("batch_norm", "stage 1, channels last", (8, 56, 56, 256), channels_last=True, training=training),
        Case(
            "batch_norm",
            "stage 3, channels last",
            (8, 14, 14, 1024),
            channels_last=True,
            training=training,
            quick=True,
        ),
        Case("batch_norm", "stage 4, channels last", (8, 7, 7, 2048), channels_last=True, training=training),
        Case("batch_norm", "stage 3, float64", (8, 1024, 14, 14), dtype="float64", training=training),
        Case("batch_norm", "three channels, images", (8, 3, 224, 224), training=training),
        Case("batch_norm", "features (4096, 1024)", (4096, 1024), training=training),
        Case("batch_norm", "features (128, 256)", (128, 256), training=training, quick=True),
        beyond_cache("batch_norm", "stage 1", (256, 56, 56), training=training),
        beyond_cache(
            "batch_norm", "stage 1, channels last", (56, 56, 256), training=training, channels_last=True
        ),
    ]


LAYER_NORM = [
    Case("layer_norm", "BERT base, 8 x 128 tokens", (8 * 128, 768), quick=True),
    Case("layer_norm", "BERT large, 8 x 512 tokens", (8 * 512, 1024)),
    Case("layer_norm", "ViT-B/16, 8 images", (8 * 197, 768)),
    Case("layer_norm", "GPT-2 XL, 1024 tokens", (1024, 1600)),
    Case("layer_norm", "ConvNeXt-T stage 1, rows of 96", (8 * 56 * 56, 96)),
    Case("layer_norm", "MiniLM, 32 tokens", (32, 384)),
    Case("layer_norm", "one token (1, 768)", (1, 768), quick=True),
    Case("layer_norm", "one token (1, 64)", (1, 64)),
    Case("layer_norm", "one long row (1, 2^24)", (1, 1 << 24)),
    Case("layer_norm", "BERT base, float64", (8 * 128, 768), dtype="float64"),
    beyond_cache("layer_norm", "rows of 4096", (4096,)),
    beyond_cache("layer_norm", "rows of 768", (768,)),
]

RMS_NORM = [
    Case("rms_norm", "Llama-7B, 512 tokens", (512, 4096), quick=True),
    Case("rms_norm", "Llama-7B, 2048 tokens", (2048, 4096)),
    Case("rms_norm", "Llama-70B, 512 tokens", (512, 8192)),
    Case("rms_norm", "Qwen3 query heads, rows of 128", (512 * 32, 128)),
    Case("rms_norm", "SmolLM2, 64 tokens", (64, 576)),
    Case("rms_norm", "Llama-7B, one token (1, 4096)", (1, 4096), quick=True),
    Case("rms_norm", "one token (1, 64)", (1, 64)),
    Case("rms_norm", "one long row (1, 2^24)", (1, 1 << 24)),
    Case("rms_norm", "Llama-7B, 512 tokens, float64", (512, 4096), dtype="float64"),
    beyond_cache("rms_norm", "rows of 4096", (4096,)),
]

GROUP_NORM = [
    Case("group_norm", "Stable Diffusion, 320 x 64 x 64", (2, 320, 64, 64), num_groups=32),
    Case("group_norm", "Stable Diffusion, 640 x 32 x 32", (2, 640, 32, 32), num_groups=32),
    Case("group_norm", "Stable Diffusion, 1280 x 16 x 16", (2, 1280, 16, 16), num_groups=32),
    Case("group_norm", "Stable Diffusion, 1280 x 8 x 8", (2, 1280, 8, 8), num_groups=32, quick=True),
    Case("group_norm", "one sample, 320 x 64 x 64", (1, 320, 64, 64), num_groups=32),
    Case("group_norm", "VAE decoder, 512 x 64 x 64", (1, 512, 64, 64), num_groups=32),
    Case("group_norm", "VAE decoder, 256 x 256 x 256", (1, 256, 256, 256), num_groups=32),
    Case("group_norm", "320 x 64 x 64, channels last", (2, 64, 64, 320), num_groups=32, channels_last=True),
    Case(
        "group_norm",
        "1280 x 8 x 8, channels last",
        (2, 8, 8, 1280),
        num_groups=32,
        channels_last=True,
        quick=True,
    ),
    Case("group_norm", "tiny, 32 x 4 x 4", (1, 32, 4, 4), num_groups=8),
    Case("group_norm", "640 x 32 x 32, float64", (2, 640, 32, 32), dtype="float64", num_groups=32),
    beyond_cache("group_norm", "320 x 64 x 64", (320, 64, 64), num_groups=32),
]

INSTANCE_NORM = [
    Case("instance_norm", "style transfer, 32 x 256 x 256", (1, 32, 256, 256)),
    Case("instance_norm", "style transfer, 64 x 128 x 128", (1, 64, 128, 128)),
    Case("instance_norm", "style transfer, 128 x 64 x 64", (1, 128, 64, 64), quick=True),
    Case("instance_norm", "photograph, 8 x 427 x 640", (1, 8, 427, 640)),
    Case("instance_norm", "three channels, 3 x 427 x 640", (1, 3, 427, 640)),
    Case("instance_norm", "3-D U-Net, 32 x 48 x 96 x 96", (1, 32, 48, 96, 96)),
    Case("instance_norm", "32 x 256 x 256, channels last", (1, 256, 256, 32), channels_last=True),
    Case("instance_norm", "128 x 64 x 64, channels last", (1, 64, 64, 128), channels_last=True, quick=True),
    Case("instance_norm", "tiny, 16 x 8 x 8", (1, 16, 8, 8)),
    Case("instance_norm", "64 x 128 x 128, float64", (1, 64, 128, 128), dtype="float64"),
    beyond_cache("instance_norm", "64 x 128 x 128", (64, 128, 128)),
]

CASES = [
    *LAYER_NORM,
    *RMS_NORM,
    *resnet50(training=False),
    *resnet50(training=True),
    *GROUP_NORM,
    *INSTANCE_NORM,
]


def cases_of(op: str) -> list[Case]:
    """The forward cases of one op, in the table's order."""
    return [case for case in CASES if case.op == op]
