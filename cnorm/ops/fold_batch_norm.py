"""Batch norm folded into the layer before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts
from cnorm._numbers import Parts, parts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@np.errstate(all="ignore")
def fold_batch_norm(
    weight: ArrayLike,
    bias: ArrayLike | None,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    bn_weight: ArrayLike | None = None,
    bn_bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    groups: int = 1,
    transposed: bool = False,
) -> tuple[Array, Array]:
    """Fold a batch norm in inference into the linear layer or convolution before it.

    One layer with the results does what the two did together. For each output channel::

        scale = bn_weight / sqrt(running_var + eps)
        weight' = weight * scale
        bias' = (bias - running_mean) * scale + bn_bias

    Parameters
    ----------
    weight : array of float16, bfloat16, float32 or float64, at least 2-D
        Of a linear layer, shape (out, in); a convolution, (out, in // groups, ...); or if `transposed`, a
        transposed convolution, (in, out // groups, ...).
    bias : array of any floating dtype, shape (out,), or None
        Without one it is 0.
    running_mean, running_var : array of any floating dtype, shape (out,)
        The statistics of the batch norm.
    bn_weight, bn_bias : array of any floating dtype, shape (out,), optional
        Its parameters; by default 1 and 0.
    eps : float
        At least 0. Added to the variance, inside the square root.
    groups : int
        Of a convolution: the groups of channels that do not see each other.
    transposed : bool
        Whether the weight is that of a transposed convolution.

    Returns
    -------
    weight, bias : array
        New arrays, computed in float64 and rounded once to the dtype of `weight`; the first has its shape and
        memory order, the second shape (out,). Where ``running_var + eps`` is 0, so is the scale, as in
        `batch_norm`.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `groups` is no integer.
    ValueError
        If an array has another shape, `groups` is not a positive divisor of the channels, or `eps` is
        negative or not finite.

    References
    ----------
    S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015, arXiv:1502.03167.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2], [3, 4], [5, 7]], np.float32)
    >>> weight, bias = np.array([[1, 1], [1, -1]], np.float32), np.array([0.5, 0], np.float32)
    >>> mean, var = np.array([7, -1], np.float32), np.array([15, 0.25], np.float32)
    >>> y = cnorm.batch_norm(x @ weight.T + bias, mean, var)
    >>> folded, shift = cnorm.fold_batch_norm(weight, bias, mean, var)
    >>> np.allclose(x @ folded.T + shift, y, atol=1e-6)
    True
    """
    weight, _ = _arguments.floating("weight", weight)
    if weight.ndim < 2:
        raise ValueError(f"weight: expected at least 2 axes, got shape {weight.shape}")
    count = _arguments.integer("groups", groups)
    inputs_or_outputs = weight.shape[0]  # those that the groups share out on the first axis
    if count < 1 or inputs_or_outputs % count:
        raise ValueError(f"groups: expected a positive divisor of {inputs_or_outputs} channels, got {count}")
    channels = weight.shape[1] * count if transposed else inputs_or_outputs
    eps = _arguments.epsilon(eps)
    wide = np.dtype(np.float64)
    mean = _arguments.statistic("running_mean", running_mean, (channels,), wide)
    var = _arguments.statistic("running_var", running_var, (channels,), wide)
    shift, scale, offset = (
        _arguments.parameter(name, value, (channels,), wide)
        for name, value in (("bias", bias), ("bn_weight", bn_weight), ("bn_bias", bn_bias))
    )

    deviation = np.sqrt(var + eps)
    deviation[deviation == 0] = np.inf
    factor = parts(1 / deviation)
    if scale is not None:
        factor = factor.times(parts(scale))
    centred = parts(np.zeros(channels) if shift is None else shift).minus(parts(mean))
    folded_bias = np.ldexp(*centred.times(factor)) + (0 if offset is None else offset)

    # One factor for each output channel, on axes (group, input channel, output channel) or (output channel,).
    split = (count, weight.shape[0] // count, weight.shape[1]) if transposed else (channels,)
    along = (count, 1, weight.shape[1]) if transposed else (channels,)
    rest = weight.shape[2 if transposed else 1 :]
    pattern = Parts(*(number.reshape(*along, *(1 for _ in rest)) for number in factor))
    folded = np.ldexp(*parts(weight.reshape(*split, *rest)).times(pattern)).reshape(weight.shape)
    results = _layouts.empty_like(weight), np.empty(channels, weight.dtype)
    for result, values in zip(results, (folded, folded_bias), strict=True):
        _layouts.convert(result, values)
    return results
