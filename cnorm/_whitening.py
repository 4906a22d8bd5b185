"""What whitening and its gradients share: arrays as kernels take them, statistics, and powers of two.

Where the spread of a group is so large or small that products of it could leave the range of its dtype, the
group is scaled by a power of two first, a copy; everything but its statistics' last step then happens in
units of that power.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts

Array = NDArray[Any]
DType = np.dtype[Any]

#: Spreads between 2**-k and 2**k need no scaling: the gradients take their sixth power. Only products of two
#: differences are computed in float32, and leave room for what is smaller than the largest.
SAFE_EXPONENT = {np.dtype(np.float32): 40, np.dtype(np.float64): 150}
ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
MOST_ITERATIONS = 100


class WhitenFactors(NamedTuple):
    """What `cnorm.whiten` multiplied by, and what `cnorm.whiten_backward` needs to go back through it.

    All arrays are float64. They are in units of the group: for data of ordinary size the unit is 1, and
    `exponents` are 0.

    Attributes
    ----------
    method : str
        The method.
    n_iterations : int
        Newton-Schulz iterations, for "newton".
    training : bool
        Whether the statistics are those of the batch, and so depend on it.
    matrix : array, shape (groups, d, d)
        The whitening matrix of each group of d channels.
    values, vectors : array, shape (groups, d) and (groups, d, d), or None
        For "zca" and "pca": eigenvalues of cov + eps I, descending, and eigenvectors, in columns.
    covariance : array, shape (groups, d, d), or None
        For "newton": cov + eps I.
    exponents : array of int64, shape (groups,)
        Base-2 exponents of the units: `matrix` belongs to ``x * 2**-exponent``.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[1.0, 0], [-1, 0], [0, 2], [0, -2]])
    >>> y, mean, factors = cnorm.whiten(x, eps=0, return_stats=True)
    >>> factors.values
    array([[2. , 0.5]])
    >>> np.allclose(factors.matrix @ (x - mean).T, y.T)
    True
    """

    method: str
    n_iterations: int
    training: bool
    matrix: Array
    values: Array | None
    vectors: Array | None
    covariance: Array | None
    exponents: NDArray[np.int64]


class Batch:
    """An array as (batch, channels, spatial) or (batch, spatial, channels) for the kernels.

    Parameters
    ----------
    x : array
        Of any layout; a copy is made if it is not ready.
    form : ChannelForm
        How it is seen.
    dtype : dtype
        The one computed in.
    """

    def __init__(self, x: Array, form: _layouts.ChannelForm, dtype: DType) -> None:
        view = form.view(x)
        self.last = form.channels_last
        self.shape = form.shape(view)
        if not _layouts.is_ready(view, dtype):
            copy = np.empty(view.shape, dtype)
            _layouts.convert(copy, view)
            view = copy
        self.data = view.reshape(self.shape)

    def scale(self, exponents: NDArray[np.int64]) -> None:
        """Multiply each group by ``2**exponent``, in a copy."""
        if np.count_nonzero(exponents):
            self.data = np.ldexp(self.data, self.by_channel(exponents))

    def by_channel(self, values: Array) -> Array:
        """Values of groups as they broadcast against the array."""
        channels = np.repeat(values, self._channels // max(1, len(values)))
        return channels if self.last else channels[:, np.newaxis]

    def largest(self, groups: int) -> Array:
        """Largest magnitude in each group."""
        moved = np.moveaxis(self.data, -1, 1) if self.last else self.data
        grouped = moved.reshape(moved.shape[0], groups, -1)
        return np.abs(grouped).max(axis=(0, 2), initial=0).astype(np.float64)

    @property
    def _channels(self) -> int:
        return self.shape[2 if self.last else 1]

    def covariance(self, groups: int, other: Batch | None = None) -> tuple[Array, Array, Array]:
        """Return mean (2 or 4, channels), peak (1 or 2, channels) and covariance (groups, d, d)."""
        channels, d, count = self._channels, self._channels // groups, 1 if other is None else 2
        mean, peak = np.zeros((2 * count, channels)), np.zeros((count, channels))
        covariance = np.zeros((groups, d, d))
        if self.data.size:
            second = None if other is None else other.data
            _backend.active.whiten_covariance(self.data, second, self.last, mean, peak, covariance)
        return mean, peak, covariance


def iterations(value: Any) -> int:
    """Check a number of Newton-Schulz iterations."""
    count = _arguments.integer("n_iterations", value)
    if not 1 <= count <= MOST_ITERATIONS:
        raise ValueError(f"n_iterations: expected 1 to {MOST_ITERATIONS}, got {count}")
    return count


def exponents_of(spread: Array, eps: float, dtype: DType) -> NDArray[np.int64]:
    """Exponents that bring the larger of `spread` and sqrt(eps) near 1; 0 where it is safe or not finite."""
    size = np.maximum(spread, np.sqrt(eps))
    unsafe = np.isfinite(size) & (size > 0) & (np.abs(np.frexp(size)[1]) > SAFE_EXPONENT[dtype])
    return np.where(unsafe, np.frexp(size)[1], 0).astype(np.int64)


def is_ordinary(mean: Array, peak: Array, eps: float, dtype: DType) -> bool:
    """Tell at little cost that everything is finite and no group needs scaling, as is the rule."""
    if not peak.size or not math.isfinite(np.vdot(mean, mean)):
        return False
    bound = 2.0 ** (SAFE_EXPONENT[dtype] - 1)
    peaks, least = peak.ravel().tolist(), math.sqrt(eps)
    return max(min(peaks), least) >= 1 / bound and max(*peaks, least) < bound


def group_spread(batch: Batch, peak: Array, finite: Array) -> Array:
    """Spread of each group from that of its channels; where sums have overflowed, its largest magnitude."""
    spread: Array = peak.reshape(len(finite), -1).max(axis=1, initial=0)
    return spread if finite.all() else np.where(finite, spread, batch.largest(len(finite)))


def all_finite(groups: int, *statistics: Array) -> Array:
    """Tell which groups have only finite statistics; each has the channels, by group, as its last axis."""
    parts = [np.isfinite(s).reshape(*s.shape[:-1], groups, -1).all(axis=-1) for s in statistics]
    finite: Array = np.logical_and.reduce([part.reshape(-1, groups).all(axis=0) for part in parts])
    return finite


class Term(NamedTuple):
    """``matrix (batch - mean)``; the mean in two words."""

    batch: Batch
    mean: Array
    matrix: Array
    exponents: NDArray[np.int64]


def apply(target: Array, form: _layouts.ChannelForm, dtype: DType, first: Term, second: Term | None) -> None:
    """Write a sum of one or two linear maps to `target`, in units of ``2**exponent``."""
    view = form.view(target)
    ready = _layouts.is_ready(view, dtype)
    y = view.reshape(first.batch.shape) if ready else np.empty(first.batch.shape, dtype)
    x, other = first.batch, None if second is None else second.batch.data
    mean, matrix = (None, None) if second is None else (second.mean, second.matrix)
    _backend.active.whiten_apply(x.data, first.mean, first.matrix, other, mean, matrix, x.last, y)
    if np.count_nonzero(first.exponents):
        np.ldexp(y, x.by_channel(first.exponents), out=y)
    if not ready:
        _layouts.convert(view, y.reshape(view.shape))
