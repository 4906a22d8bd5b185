"""Gradient of whitening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts, _whitening, _whitening_matrices
from cnorm._gradients import WhitenGradients
from cnorm._whitening import Batch, Term, WhitenFactors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


def whiten_backward(
    dy: ArrayLike, x: ArrayLike, factors: WhitenFactors, *, axis: int = 1, out: Array | None = None
) -> WhitenGradients:
    """Gradient of `whiten` with respect to its input, for every method.

    With averages over all positions, and `S` the symmetric gradient of the loss with respect to the
    covariance, which the gradient to the whitening matrix, ``n average(dy (x - mean)^T)``, gives::

        dx = W^T (dy - average(dy)) + 2/n S (x - mean)        in training
        dx = W^T dy                                           with running statistics

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was whitened, in any memory layout and byte order.
    factors : WhitenFactors
        As `whiten` returned them with ``return_stats=True``: they know the method, the groups, and whether
        the statistics were those of `x`.
    axis : int
        The channel axis. The batch axis is the first of the others.
    out : array, optional
        Where to write the gradient: of the shape and dtype of `x`, and either `dy` itself or memory of its
        own.

    Returns
    -------
    WhitenGradients
        Named tuple ``(x,)``. ``x`` has the shape, dtype and memory order of the argument `x`; it is `out` if
        that was given. A group with a non-finite value, in training, gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `factors` are none, `axis` is no integer, or
        `out` has another dtype than `x`.
    ValueError
        If `dy` has another shape, `factors` are those of another number of channels, `axis` is not an axis
        of `x`, or `out` is read-only, has another shape, or overlaps an input other than `dy` itself.

    Notes
    -----
    "zca", "cholesky" and "newton" are differentiable wherever cov + eps I has an inverse, equal eigenvalues
    or not. "pca" is not: the eigenvectors of equal eigenvalues can turn freely. Turns within a pair of
    eigenvalues that differ by less than d times 2**-24 (float64: 2**-53) of the largest count as none here;
    beyond that the gradient grows like one over the difference.

    Directions that `whiten` maps to 0, with ``eps=0``, have no gradient.

    References
    ----------
    As for `whiten`. C. Ionescu, O. Vantzos, C. Sminchisescu, "Matrix Backpropagation for Deep Networks with
    Structured Layers", 2015, has the eigendecomposition; I. Murray, "Differentiation of the Cholesky
    decomposition", 2016, arXiv:1602.07527, that.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2], [2, 1], [3, 5], [4, 4]], np.float32)
    >>> y, mean, factors = cnorm.whiten(x, return_stats=True)
    >>> dy = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.float32)
    >>> cnorm.whiten_backward(dy, x, factors).x.round(3)
    array([[ 0.232, -0.124],
           [ 0.024, -0.068],
           [-0.424, -0.132],
           [ 0.168,  0.324]], dtype=float32)
    """
    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    axis = _arguments.channel_axis(x, axis, first=0)
    _check_factors(factors, x.shape[axis])
    dx = _arguments.only_gradient(out, dy, x)
    if x.size:
        form = _layouts.channel_form(x, axis, pooled=True)
        terms = (_training_terms if factors.training else _frozen_terms)(dy, x, factors, form, dtype)
        _whitening.apply(dx, form, dtype, *terms)
    return WhitenGradients(dx if out is None else out)


def _check_factors(factors: object, channels: int) -> None:
    if not isinstance(factors, WhitenFactors):
        raise TypeError(f"factors: expected WhitenFactors as from whiten, got {type(factors).__name__}")
    groups, d, _ = factors.matrix.shape
    if groups * d != channels:
        raise ValueError(
            f"factors: expected those of {channels} channels, got matrix of shape {factors.matrix.shape}"
        )


def _frozen_terms(
    dy: Array, x: Array, factors: WhitenFactors, form: _layouts.ChannelForm, dtype: np.dtype[Any]
) -> tuple[Term, None]:
    """``dx = W^T dy``: the statistics do not depend on x."""
    mean = np.zeros((2, factors.matrix.shape[0] * factors.matrix.shape[1]))
    return Term(Batch(dy, form, dtype), mean, _transposed(factors.matrix), -factors.exponents), None


@np.errstate(all="ignore")
def _training_terms(
    dy: Array, x: Array, factors: WhitenFactors, form: _layouts.ChannelForm, dtype: np.dtype[Any]
) -> tuple[Term, Term]:
    groups = len(factors.matrix)
    incoming, batch = Batch(dy, form, dtype), Batch(x, form, dtype)
    batch.scale(-factors.exponents)
    mean, peak, cross = incoming.covariance(groups, batch)
    exponents = np.zeros(groups, np.int64)
    finite = np.isfinite(cross).all(axis=(1, 2))
    if not (finite.all() and _whitening.is_ordinary(mean, peak[0], 0.0, dtype)):
        finite &= _whitening.all_finite(groups, mean, peak)
        exponents = _whitening.exponents_of(_whitening.group_spread(incoming, peak[0], finite), 0.0, dtype)
        if exponents.any():
            incoming.scale(-exponents)
            mean, peak, cross = incoming.covariance(groups, batch)
    dcovariance = _whitening_matrices.gradient(
        cross,
        _whitening_matrices.Factors(factors.matrix, factors.values, factors.vectors, factors.covariance),
        factors.method,
        factors.n_iterations,
        _whitening.ROUNDOFF[dtype],
    )
    shift = exponents - factors.exponents
    first = Term(incoming, mean[:2], _transposed(factors.matrix), shift)
    return first, Term(batch, mean[2:], 2 * dcovariance, shift)


def _transposed(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.transpose(0, 2, 1))
