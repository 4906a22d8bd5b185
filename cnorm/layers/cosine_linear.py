"""Cosine norm as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments
from cnorm._gradients import Gradients
from cnorm.layers import _checks
from cnorm.layers.layer import Layer
from cnorm.ops.cosine_norm import cosine_norm
from cnorm.ops.cosine_norm_backward import cosine_norm_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = NDArray[Any]


class CosineLinear(Layer):
    """A linear layer of cosines: `cnorm.cosine_norm` of `x`, of shape (..., in_features), and a weight.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the last axis of `x` and of the result.
    eps : float
        At least 0. Products of two norms that are smaller count as `eps`.
    dtype : dtype, optional
        That of the weight: float16, bfloat16, float32 or float64; by default float32.

    Attributes
    ----------
    weight : array, shape (out_features, in_features)
        The parameter, at first drawn from the uniform distribution on ``+-1 / sqrt(in_features)``, as the
        weights of ``torch.nn.Linear`` are.

    See Also
    --------
    cnorm.cosine_norm : The function, its formula and its errors.
    cnorm.cosine_norm_backward : The gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.CosineLinear(2, 3)
    >>> layer.weight[...] = [[1, 0], [0, 1], [1, 1]]
    >>> layer(np.array([3, 4], np.float32)).round(3)
    array([0.6 , 0.8 , 0.99], dtype=float32)
    """

    parameter_names = ("weight",)

    def __init__(
        self, in_features: int, out_features: int, eps: float = 1e-8, dtype: DTypeLike | None = None
    ) -> None:
        super().__init__()
        self.in_features = _checks.size("in_features", in_features)
        self.out_features = _checks.size("out_features", out_features)
        self.eps = _arguments.epsilon(eps)
        kind, _ = _checks.dtypes(dtype)
        bound = 1 / np.sqrt(max(self.in_features, 1))
        shape = (self.out_features, self.in_features)
        self.weight: Array = np.random.default_rng().uniform(-bound, bound, shape).astype(kind)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        weight, eps = self.weight, self.eps

        def gradients(dy: Any) -> Gradients:
            grads = cosine_norm_backward(dy, x, weight, eps)
            return Gradients(grads.x, grads.weight, None)

        return cosine_norm(x, weight, eps), gradients

    def _settings(self) -> str:
        return f"{self.in_features}, {self.out_features}, eps={self.eps}"
