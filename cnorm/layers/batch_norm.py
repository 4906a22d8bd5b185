"""Batch norm layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm.layers import _checks
from cnorm.layers.channel_norm import ChannelNorm
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.batch_norm_backward import batch_norm_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class BatchNorm(ChannelNorm):
    """The base of the batch norm layers."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
        axis: int = 1,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, bias, axis)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        _checks.ranks(x, self.ranks)
        return self._alone(x)

    def _alone(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        """Take the statistics from this process's batch, or the running ones."""
        axis, weight, need, frozen = self.axis, self.weight, self._needed(), self._frozen
        _checks.channels(x, axis, self.num_features, first=0)
        running = (self.running_mean, self.running_var) if frozen else self._updated()
        y, mean, rstd = batch_norm(
            x,
            *running,
            weight,
            self.bias,
            training=not frozen,
            momentum=self._weight_of_new(),
            eps=self.eps,
            axis=axis,
            return_stats=True,
        )
        if self.num_batches_tracked is not None and self.training and self.track_running_stats and x.size:
            self.num_batches_tracked += 1

        def gradients(dy: Any) -> Gradients:
            return batch_norm_backward(dy, x, mean, rstd, weight, training=not frozen, axis=axis, need=need)

        return y, gradients


class BatchNorm1d(BatchNorm):
    """Batch norm of vectors or sequences: `x` of shape (batch, channels) or (batch, channels, length).

    In training, `cnorm.batch_norm` with the statistics of the batch, whose running average is kept; after
    `eval`, with that average.

    Parameters
    ----------
    num_features : int
        The number of channels.
    eps : float
        At least 0. Added to the variance, inside the square root.
    momentum : float, optional
        Weight of a new batch in the running statistics. None: they are the average over all batches so far.
    affine : bool
        Whether there are a weight, at first 1, and a bias.
    track_running_stats : bool
        Whether there are running statistics. Otherwise those of the batch are used after `eval` too.
    dtype : dtype, optional
        That of the parameters: float16, bfloat16, float32 or float64; by default float32. Running statistics
        have it too, but are float32 for 16 bits.
    bias : bool
        Whether an affine layer has a bias, at first 0.
    axis : int
        The channel axis; -1 for arrays with channels last.

    Attributes
    ----------
    weight, bias : array, shape (channels,), or None
        The parameters.
    running_mean, running_var : array, shape (channels,), or None
        The running statistics, at first 0 and 1. A call that fails, or of an empty batch, leaves them alone.
    num_batches_tracked : array of int64, shape (), or None
        How many batches they have seen.

    See Also
    --------
    cnorm.batch_norm : The function, its formula and its errors.
    cnorm.batch_norm_backward : The gradients; after `eval` those of an affine function.

    Notes
    -----
    Arguments, names and defaults are those of ``torch.nn.BatchNorm1d``. `x` needs as many channels as the
    layer has without parameters too.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.BatchNorm1d(2)
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> layer(x).round(3)
    array([[-1.342, -1.342],
           [-0.447, -0.447],
           [ 0.447,  0.447],
           [ 1.342,  1.342]], dtype=float32)
    >>> dx = layer.backward(np.eye(4, 2, dtype=np.float32))
    >>> layer.grads["weight"].round(3)
    array([-1.342, -0.447], dtype=float32)
    >>> layer.running_mean
    array([0.25, 2.5 ], dtype=float32)
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch norm of images: `x` of shape (batch, channels, height, width).

    Parameters and attributes are those of `BatchNorm1d`.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.BatchNorm2d(3, momentum=None).eval()
    >>> layer
    BatchNorm2d(3, eps=1e-05, momentum=None, affine=True, bias=True, track_running_stats=True)
    >>> layer(np.full((1, 3, 1, 2), 0.5)).round(4)
    array([[[[0.5, 0.5]],
            [[0.5, 0.5]],
            [[0.5, 0.5]]]])
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """Batch norm of volumes: `x` of shape (batch, channels, depth, height, width).

    Parameters and attributes are those of `BatchNorm1d`.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.BatchNorm3d(1)
    >>> layer(np.array([[[[[1, 2], [3, 4]]]]], np.float32)).round(3)
    array([[[[[-1.342, -0.447],
              [ 0.447,  1.342]]]]], dtype=float32)
    """

    ranks = (5,)
