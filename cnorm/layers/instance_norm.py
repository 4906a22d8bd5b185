"""Instance norm layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.channel_norm import ChannelNorm
from cnorm.ops.batch_norm import batch_norm
from cnorm.ops.batch_norm_backward import batch_norm_backward
from cnorm.ops.instance_norm import instance_norm
from cnorm.ops.instance_norm_backward import instance_norm_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class _InstanceNorm(ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
        axis: int = 1,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, bias, axis)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        _checks.ranks(x, self.ranks)
        if x.ndim == max(self.ranks):
            return self._normalize(x)
        y, gradients = self._normalize(x[None])

        def unbatched_gradients(dy: Any) -> Gradients:
            result = gradients(_arguments.array("dy", dy)[None])
            return result if result.x is None else result._replace(x=result.x[0])

        return y[0], unbatched_gradients

    def _normalize(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        _checks.channels(x, self.axis, self.num_features, first=1)
        return self._by_running_statistics(x) if self._frozen else self._by_instance(x)

    def _by_instance(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        axis, weight, need = self.axis, self.weight, self._needed()
        y, mean, rstd = instance_norm(
            x,
            *self._updated(),
            weight,
            self.bias,
            momentum=self._weight_of_new(),
            eps=self.eps,
            axis=axis,
            return_stats=True,
        )
        # PyTorch's layer has this counter too, and never counts: only the cumulative average needs it.
        if self.momentum is None and self.num_batches_tracked is not None and self.training and x.size:
            self.num_batches_tracked += 1

        def gradients(dy: Any) -> Gradients:
            return instance_norm_backward(dy, x, mean, rstd, weight, axis=axis, need=need)

        return y, gradients

    def _by_running_statistics(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        """Normalise all samples alike, which is batch norm's inference."""
        axis, weight, need = self.axis, self.weight, self._needed()
        y, mean, rstd = batch_norm(
            x,
            self.running_mean,
            self.running_var,
            weight,
            self.bias,
            eps=self.eps,
            axis=axis,
            return_stats=True,
        )

        def gradients(dy: Any) -> Gradients:
            return batch_norm_backward(dy, x, mean, rstd, weight, training=False, axis=axis, need=need)

        return y, gradients


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of sequences: `x` of shape (batch, channels, length) or (channels, length).

    `cnorm.instance_norm` with the statistics of each channel of each sample; after `eval`, with running
    statistics if the layer tracks them.

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
        Whether there are running statistics, used after `eval`.
    dtype : dtype, optional
        That of the parameters: float16, bfloat16, float32 or float64; by default float32. Running statistics
        have it too, but are float32 for 16 bits.
    bias : bool
        Whether an affine layer has a bias, at first 0.
    axis : int
        The channel axis of an `x` that has a batch axis; -1 for arrays with channels last.

    Attributes
    ----------
    weight, bias : array, shape (channels,), or None
        The parameters.
    running_mean, running_var : array, shape (channels,), or None
        The running statistics, at first 0 and 1. A call that fails, or of an empty batch, leaves them alone.
    num_batches_tracked : array of int64, shape (), or None
        How many batches they have seen if `momentum` is None; otherwise 0, as in PyTorch.

    See Also
    --------
    cnorm.instance_norm : The function, its formula and its errors.
    cnorm.instance_norm_backward : The gradients.

    Notes
    -----
    Arguments, names and defaults are those of ``torch.nn.InstanceNorm1d``, where momentum=None however leaves
    the running statistics alone. `x` needs as many channels as the layer has without parameters too.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.InstanceNorm1d(2)
    >>> layer(np.array([[1, 2, 3, 4], [8, 8, 8, 8]], np.float32)).round(3)
    array([[-1.342, -0.447,  0.447,  1.342],
           [ 0.   ,  0.   ,  0.   ,  0.   ]], dtype=float32)
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of images: `x` of shape (batch, channels, height, width) or (channels, height, width).

    Parameters and attributes are those of `InstanceNorm1d`.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.InstanceNorm2d(1, affine=True)
    >>> layer.bias[:] = 5
    >>> layer(np.array([[[[1, 2], [3, 4]]]], np.float32)).round(3)
    array([[[[3.658, 4.553],
             [5.447, 6.342]]]], dtype=float32)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of volumes: `x` of shape (batch, channels, depth, height, width), or without batch.

    Parameters and attributes are those of `InstanceNorm1d`.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.InstanceNorm3d(8, axis=-1)
    InstanceNorm3d(8, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False, axis=-1)
    """

    ranks = (4, 5)
