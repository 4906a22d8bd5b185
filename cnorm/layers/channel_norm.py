"""What batch and instance norm have in common: a weight for each channel, and running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.layer import Layer

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = NDArray[Any]


class ChannelNorm(Layer):
    """A layer with parameters and, on request, running statistics of shape (channels,).

    `x` has one of the numbers of axes in `ranks`. Running statistics of layers with 16-bit parameters are
    float32: their small updates would be lost to rounding otherwise.
    """

    buffer_names = ("running_mean", "running_var", "num_batches_tracked")
    ranks: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        dtype: DTypeLike | None,
        bias: bool,
        axis: int,
    ) -> None:
        super().__init__()
        self.num_features = _checks.size("num_features", num_features)
        self.eps = _arguments.epsilon(eps)
        self.momentum = None if momentum is None else _arguments.number("momentum", momentum)
        self.affine = bool(affine)
        self.track_running_stats = bool(track_running_stats)
        self.axis = _arguments.integer("axis", axis)
        kind, compute = _checks.dtypes(dtype)

        n, tracked = self.num_features, self.track_running_stats
        self.weight: Array | None = np.ones(n, kind) if affine else None
        self.bias: Array | None = np.zeros(n, kind) if affine and bias else None
        self.running_mean: Array | None = np.zeros(n, compute) if tracked else None
        self.running_var: Array | None = np.ones(n, compute) if tracked else None
        self.num_batches_tracked: Array | None = np.zeros((), np.int64) if tracked else None

    @property
    def _frozen(self) -> bool:
        """Whether the next call normalises by the running statistics."""
        return not self.training and self.running_mean is not None

    def _updated(self) -> tuple[Array | None, Array | None]:
        """Return the running statistics that the next call changes, if it does."""
        if self.training and self.track_running_stats:
            return self.running_mean, self.running_var
        return None, None

    def _weight_of_new(self) -> float:
        """Return the momentum of the next call: without one, each batch weighs as much as another."""
        if self.momentum is not None:
            return self.momentum
        return 0.0 if self.num_batches_tracked is None else 1 / (int(self.num_batches_tracked) + 1)

    def _settings(self) -> str:
        settings = (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )
        return settings if self.axis == 1 else f"{settings}, axis={self.axis}"
