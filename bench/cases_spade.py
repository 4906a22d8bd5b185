"""SPADE's cases: the generator of GauGAN, with gamma and beta for each element, and a tiny call.

Useful traffic: forward, x, gamma and beta are read and y is written (4S); backward, dy, x and gamma are read,
and dx, dgamma and dbeta are written (6S).
"""

from dataclasses import dataclass, replace

from bench.cases import Case


@dataclass(frozen=True)
class SpadeCase(Case):
    """A case with the name of its norm."""

    norm: str = "instance"


def _case(name: str, shape: tuple[int, ...], norm: str, last: bool = False, **options: bool) -> SpadeCase:
    name = f"{name}, {norm}{', channels last' if last else ''}"
    shape = (shape[0], *shape[2:], shape[1]) if last else shape
    return SpadeCase("spade", name, shape, norm=norm, channels_last=last, passes=4, **options)


HEAD, MIDDLE, BATCH, LAST = (1, 1024, 16, 16), (1, 512, 64, 64), (4, 256, 64, 64), (1, 64, 256, 256)

CASES = [
    _case("1024 x 16 x 16", HEAD, "instance", quick=True),
    _case("1024 x 16 x 16", HEAD, "batch"),
    _case("512 x 64 x 64", MIDDLE, "instance"),
    _case("512 x 64 x 64", MIDDLE, "batch"),
    _case("4 x 256 x 64 x 64", BATCH, "instance"),
    _case("4 x 256 x 64 x 64", BATCH, "batch"),
    _case("64 x 256 x 256", LAST, "instance"),
    _case("64 x 256 x 256", LAST, "batch"),
    _case("1024 x 16 x 16", HEAD, "batch", last=True, quick=True),
    _case("512 x 64 x 64", MIDDLE, "instance", last=True),
    _case("4 x 256 x 64 x 64", BATCH, "batch", last=True),
    _case("64 x 256 x 256", LAST, "batch", last=True),
    _case("tiny, 16 x 2 x 2", (1, 16, 2, 2), "instance"),
]

BACKWARD_CASES = [replace(case, backward=True, passes=6) for case in CASES]
