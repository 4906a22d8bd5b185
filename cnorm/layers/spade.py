"""SPADE as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments, _modulation
from cnorm.layers import _checks
from cnorm.layers.channel_norm import ChannelNorm
from cnorm.ops.spade import spade
from cnorm.ops.spade_backward import spade_backward

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from cnorm._gradients import SpadeGradients

Array = NDArray[Any]


class SPADE(ChannelNorm):
    """Spatially-adaptive normalization: `cnorm.spade`, with running statistics where the norm has them.

    ``layer(x, gamma, beta)`` takes the scale and the shift too. They come from the caller's own small
    convolutional network, which looks at the segmentation map: this layer has no parameters. ``backward(dy)``
    returns the gradients of all three, for that network to go on with, and `grads` stays empty.

    Parameters
    ----------
    num_features : int
        The number of channels.
    norm : {"batch", "instance", "layer", "group"}
        Whose mean and variance.
    eps : float
        At least 0. Added to the variance, inside the square root.
    momentum : float, optional
        Weight of a new batch in the running statistics. None: they are the average over all batches so far.
    track_running_stats : bool
        Whether batch norm keeps running statistics, by which it normalises after `eval`.
    num_groups : int, optional
        For ``norm="group"``: a divisor of the number of channels.
    gamma_offset : float
        Added to gamma.
    dtype : dtype, optional
        Of the running statistics: that of the data, by default float32; float32 for 16 bits.
    axis : int
        The channel axis; -1 for arrays with channels last.

    Attributes
    ----------
    running_mean, running_var : array, shape (channels,), or None
        The running statistics, at first 0 and 1. A call that fails, or of an empty batch, leaves them alone.
    num_batches_tracked : array of int64, shape (), or None
        How many batches they have seen.

    See Also
    --------
    cnorm.spade : The function, its formula and its errors.
    cnorm.spade_backward : The gradients.

    Notes
    -----
    State dicts are those of ``torch.nn.BatchNorm2d`` with ``affine=False``, which is what implementations for
    PyTorch have inside.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.SPADE(2)
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> gamma, beta = np.zeros_like(x), np.array([0, 5], np.float32)
    >>> layer(x, gamma, beta).round(3)
    array([[-1.342,  3.658],
           [-0.447,  4.553],
           [ 0.447,  5.447],
           [ 1.342,  6.342]], dtype=float32)
    >>> dx, dgamma, dbeta = layer.backward(np.eye(4, 2, dtype=np.float32))
    >>> dgamma.round(3)
    array([[-1.342, -0.   ],
           [-0.   , -0.447],
           [ 0.   ,  0.   ],
           [ 0.   ,  0.   ]], dtype=float32)
    >>> dbeta
    array([1., 1.], dtype=float32)
    >>> layer.running_mean
    array([0.25, 2.5 ], dtype=float32)
    """

    parameter_names = ()

    def __init__(
        self,
        num_features: int,
        norm: str = "batch",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        track_running_stats: bool = True,
        num_groups: int | None = None,
        gamma_offset: float = 1.0,
        dtype: DTypeLike | None = None,
        *,
        axis: int = 1,
    ) -> None:
        self.norm = _arguments.choice("norm", norm, _modulation.NORMS)
        tracked = bool(track_running_stats) and norm == "batch"
        super().__init__(num_features, eps, momentum, False, tracked, dtype, False, axis)
        _modulation.num_groups(norm, num_groups, self.num_features)
        self.num_groups = num_groups
        self.gamma_offset = _arguments.number("gamma_offset", gamma_offset)

    def __call__(  # type: ignore[override]  # two inputs more
        self, x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, *, save: bool = True
    ) -> Array:
        """Normalise `x`, scale and shift it.

        Parameters
        ----------
        x : array of float16, bfloat16, float32 or float64
            In any memory layout.
        gamma, beta : array of any floating dtype, of a shape that broadcasts to that of `x`
            Scale, less `gamma_offset`, and shift.
        save : bool
            Whether to remember the call, `x` and `gamma` themselves, for `backward`.

        Returns
        -------
        y : array
            Of the shape, dtype and memory order of `x`.

        Raises
        ------
        TypeError
            If an argument is no array of a floating dtype.
        ValueError
            If the shape of `x` does not fit the layer, or another shape that of `x`.
        """
        y, gradients = self._forward(_arguments.array("x", x), gamma, beta)
        self._gradients = gradients if save else None  # type: ignore[assignment]
        return y

    def _forward(  # type: ignore[override]
        self, x: Array, gamma: ArrayLike, beta: ArrayLike
    ) -> tuple[Array, Callable[[Any], SpadeGradients]]:
        pooled, frozen = self.norm == "batch", self._frozen
        _checks.channels(x, self.axis, self.num_features, first=0 if pooled else 1)
        running_mean, running_var = (self.running_mean, self.running_var) if frozen else self._updated()
        options: dict[str, Any] = {
            "norm": self.norm,
            "gamma_offset": self.gamma_offset,
            "axis": self.axis,
            "num_groups": self.num_groups,
            "training": not frozen,
        }
        y, mean, rstd = spade(
            x,
            gamma,
            beta,
            self.eps,
            running_mean=running_mean,
            running_var=running_var,
            momentum=self._weight_of_new(),
            return_stats=True,
            **options,
        )
        if self.num_batches_tracked is not None and self.training and x.size:
            self.num_batches_tracked += 1
        beta_shape = _arguments.array("beta", beta).shape

        def gradients(dy: Any) -> SpadeGradients:
            return spade_backward(dy, x, mean, rstd, gamma, beta_shape=beta_shape, **options)

        return y, gradients

    def backward(self, dy: ArrayLike) -> SpadeGradients:  # type: ignore[override]
        """Return the gradients of the last call's `x`, gamma and beta.

        Parameters
        ----------
        dy : array of any floating dtype, of the shape of `x`
            The gradient of the call's result.

        Returns
        -------
        SpadeGradients
            Named tuple ``(x, gamma, beta)``.

        Raises
        ------
        RuntimeError
            If there is no call to go back through: each is used once, and its memory released.
        TypeError, ValueError
            If `dy` is no such array. The call is still remembered then.
        """
        gradients: SpadeGradients = self._take_gradients(dy)
        return gradients

    def _settings(self) -> str:
        settings = (
            f"{self.num_features}, norm={self.norm!r}, eps={self.eps}, momentum={self.momentum}, "
            f"track_running_stats={self.track_running_stats}, gamma_offset={self.gamma_offset}"
        )
        settings = settings if self.num_groups is None else f"{settings}, num_groups={self.num_groups}"
        return settings if self.axis == 1 else f"{settings}, axis={self.axis}"
