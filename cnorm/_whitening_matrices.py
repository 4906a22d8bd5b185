"""Whitening matrices W of covariances, W (cov + eps I) W^T = I, and gradients through them.

Stacks of (groups, d, d) in float64, by LAPACK through NumPy. The derivations are in docs/whitening.md. A
direction whose variance and eps are both 0 is mapped to 0 in place of infinity: it has no part in W, nor in
the gradient. With ``eps = 0`` that is where the variance is at most `d * roundoff` of the largest: such
directions are made of rounding errors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cnorm._blas import on_one_thread

Array = NDArray[Any]

METHODS = ("zca", "pca", "cholesky", "newton")


class Factors(NamedTuple):
    """W and what its gradient needs besides: for "zca" and "pca" the spectrum, for "newton" cov + eps I."""

    matrix: Array
    values: Array | None = None
    vectors: Array | None = None
    covariance: Array | None = None


@on_one_thread
def factorise(covariance: Array, eps: Array, method: str, n_iterations: int, roundoff: float) -> Factors:
    """Return W for each group; `eps` is (groups,). A group that is not finite gives NaN."""
    d = covariance.shape[-1]
    finite, known = None, covariance
    if not math.isfinite(np.vdot(covariance, covariance)):
        finite = np.asarray(np.isfinite(covariance).all(axis=(1, 2)))
        known = np.where(finite[:, np.newaxis, np.newaxis], covariance, 0.0)
    if method in ("zca", "pca"):
        values, vectors = _spectrum(known, eps, d * roundoff)
        if method == "zca":
            matrix = _symmetric_root(values, vectors, known)
        else:
            vectors = vectors * _signs(vectors)
            matrix = np.ascontiguousarray(_inverse_root(values)[:, :, np.newaxis] * _transposed(vectors))
        factors = Factors(matrix, values, vectors)
    else:
        shifted = known + eps[:, np.newaxis, np.newaxis] * np.eye(d)
        with np.errstate(all="ignore"):
            if method == "cholesky":
                pairs = zip(shifted, eps, strict=True)
                inverses = [_inverse_cholesky(sigma, float(e), d * roundoff) for sigma, e in pairs]
                factors = Factors(np.reshape(inverses, covariance.shape))
            else:
                factors = Factors(_newton(shifted, n_iterations)[0], covariance=shifted)
    if finite is not None:
        factors.matrix[~finite] = np.nan
    return factors


@on_one_thread
@np.errstate(all="ignore")
def gradient(dmatrix: Array, factors: Factors, method: str, n_iterations: int, roundoff: float) -> Array:
    """Return the symmetric gradient with respect to the covariance, of which `dmatrix` is that to W."""
    if method == "cholesky":
        result = _cholesky_gradient(dmatrix, factors.matrix)
    elif method == "newton":
        assert factors.covariance is not None
        result = _newton_gradient(dmatrix, factors.covariance, n_iterations)
    else:
        assert factors.values is not None
        assert factors.vectors is not None
        in_basis = _zca_gradient if method == "zca" else _pca_gradient
        vectors, turned = factors.vectors, _transposed(factors.vectors)
        inner = in_basis(dmatrix @ vectors, vectors, factors.values, roundoff)
        result = vectors @ inner @ turned
    result = np.ascontiguousarray(result + _transposed(result)) / 2
    result[~np.isfinite(factors.matrix).all(axis=(1, 2))] = np.nan
    return result


def _transposed(stack: Array) -> Array:
    return stack.transpose(0, 2, 1)


# Spectrum: ZCA and PCA --------------------------------------------------------------------------------------


def _spectrum(covariance: Array, eps: Array, cut: float) -> tuple[Array, Array]:
    """Eigenvalues of cov + eps I, descending, and vectors.

    eps is added to the eigenvalues, those below 0 by rounding taken as 0: none is less than eps.
    """
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = np.maximum(values[:, ::-1], 0) + eps[:, np.newaxis], vectors[:, :, ::-1]
    if 0 in eps.tolist():
        lost = (eps[:, np.newaxis] == 0) & (values <= cut * values[:, :1])
        values = np.where(lost, 0.0, values)
    return values, vectors


def _signs(vectors: Array) -> Array:
    """Signs (groups, 1, d) with which the largest component of each vector is positive."""
    if not vectors.size:
        return vectors[:, :1]
    largest = np.abs(vectors).argmax(axis=1)[:, np.newaxis, :]
    return np.copysign(1.0, np.take_along_axis(vectors, largest, axis=1))


def _inverse_root(values: Array) -> Array:
    """``1 / sqrt(values)``, and 0 for 0."""
    if np.count_nonzero(values) == values.size:
        roots: Array = 1 / np.sqrt(values)
        return roots
    positive = values > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, values, 1.0)), 0.0)


def _symmetric_root(values: Array, vectors: Array, covariance: Array) -> Array:
    """``U L^-1/2 U^T``, in which a constant channel has exactly no part in the others."""
    half = vectors * np.sqrt(_inverse_root(values))[:, np.newaxis, :]
    product: Array = half @ _transposed(half)
    variances = covariance.diagonal(axis1=1, axis2=2)
    if np.count_nonzero(variances) < variances.size:
        constant = variances == 0
        alone = constant[:, :, np.newaxis] | constant[:, np.newaxis, :]
        product = np.where(alone & ~np.eye(covariance.shape[1], dtype=bool), 0.0, product)
    return product


def _zca_gradient(product: Array, vectors: Array, values: Array, _: float) -> Array:
    """In the basis of the eigenvectors: times the divided differences of 1/sqrt, which need no difference."""
    r = _inverse_root(values)
    a, b = r[:, :, np.newaxis], r[:, np.newaxis, :]
    differences = np.where((a > 0) & (b > 0), -((a * b) ** 2) / (a + b), 0.0)
    inner: Array = _transposed(vectors) @ product
    return differences * inner


def _pca_gradient(product: Array, _: Array, values: Array, roundoff: float) -> Array:
    """In the basis of the eigenvectors. Turns within a (nearly) equal pair of eigenvalues count as none."""
    r = _inverse_root(values)
    gaps = values[:, :, np.newaxis] - values[:, np.newaxis, :]
    apart = np.abs(gaps) > values.shape[1] * roundoff * values[:, :1, np.newaxis]
    inner = np.where(apart, r[:, :, np.newaxis] * product / np.where(apart, gaps, 1.0), 0.0)
    i = np.arange(values.shape[1])
    inner[:, i, i] = -(r**3) * product[:, i, i] / 2
    return inner


# Cholesky ---------------------------------------------------------------------------------------------------


def _inverse_cholesky(sigma: Array, eps: float, cut: float) -> Array:
    """Inverse of the lower factor. With ``eps = 0``, rows of channels that others determine are 0."""
    try:
        lower = np.linalg.cholesky(sigma)
    except np.linalg.LinAlgError:
        lower = np.zeros_like(sigma)
    if (np.diag(lower) ** 2 <= cut * np.diag(sigma)).any():
        lower = _careful_cholesky(sigma, eps, cut)
    dependent = np.diag(lower) == 0
    lower[dependent, dependent] = 1
    inverse: Array = np.tril(np.linalg.inv(lower))
    inverse[dependent] = 0
    return inverse


def _careful_cholesky(sigma: Array, eps: float, cut: float) -> Array:
    """Lower factor of what is positive semidefinite but for rounding.

    Where the channels before leave nothing of a channel's variance but rounding errors, it has eps left, and
    nothing in common with the channels behind it.
    """
    rest, lower = sigma.copy(), np.zeros_like(sigma)
    for i in range(len(sigma)):
        if rest[i, i] > cut * sigma[i, i]:
            lower[i:, i] = rest[i:, i] / np.sqrt(rest[i, i])
            rest[i:, i:] -= np.outer(lower[i:, i], lower[i:, i])
        else:
            lower[i, i] = np.sqrt(eps)
    return lower


def _cholesky_gradient(dmatrix: Array, matrix: Array) -> Array:
    """``W^T Phi(-dW W^T) W`` with Phi the lower triangle with half its diagonal."""
    inner = np.tril(-dmatrix @ _transposed(matrix))
    i = np.arange(matrix.shape[1])
    inner[:, i, i] /= 2
    result: Array = _transposed(matrix) @ inner @ matrix
    return result


# Newton-Schulz ----------------------------------------------------------------------------------------------


def _newton(sigma: Array, n_iterations: int) -> tuple[Array, list[tuple[Array, Array]]]:
    """W, and what each iteration began with.

    The coupled form, Y -> Y T and Z -> T Z with T = (3 - Z Y) / 2, has the same Z as IterNorm's
    P -> (3 P - P^3 N) / 2, but its rounding errors do not grow.
    """
    trace = np.trace(sigma, axis1=1, axis2=2)[:, np.newaxis, np.newaxis]
    identity = np.eye(sigma.shape[1])
    y, z = np.where(trace > 0, sigma / trace, 0.0), np.broadcast_to(identity, sigma.shape)
    steps = []
    for _ in range(n_iterations):
        steps.append((y, z))
        t = (3 * identity - z @ y) / 2
        y, z = y @ t, t @ z
    steps.append((y, z))
    return np.where(trace > 0, z / np.sqrt(trace), 0.0), steps


def _newton_gradient(dmatrix: Array, sigma: Array, n_iterations: int) -> Array:
    """Back through the iterations, the trace, and the division by it."""
    _, steps = _newton(sigma, n_iterations)
    trace = np.trace(sigma, axis1=1, axis2=2)[:, np.newaxis, np.newaxis]
    safe = np.where(trace > 0, trace, 1.0)
    identity = np.eye(sigma.shape[1])
    dy, dz = np.zeros_like(sigma), dmatrix / np.sqrt(safe)
    for y, z in reversed(steps[:-1]):
        t = (3 * identity - z @ y) / 2
        dt = _transposed(y) @ dy + dz @ _transposed(z)
        dy, dz = (
            dy @ _transposed(t) - _transposed(z) @ dt / 2,
            _transposed(t) @ dz - dt @ _transposed(y) / 2,
        )
    dtrace = -_inner(dmatrix, steps[-1][1]) / (2 * safe**1.5) - _inner(dy, sigma) / safe**2
    return np.where(trace > 0, dy / safe + dtrace * identity, 0.0)


def _inner(a: Array, b: Array) -> Array:
    return (a * b).sum(axis=(1, 2), keepdims=True)
