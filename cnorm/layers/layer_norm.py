"""Layer norm as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm.layers import _checks
from cnorm.layers.layer import Layer
from cnorm.ops.layer_norm import layer_norm
from cnorm.ops.layer_norm_backward import layer_norm_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients

Array = NDArray[Any]


class LayerNorm(Layer):
    """Layer norm: `cnorm.layer_norm` of each row of `x`, of shape (..., *normalized_shape).

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The shape of a row: the last axis, or the last few.
    eps : float
        At least 0. Added to the variance, inside the square root.
    elementwise_affine : bool
        Whether there are a weight, at first 1, and a bias.
    bias : bool
        Whether such a layer has a bias, at first 0.
    dtype : dtype, optional
        That of the parameters: float16, bfloat16, float32 or float64; by default float32.

    Attributes
    ----------
    weight, bias : array, shape `normalized_shape`, or None
        The parameters.

    See Also
    --------
    cnorm.layer_norm : The function, its formula and its errors.
    cnorm.layer_norm_backward : The gradients.

    Notes
    -----
    Arguments, names and defaults are those of ``torch.nn.LayerNorm``.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.LayerNorm(4)
    >>> layer(np.array([[1, 2, 3, 4], [7, 7, 7, 7]], np.float32)).round(3)
    array([[-1.342, -0.447,  0.447,  1.342],
           [ 0.   ,  0.   ,  0.   ,  0.   ]], dtype=float32)
    >>> dx = layer.backward(np.ones((2, 4), np.float32))
    >>> for name, parameter in layer.parameters().items():
    ...     parameter -= 0.1 * layer.grads[name]
    >>> layer.bias
    array([-0.2, -0.2, -0.2, -0.2], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _checks.row_shape(normalized_shape)
        self.eps = _arguments.epsilon(eps)
        self.elementwise_affine = bool(elementwise_affine)
        kind, _ = _checks.dtypes(dtype)
        self.weight: Array | None = np.ones(self.normalized_shape, kind) if elementwise_affine else None
        self.bias: Array | None = (
            np.zeros(self.normalized_shape, kind) if elementwise_affine and bias else None
        )

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        shape, weight, need = self.normalized_shape, self.weight, self._needed()
        y, mean, rstd = layer_norm(x, shape, weight, self.bias, self.eps, return_stats=True)

        def gradients(dy: Any) -> Gradients:
            return layer_norm_backward(dy, x, mean, rstd, weight, normalized_shape=shape, need=need)

        return y, gradients

    def _settings(self) -> str:
        affine, bias = self.elementwise_affine, self.bias is not None
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={affine}, bias={bias}"
