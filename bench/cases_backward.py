"""The backward cases: shapes of the forward ones, less some of much the same geometry.

Useful traffic: the two averages in dx belong to something whole, a row, a group or a channel. Where its x
and dy fit in the cache together, the pass that applies them can find both there, and x, dy and dx move once:
three times the size of x. Where they do not fit, x and dy move twice: five times. Frozen batch norm averages
nothing.
"""

import math
from collections.abc import Container, Iterable
from dataclasses import replace

import numpy as np

from bench.cases import GROUP_NORM, INSTANCE_NORM, LAYER_NORM, RMS_NORM, Case, resnet50
from bench.machine import llc_bytes

FITTING, NOT_FITTING = 3, 5  # passes

LEFT_OUT = {
    "layer_norm": ("ViT-B/16, 8 images", "GPT-2 XL, 1024 tokens", "rows of 768, beyond the cache"),
    "rms_norm": ("Llama-70B, 512 tokens", "one token (1, 64)"),
    "batch_norm": ("ResNet-50 stage 2",),
    "group_norm": (
        "Stable Diffusion, 640 x 32 x 32",
        "one sample, 320 x 64 x 64",
        "VAE decoder, 512 x 64 x 64",
    ),
    "instance_norm": ("style transfer, 64 x 128 x 128", "photograph, 8 x 427 x 640"),
}
FROZEN = (
    "ResNet-50 stage 1",
    "ResNet-50 stage 3",
    "stage 1, channels last",
    "stage 3, channels last",
    "features (4096, 1024)",
    "stage 1, beyond the cache",
)
RESNET50_GROUP_NORM = Case("group_norm", "ResNet-50 stage 1, 8 images", (8, 256, 56, 56), num_groups=32)


def backward(cases: Iterable[Case], without: Container[str] = ()) -> list[Case]:
    """Return the backward of the cases, but for those of the names left out."""
    turned = (replace(case, backward=True) for case in cases if case.name not in without)
    return [replace(case, passes=passes(case)) for case in turned]


def passes(case: Case) -> int:
    """Return how often the size of x has to move."""
    whole = averaged_together(case) * np.dtype(case.dtype).itemsize
    return FITTING if 2 * whole <= llc_bytes() else NOT_FITTING


def averaged_together(case: Case) -> int:
    """Elements of x that have to be seen before any of their dx is known.

    Channels that lie side by side in memory, as in channels-last images and (N, C), are read together.
    """
    size, sample = math.prod(case.shape), math.prod(case.shape[1:])
    side_by_side = case.channels_last or len(case.shape) == 2
    if case.op in ("layer_norm", "rms_norm"):
        return sample
    if case.op == "batch_norm":
        if not case.training:
            return 1
        return size if side_by_side else size // case.channels
    return sample if side_by_side else sample // (case.num_groups or case.channels)


BACKWARD_CASES = [
    *backward(LAYER_NORM, LEFT_OUT["layer_norm"]),
    *backward(RMS_NORM, LEFT_OUT["rms_norm"]),
    *backward(resnet50(training=True), LEFT_OUT["batch_norm"]),
    *backward(case for case in resnet50(training=False) if case.name in FROZEN),
    *backward([RESNET50_GROUP_NORM, *GROUP_NORM], LEFT_OUT["group_norm"]),
    *backward(INSTANCE_NORM, LEFT_OUT["instance_norm"]),
]


def backward_cases_of(op: str) -> list[Case]:
    """The backward cases of one op, in the table's order."""
    return [case for case in BACKWARD_CASES if case.op == op]
