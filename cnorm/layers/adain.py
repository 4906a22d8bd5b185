"""Adaptive instance norm as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _arguments
from cnorm._gradients import AdaINGradients
from cnorm.layers.layer import Layer
from cnorm.ops.adain import adain
from cnorm.ops.adain_backward import adain_backward

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


class AdaIN(Layer):
    """Adaptive instance norm of a content and a style, without parameters.

    Parameters
    ----------
    eps : float
        At least 0. Added to the variances, inside the square root.
    unbiased : bool
        Whether variances are over n - 1, as in the paper's code, or over n.
    axis : int
        The channel axis. The batch axis is 0.

    See Also
    --------
    cnorm.adain : the function.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.AdaIN()
    >>> y = layer(np.array([[[1, 2, 3, 6]]], np.float32), np.array([[[110, 90, 100]]], np.float32))
    >>> y.round(2)
    array([[[ 90.74,  95.37, 100.  , 113.89]]], dtype=float32)
    >>> dcontent, dstyle = layer.backward(np.ones_like(y))
    >>> dstyle.round(3)
    array([[[1.333, 1.333, 1.333]]], dtype=float32)
    """

    parameter_names = ()

    def __init__(self, eps: float = 1e-5, unbiased: bool = True, *, axis: int = 1) -> None:
        super().__init__()
        self.eps = _arguments.epsilon(eps)
        self.unbiased = bool(unbiased)
        self.axis = _arguments.integer("axis", axis)
        self._both: Callable[[Any], AdaINGradients] | None = None

    # Two inputs where other layers have one: nothing that takes any layer can call this one.
    def __call__(  # type: ignore[override]
        self, content: ArrayLike, style: ArrayLike, *, save: bool = True
    ) -> Array:
        """Give `content` the mean and standard deviation of `style`, by channel of each sample.

        Parameters
        ----------
        content, style : array of float16, bfloat16, float32 or float64
            As for `adain`.
        save : bool
            Whether to remember the call for `backward`, and so keep both arrays, which may not be changed
            meanwhile.

        Returns
        -------
        y : array
            Of the shape, dtype and memory order of `content`.

        Raises
        ------
        TypeError, ValueError
            As `adain` does.
        """
        content, style = _arguments.array("content", content), _arguments.array("style", style)
        y, gradients = self._forward(content, style)
        self._both = gradients if save else None
        return y

    def backward(self, dy: ArrayLike) -> tuple[Array, Array]:  # type: ignore[override]
        """Return the gradients of the last call's content and style.

        Parameters
        ----------
        dy : array of any floating dtype, of the shape of the content
            The gradient of the call's result.

        Returns
        -------
        dcontent, dstyle : array
            Each of the shape, dtype and memory order of the input.

        Raises
        ------
        RuntimeError
            If there is no call to go back through: each is used once, and its memory released.
        TypeError, ValueError
            If `dy` is no such array. The call is still remembered then.
        """
        if self._both is None:
            raise RuntimeError(
                "AdaIN.backward: expected a call of the layer first, and one for each backward; "
                "there is none, or it was made with save=False"
            )
        gradients = self._both(dy)
        self._both = None
        assert gradients.content is not None  # both are asked for
        assert gradients.style is not None
        return gradients.content, gradients.style

    def _forward(  # type: ignore[override]
        self, content: Array, style: Array
    ) -> tuple[Array, Callable[[Any], AdaINGradients]]:
        axis, unbiased = self.axis, self.unbiased
        y, *stats = adain(content, style, self.eps, axis=axis, unbiased=unbiased, return_stats=True)

        def gradients(dy: Any) -> AdaINGradients:
            return adain_backward(dy, content, style, *stats, axis=axis, unbiased=unbiased)

        return y, gradients

    def _settings(self) -> str:
        return f"eps={self.eps}, unbiased={self.unbiased}, axis={self.axis}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_both": None}
