"""RMS norm as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.layer import Layer
from cnorm.ops.rms_norm import rms_norm
from cnorm.ops.rms_norm_backward import rms_norm_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class RMSNorm(Layer):
    """RMS norm: `cnorm.rms_norm` of each row of `x`, of shape (..., *normalized_shape).

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The shape of a row: the last axis, or the last few.
    eps : float, optional
        At least 0. Added to the mean square, inside the square root. By default the machine epsilon of the
        dtype computed in: that of float64 for an `x` of float64, else that of float32.
    elementwise_affine : bool
        Whether there is a weight, at first 1.
    dtype : dtype, optional
        That of the weight: float16, bfloat16, float32 or float64; by default float32.

    Attributes
    ----------
    weight : array, shape `normalized_shape`, or None
        The parameter.

    See Also
    --------
    cnorm.rms_norm : The function, its formula and its errors.
    cnorm.rms_norm_backward : The gradients.

    Notes
    -----
    Arguments, names and defaults are those of ``torch.nn.RMSNorm``.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.RMSNorm(4)
    >>> layer.weight[3] = 2
    >>> layer(np.array([1, 2, 3, 4], np.float32)).round(3)
    array([0.365, 0.73 , 1.095, 2.921], dtype=float32)
    """

    parameter_names = ("weight",)

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _checks.row_shape(normalized_shape)
        self.eps = None if eps is None else _arguments.epsilon(eps)
        self.elementwise_affine = bool(elementwise_affine)
        kind, _ = _checks.dtypes(dtype)
        self.weight: Array | None = np.ones(self.normalized_shape, kind) if elementwise_affine else None

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        shape, weight, need = self.normalized_shape, self.weight, self._needed()
        y, rstd = rms_norm(x, shape, weight, self.eps, return_stats=True)

        def gradients(dy: Any) -> Gradients:
            return rms_norm_backward(dy, x, rstd, weight, normalized_shape=shape, need=need)

        return y, gradients

    def _settings(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
