"""Whitening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _layouts, _whitening, _whitening_matrices
from cnorm._whitening import Batch, Term, WhitenFactors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[Any]


@overload
def whiten(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_cov: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    method: str = "zca",
    groups: int = 1,
    axis: int = 1,
    n_iterations: int = 5,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def whiten(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_cov: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    method: str = "zca",
    groups: int = 1,
    axis: int = 1,
    n_iterations: int = 5,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, WhitenFactors]: ...
def whiten(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_cov: ArrayLike | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    method: str = "zca",
    groups: int = 1,
    axis: int = 1,
    n_iterations: int = 5,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, WhitenFactors]:
    """Make the channels of each group uncorrelated, with mean 0 and variance 1.

    With the mean and the covariance (divided by n) over all axes but the channels', of the batch in training,
    else the running ones::

        y = W (x - mean)        W (cov + eps I) W^T = I

    at every position. The methods differ in W, with eigenvalues L and eigenvectors U of cov + eps I:

    - "zca": ``U L^-1/2 U^T``, the y nearest to x; symmetric;
    - "pca": ``L^-1/2 U^T``, by descending eigenvalue; of each eigenvector the component of largest magnitude,
      the first of several, is positive;
    - "cholesky": the inverse of the lower Cholesky factor; channel i of y depends on those of x up to i;
    - "newton": `n_iterations` Newton-Schulz iterations towards "zca", from the covariance over its trace.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        In any memory layout and byte order; channels may be another axis, see `axis`.
    running_mean : array of any floating dtype, shape (channels,), optional
    running_cov : array of any floating dtype, shape (groups, channels / groups, channels / groups), optional
        Both or neither; for one group also of shape (channels, channels). In training they are updated in
        place::

            running = (1 - momentum) * running + momentum * new

        where new is the mean of the batch, or its covariance. They have to be writeable NumPy arrays with
        memory of their own then. Without `training` they are needed, and left alone.
    training : bool
        Whether to whiten by the statistics of `x`; else by the running ones.
    momentum : float
        Weight of the new value in the running statistics: 0 leaves them, 1 replaces them.
    eps : float
        At least 0. Added to the variances. With 0, directions whose variance is below the rounding errors of
        the largest one of the group, d times 2**-24 of it (float64: 2**-53), have y = 0.
    method : {"zca", "pca", "cholesky", "newton"}
        See above.
    groups : int
        Number of groups of neighbouring channels, each whitened by itself; divides the channels.
    axis : int
        The channel axis. The batch axis is the first of the others.
    n_iterations : int
        Iterations of "newton", 1 to 100.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return the mean and what `whiten_backward` needs too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. In training, a group with a
        non-finite value gives NaN throughout, and one of constant channels 0.
    mean : array, shape (channels,)
        Only with `return_stats`: the mean that was subtracted, in the dtype computed in, float64 for float64
        and else float32; 0 for an empty batch in training.
    factors : WhitenFactors
        Only with `return_stats`: the whitening matrices and what their gradients need.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, or `out` has another dtype than `x`.
    ValueError
        If a running statistic has another shape, is missing or cannot be updated, `groups` does not divide
        the channels, `method` is unknown, `n_iterations` or `axis` is out of range, `eps` is negative or not
        finite, `momentum` is not finite, or `out` is read-only, has another shape, or overlaps an input in
        part. No running statistic has changed then.

    Notes
    -----
    Mean and covariance have the same bits for any number of threads and instruction set. The matrix W comes
    from NumPy's LAPACK, in float64, and has the bits that this gives; y has the same bits wherever W has.

    Batches of fewer values than channels, and equal channels, have a covariance without an inverse: `eps`, or
    what it says above for 0, keeps everything finite.

    References
    ----------
    L. Huang, D. Yang, B. Lang, J. Deng, "Decorrelated Batch Normalization", 2018, arXiv:1804.08450.
    L. Huang, Y. Zhou, F. Zhu, L. Liu, L. Shao, "Iterative Normalization: Beyond Standardization towards
    Efficient Whitening", 2019, arXiv:1904.03441.
    A. Kessy, A. Lewin, K. Strimmer, "Optimal Whitening and Decorrelation", 2018, arXiv:1512.00809.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1, 2], [2, 1], [3, 5], [4, 4]], np.float32)
    >>> y = cnorm.whiten(x, eps=0)
    >>> y.round(3)
    array([[-1.4, -0.2],
           [ 0.2, -1.4],
           [-0.2,  1.4],
           [ 1.4,  0.2]], dtype=float32)
    >>> bool(np.abs(np.cov(y.T, bias=True) - np.eye(2)).max() < 1e-6)
    True
    >>> cnorm.whiten(x, eps=0, method="cholesky").round(3)
    array([[-1.342,  0.447],
           [-0.447, -1.342],
           [ 0.447,  1.342],
           [ 1.342, -0.447]], dtype=float32)
    """
    x, dtype = _arguments.floating("x", x)
    axis = _arguments.channel_axis(x, axis, first=0)
    count = _arguments.groups(groups, x.shape[axis], "groups")
    eps = _arguments.epsilon(eps)
    momentum = _arguments.number("momentum", momentum)
    method = _arguments.choice("method", method, _whitening_matrices.METHODS)
    n_iterations = _whitening.iterations(n_iterations)
    running = _running(x, axis, count, running_mean, running_cov, bool(training))
    y = _arguments.output(out, x, running_mean=running_mean, running_cov=running_cov)

    form = _layouts.channel_form(x, axis, pooled=True)
    batch = Batch(x, form, dtype)
    if training or running is None:
        mean, covariance, exponents = _batch_statistics(batch, count, eps, dtype)
        if running is not None and x.size and momentum:
            _update(running, mean, covariance, exponents, momentum)
    else:
        mean, covariance, exponents = _running_statistics(batch, running, count, eps, dtype)
    found = _whitening_matrices.factorise(
        covariance, np.ldexp(eps, -2 * exponents), method, n_iterations, _whitening.ROUNDOFF[dtype]
    )
    factors = WhitenFactors(method, n_iterations, bool(training), *found, exponents)
    if x.size:
        term = Term(batch, mean, factors.matrix, np.zeros(count, np.int64))
        _whitening.apply(y, form, dtype, term, None)
    y = y if out is None else out
    return (y, _unscaled_mean(mean, exponents).astype(dtype), factors) if return_stats else y


def _running(
    x: Array, axis: int, groups: int, running_mean: object, running_cov: object, training: bool
) -> tuple[Array, Array] | None:
    """Check the running statistics; the covariance of a single group may go without the axis of groups."""
    channels, d = x.shape[axis], x.shape[axis] // groups
    shape: tuple[int, ...] = (groups, d, d)
    if groups == 1 and running_cov is not None and _arguments.array("running_cov", running_cov).ndim == 2:
        shape = (d, d)
    pair = {"running_mean": running_mean, "running_cov": running_cov}
    return _arguments.running_pair(pair, ((channels,), shape), not training, training, {"x": x})


def _batch_statistics(
    batch: Batch, groups: int, eps: float, dtype: np.dtype[Any]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Mean in two words, covariance, and the exponents of the units that both and `batch` are in then."""
    mean, peak, covariance = batch.covariance(groups)
    if _whitening.is_ordinary(mean, peak, eps, dtype):
        return mean, covariance, np.zeros(groups, np.int64)
    finite = _whitening.all_finite(groups, mean, peak) & np.isfinite(covariance).all(axis=(1, 2))
    spread = _whitening.group_spread(batch, peak, finite)
    exponents = _whitening.exponents_of(spread, eps, dtype)
    if exponents.any():
        batch.scale(-exponents)
        mean, peak, covariance = batch.covariance(groups)
        finite = _whitening.all_finite(groups, mean, peak)
    covariance[~finite] = np.nan
    return mean, covariance, exponents


