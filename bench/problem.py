"""The arrays of one case: every contestant reads the same x, and writes the same `out` if any."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.cases import Case

Array = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Problem:
    """A case with its data."""

    case: Case
    x: Array
    weight: Array
    bias: Array
    running_mean: Array
    running_var: Array
    out: Array

    def running(self) -> tuple[Array, Array]:
        """The running mean and variance, of the caller's own: a training call updates them."""
        return self.running_mean.copy(), self.running_var.copy()


def build(case: Case) -> Problem:
    """Return the arrays of `case`: x of mean 0.5 and spread 2, every parameter far from its default."""
    rng = np.random.default_rng(20240607)
    dtype = np.dtype(case.dtype)

    def normal(size: int, mean: float, spread: float) -> Array:
        values: Array = (mean + spread * rng.standard_normal(size)).astype(dtype)
        return values

    x = np.empty(case.shape, dtype)
    flat = x.reshape(-1)
    block = normal(
        min(flat.size, (1 << 20) + 7), 0.5, 2.0
    )  # an odd length: no two rows or channels are alike
    for start in range(0, flat.size, block.size):
        flat[start : start + block.size] = block[: flat.size - start]
    return Problem(
        case,
        x,
        weight=normal(case.channels, 1.0, 0.2),
        bias=normal(case.channels, 0.0, 0.2),
        running_mean=normal(case.channels, 0.5, 0.1),
        running_var=np.square(normal(case.channels, 2.0, 0.1)),
        out=np.zeros_like(x),  # zeros, so that every page exists before the first call
    )
