"""The whitening layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _whitening, _whitening_matrices
from cnorm._gradients import Gradients
from cnorm.layers import _checks
from cnorm.layers.layer import Layer
from cnorm.ops.whiten import whiten
from cnorm.ops.whiten_backward import whiten_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = NDArray[Any]


class Whitening(Layer):
    """Whitening of channels: `x` of shape (batch, channels, ...).

    In training, `cnorm.whiten` with the statistics of the batch, whose running average is kept; after `eval`,
    with that average. It has no parameters.

    Parameters
    ----------
    num_features : int
        The number of channels.
    method : {"zca", "pca", "cholesky", "newton"}
        How to whiten, see `cnorm.whiten`.
    groups : int
        Number of groups of neighbouring channels, each whitened by itself; divides the channels.
    eps : float
        At least 0. Added to the variances.
    momentum : float, optional
        Weight of a new batch in the running statistics. None: they are the average over all batches so far.
    n_iterations : int
        Iterations of "newton".
    track_running_stats : bool
        Whether there are running statistics. Otherwise those of the batch are used after `eval` too.
    dtype : dtype, optional
        That of the running statistics: float32, the default, or float64; they are float32 for 16 bits too.
    axis : int
        The channel axis; -1 for arrays with channels last.

    Attributes
    ----------
    running_mean : array, shape (channels,), or None
        At first 0.
    running_cov : array, shape (groups, channels / groups, channels / groups), or None
        At first the identity for each group. A call that fails, or of an empty batch, leaves both alone.
    num_batches_tracked : array of int64, shape (), or None
        How many batches they have seen.

    See Also
    --------
    cnorm.whiten : The function, its formula and its errors.
    cnorm.whiten_backward : The gradient.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.Whitening(2, momentum=1.0)
    >>> x = np.array([[1, 2], [2, 1], [3, 5], [4, 4]], np.float32)
    >>> y = layer(x)
    >>> layer.running_cov
    array([[[1.25, 1.25],
            [1.25, 2.5 ]]], dtype=float32)
    >>> layer.backward(np.ones_like(y)).round(5) + 0
    array([[0., 0.],
           [0., 0.],
           [0., 0.],
           [0., 0.]], dtype=float32)
    >>> bool(np.allclose(layer.eval()(x), y))
    True
    """

    parameter_names = ()
    buffer_names = ("running_mean", "running_cov", "num_batches_tracked")

    def __init__(
        self,
        num_features: int,
        method: str = "zca",
        groups: int = 1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        n_iterations: int = 5,
        track_running_stats: bool = True,
        dtype: DTypeLike | None = None,
        *,
        axis: int = 1,
    ) -> None:
        super().__init__()
        self.num_features = _checks.size("num_features", num_features)
        self.method = _arguments.choice("method", method, _whitening_matrices.METHODS)
        self.groups = _arguments.groups(groups, self.num_features, "groups")
        self.eps = _arguments.epsilon(eps)
        self.momentum = None if momentum is None else _arguments.number("momentum", momentum)
        self.n_iterations = _whitening.iterations(n_iterations)
        self.track_running_stats = bool(track_running_stats)
        self.axis = _arguments.integer("axis", axis)
        _, compute = _checks.dtypes(dtype)

        tracked, d = self.track_running_stats, self.num_features // self.groups
        eyes = np.tile(np.eye(d, dtype=compute), (self.groups, 1, 1))
        self.running_mean: Array | None = np.zeros(self.num_features, compute) if tracked else None
        self.running_cov: Array | None = eyes if tracked else None
        self.num_batches_tracked: Array | None = np.zeros((), np.int64) if tracked else None

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        axis = self.axis
        _checks.channels(x, axis, self.num_features, first=0)
        tracked = self.track_running_stats and self.running_mean is not None
        frozen = tracked and not self.training
        running = (self.running_mean, self.running_cov) if tracked else (None, None)
        y, _, factors = whiten(
            x,
            *running,
            training=not frozen,
            momentum=self._weight_of_new(),
            eps=self.eps,
            method=self.method,
            groups=self.groups,
            axis=axis,
            n_iterations=self.n_iterations,
            return_stats=True,
        )
        if self.num_batches_tracked is not None and not frozen and x.size:
            self.num_batches_tracked += 1

        def gradients(dy: Any) -> Gradients:
            return Gradients(whiten_backward(dy, x, factors, axis=axis).x, None, None)

        return y, gradients

    def _weight_of_new(self) -> float:
        """Return the momentum of the next call: without one, each batch weighs as much as another."""
        if self.momentum is not None:
            return self.momentum
        return 0.0 if self.num_batches_tracked is None else 1 / (int(self.num_batches_tracked) + 1)

    def _settings(self) -> str:
        settings = (
            f"{self.num_features}, method={self.method!r}, groups={self.groups}, eps={self.eps}, "
            f"momentum={self.momentum}, n_iterations={self.n_iterations}, "
            f"track_running_stats={self.track_running_stats}"
        )
        return settings if self.axis == 1 else f"{settings}, axis={self.axis}"