def _running_statistics(
    batch: Batch, running: tuple[Array, Array], groups: int, eps: float, dtype: np.dtype[Any]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return the same from the running mean and covariance, as the dtype computed in holds them."""
    known_mean, known_covariance = (_layouts.compact(r, dtype).astype(np.float64) for r in running)
    d = known_mean.size // groups
    covariance = known_covariance.reshape(groups, d, d)
    covariance = covariance / 2 + covariance.transpose(0, 2, 1) / 2
    largest = np.diagonal(covariance, axis1=1, axis2=2).max(axis=1, initial=0)
    exponents = _whitening.exponents_of(np.sqrt(largest), eps, dtype)
    batch.scale(-exponents)
    mean = np.zeros((2, known_mean.size))
    mean[0] = np.ldexp(known_mean, -np.repeat(exponents, d))
    return mean, np.ldexp(covariance, -2 * exponents[:, np.newaxis, np.newaxis]), exponents


def _unscaled_mean(mean: Array, exponents: NDArray[np.int64]) -> Array:
    result: Array = np.ldexp(mean.sum(axis=0), np.repeat(exponents, mean.shape[1] // len(exponents)))
    return result


@np.errstate(all="ignore")
def _update(
    running: tuple[Array, Array],
    mean: Array,
    covariance: Array,
    exponents: NDArray[np.int64],
    momentum: float,
) -> None:
    new = (
        _unscaled_mean(mean, exponents),
        np.ldexp(covariance, 2 * exponents[:, np.newaxis, np.newaxis]),
    )
    for statistic, value in zip(running, new, strict=True):
        moved = value.reshape(statistic.shape)
        if momentum != 1:
            moved = (1 - momentum) * statistic.astype(np.float64) + momentum * moved
        _layouts.convert(statistic, moved)
