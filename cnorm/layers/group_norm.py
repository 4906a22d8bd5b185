"""Group norm as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.layer import Layer
from cnorm.ops.group_norm import group_norm
from cnorm.ops.group_norm_backward import group_norm_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class GroupNorm(Layer):
    """Group norm: `cnorm.group_norm` of `x`, of shape (batch, channels, ...).

    Parameters
    ----------
    num_groups : int
        A divisor of `num_channels`.
    num_channels : int
        The number of channels.
    eps : float
        At least 0. Added to the variance, inside the square root.
    affine : bool
        Whether there are a weight, at first 1, and a bias.
    dtype : dtype, optional
        That of the parameters: float16, bfloat16, float32 or float64; by default float32.
    bias : bool
        Whether an affine layer has a bias, at first 0.
    axis : int
        The channel axis; -1 for arrays with channels last.

    Attributes
    ----------
    weight, bias : array, shape (channels,), or None
        The parameters.

    See Also
    --------
    cnorm.group_norm : The function, its formula and its errors.
    cnorm.group_norm_backward : The gradients.

    Notes
    -----
    Arguments, names and defaults are those of ``torch.nn.GroupNorm``. `x` needs as many channels as the
    layer has without parameters too.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.GroupNorm(2, 4)
    >>> layer(np.array([[[1, 2], [3, 4], [50, 70], [90, 110]]], np.float32)).round(3)
    array([[[-1.342, -0.447],
            [ 0.447,  1.342],
            [-1.342, -0.447],
            [ 0.447,  1.342]]], dtype=float32)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
        axis: int = 1,
    ) -> None:
        super().__init__()
        self.num_channels = _checks.size("num_channels", num_channels)
        self.num_groups = _arguments.groups(num_groups, self.num_channels)
        self.eps = _arguments.epsilon(eps)
        self.affine = bool(affine)
        self.axis = _arguments.integer("axis", axis)
        kind, _ = _checks.dtypes(dtype)
        self.weight: Array | None = np.ones(self.num_channels, kind) if affine else None
        self.bias: Array | None = np.zeros(self.num_channels, kind) if affine and bias else None

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        groups, axis, weight, need = self.num_groups, self.axis, self.weight, self._needed()
        _checks.channels(x, axis, self.num_channels, first=1)
        y, mean, rstd = group_norm(x, groups, weight, self.bias, self.eps, axis=axis, return_stats=True)

        def gradients(dy: Any) -> Gradients:
            return group_norm_backward(dy, x, mean, rstd, groups, weight, axis=axis, need=need)

        return y, gradients

    def _settings(self) -> str:
        settings = (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
        return settings if self.axis == 1 else f"{settings}, axis={self.axis}"
