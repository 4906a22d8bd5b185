"""The cases of spectral norm: convolutions of discriminators and generators, and linear layers.

Useful traffic: the weight is needed three times, for two products and the division, but it has to move only
once, and w once, where it fits in the last-level cache (2); else each time (4). Backward: dw and the weight
are read and the gradient written (3), or dw is read again (4).
"""

from dataclasses import dataclass, replace

from bench.cases import Case
from bench.machine import llc_bytes


@dataclass(frozen=True)
class WeightCase(Case):
    """A weight, and the axis of its outputs."""

    dim: int = 0


def weight(name: str, shape: tuple[int, ...], **options: object) -> WeightCase:
    """A forward case."""
    case = WeightCase("spectral_norm", name, shape, **options)  # type: ignore[arg-type]
    return replace(case, passes=2 if case.nbytes <= llc_bytes() else 4)


SPECTRAL_NORM = [
    weight("first convolution, 64 x 3 x 3 x 3", (64, 3, 3, 3), quick=True),
    weight("SNGAN, 128 x 64 x 4 x 4", (128, 64, 4, 4), quick=True),
    weight("convolution, 256 x 256 x 3 x 3", (256, 256, 3, 3)),
    weight("SNGAN, 512 x 256 x 4 x 4", (512, 256, 4, 4)),
    weight("convolution, 1024 x 1024 x 3 x 3", (1024, 1024, 3, 3)),
    weight("transposed convolution, 512 x 256 x 4 x 4", (512, 256, 4, 4), dim=1, quick=True),
    weight("linear, 4096 x 1024", (4096, 1024)),
    weight("last layer, 1 x 1024", (1, 1024)),
    weight("linear, 1024 x 1024, float64", (1024, 1024), dtype="float64"),
]

SPECTRAL_NORM_BACKWARD = [
    replace(case, backward=True, passes=3 if 2 * case.nbytes <= llc_bytes() else 4) for case in SPECTRAL_NORM
]
