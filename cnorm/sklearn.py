"""Whitening as a transformer of scikit-learn, which is imported here and nowhere else in cnorm.

It comes with ``pip install 'cnorm-kernels[sklearn]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cnorm import _arguments, _backend, _whitening, _whitening_matrices
from cnorm.ops.whiten import whiten

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike

Array = NDArray[Any]


class Whitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Make features uncorrelated, with mean 0 and variance 1.

    Parameters
    ----------
    method : {"zca", "pca", "cholesky", "newton"}
        How to whiten, see `cnorm.whiten`.
    eps : float
        At least 0. Added to the variances.
    n_iterations : int
        Iterations of "newton".

    Attributes
    ----------
    mean_ : array of float64, shape (n_features,)
        Mean of the samples seen so far.
    covariance_ : array of float64, shape (n_features, n_features)
        Their covariance, divided by their number.
    whitening_ : array of float64, shape (n_features, n_features)
        The matrix W of ``y = W (x - mean)``.
    dewhitening_ : array of float64, shape (n_features, n_features)
        Its (pseudo-)inverse.
    n_samples_seen_ : int
        How many samples there were.
    n_features_in_ : int
        How many features.

    See Also
    --------
    cnorm.whiten : The formulas, and what is done where the covariance has no inverse.

    Examples
    --------
    >>> import numpy as np
    >>> from cnorm.sklearn import Whitening
    >>> X = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 4.0]])
    >>> whitening = Whitening(eps=0).fit(X)
    >>> whitening.transform(X).round(3)
    array([[-1.4, -0.2],
           [ 0.2, -1.4],
           [-0.2,  1.4],
           [ 1.4,  0.2]])
    >>> whitening.inverse_transform(whitening.transform(X)).round(3)
    array([[1., 2.],
           [2., 1.],
           [3., 5.],
           [4., 4.]])
    """

    def __init__(self, method: str = "zca", *, eps: float = 1e-5, n_iterations: int = 5) -> None:
        self.method = method
        self.eps = eps
        self.n_iterations = n_iterations

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn mean and covariance of `X`, and the whitening matrix.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            The samples; integers are used as float64.
        y : None
            Ignored.

        Returns
        -------
        Whitening
            Itself.

        Raises
        ------
        ValueError
            If `X` is not such an array of finite numbers, or a parameter is out of its range.
        """
        self._learn(X, first=True)
        return self

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Go on learning: with the samples of all calls so far, as if they had been fitted together.

        Parameters and errors are those of `fit`.
        """
        self._learn(X, first=not hasattr(self, "n_samples_seen_"))
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Whiten samples.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            The samples.

        Returns
        -------
        array, shape (n_samples, n_features)
            ``(X - mean_) @ whitening_.T``, float32 for float32, else float64.
        """
        check_is_fitted(self)
        x = self._validated(X, reset=False)
        return _mapped(x, self.mean_, self.whitening_)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the samples that have this result; with a singular matrix, those nearest to the mean.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            What `transform` returned.

        Returns
        -------
        array, shape (n_samples, n_features)
            ``X @ dewhitening_.T + mean_``, float32 for float32, else float64.
        """
        check_is_fitted(self)
        x = self._validated(X, reset=False)
        return _mapped(x, np.zeros(len(self.mean_)), self.dewhitening_) + self.mean_.astype(x.dtype)

    def _validated(self, X: ArrayLike, reset: bool) -> Array:
        x: Array = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], order="C")
        return x

    def _learn(self, X: ArrayLike, first: bool) -> None:
        x = self._validated(X, reset=first)
        method = _arguments.choice("method", self.method, _whitening_matrices.METHODS)
        eps, n_iterations = _arguments.epsilon(self.eps), _whitening.iterations(self.n_iterations)
        mean, covariance = np.zeros(x.shape[1]), np.zeros((x.shape[1], x.shape[1]))
        whiten(x, mean, covariance, momentum=1.0)
        count = len(x)
        if not first:
            mean, covariance, count = self._merged(mean, covariance, count)
        self.mean_, self.covariance_, self.n_samples_seen_ = mean, covariance, count
        roundoff = _whitening.ROUNDOFF[x.dtype]
        factors = _whitening_matrices.factorise(
            covariance[np.newaxis], np.array([eps]), method, n_iterations, roundoff
        )
        self.whitening_ = factors.matrix[0]
        self.dewhitening_ = np.linalg.pinv(self.whitening_, rcond=1e-12)

    def _merged(self, mean: Array, covariance: Array, count: int) -> tuple[Array, Array, int]:
        """Chan, Golub and LeVeque's formula, for the samples so far and those of a batch."""
        total = self.n_samples_seen_ + count
        share, step = count / total, mean - self.mean_
        between = share * (1 - share) * np.outer(step, step)
        return (
            self.mean_ + share * step,
            (1 - share) * self.covariance_ + share * covariance + between,
            total,
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.whitening_)


def _mapped(x: Array, mean: Array, matrix: Array) -> Array:
    """``(x - mean) @ matrix.T`` by the kernels."""
    y = np.empty_like(x)
    words = np.stack([mean, np.zeros_like(mean)])
    shape = (1, *x.shape)
    _backend.active.whiten_apply(
        x.reshape(shape),
        words,
        np.ascontiguousarray(matrix)[np.newaxis],
        None,
        None,
        None,
        True,
        y.reshape(shape),
    )
    return y
