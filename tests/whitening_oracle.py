"""Whitening in extended precision, on (channels, columns) of one group, by other algorithms than cnorm's.

Eigenvalues by Jacobi's rotations, the Cholesky factor and its inverse element by element, IterNorm's
iteration as published. Gradients: the formulas of docs/whitening.md, compared in test_whiten_backward.py with
PyTorch's automatic ones and with finite differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Long = np.longdouble

METHODS = ("zca", "pca", "cholesky", "newton")
SWEEPS = 30  # at most; each squares what is left beside the diagonal


@dataclass(frozen=True)
class Exact:
    """y (d, columns), and what it was made of; `condition` is that of cov + eps I."""

    y: Array
    centred: Array
    covariance: Array
    matrix: Array
    values: Array
    vectors: Array
    condition: float


def by_group(x: Array, groups: int, axis: int) -> Array:
    """View an array as (groups, d, columns)."""
    moved = np.moveaxis(x, axis, 0)
    return moved.reshape(groups, moved.shape[0] // groups, -1)


def jacobi(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, descending, and eigenvectors (columns) whose largest component is positive."""
    a, vectors = matrix.astype(Long), np.eye(len(matrix), dtype=Long)
    for _ in range(SWEEPS):
        before = a
        for p in range(len(a)):
            for q in range(p + 1, len(a)):
                if np.abs(a[p, q]) <= 1e-30 * np.sqrt(np.abs(a[p, p] * a[q, q])):
                    continue
                theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
                t = (1 if theta >= 0 else -1) / (np.abs(theta) + np.hypot(theta, Long(1)))
                c = 1 / np.hypot(t, Long(1))
                turn = np.eye(len(a), dtype=Long)
                turn[p, p] = turn[q, q] = c
                turn[p, q], turn[q, p] = t * c, -t * c
                a, vectors = turn.T @ a @ turn, vectors @ turn
                a[p, q] = a[q, p] = 0
        if a is before:
            break
    order = np.argsort(-np.diag(a), kind="stable")
    values, vectors = np.diag(a)[order], vectors[:, order]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(len(a))])


def inverse_cholesky(sigma: Array) -> Array:
    """Inverse of the lower factor."""
    n = len(sigma)
    lower, inverse = np.zeros((n, n), Long), np.zeros((n, n), Long)
    for i in range(n):
        for j in range(i + 1):
            rest = sigma[i, j] - (lower[i, :j] * lower[j, :j]).sum()
            lower[i, j] = np.sqrt(rest) if i == j else rest / lower[j, j]
    for i in range(n):
        unit = np.where(np.arange(n) == i, Long(1), Long(0))
        inverse[i] = (unit - lower[i, :i] @ inverse[:i]) / lower[i, i]
    return inverse


def newton(sigma: Array, n_iterations: int) -> list[Array]:
    """IterNorm's iterates P, the first being I, for sigma over its trace."""
    normal, steps = sigma / np.trace(sigma), [np.eye(len(sigma), dtype=Long)]
    for _ in range(n_iterations):
        p = steps[-1]
        steps.append((3 * p - p @ p @ p @ normal) / 2)
    return steps


def whiten(x: Array, eps: float, method: str, n_iterations: int = 5) -> Exact:
    """Whiten (channels, columns)."""
    d = x.astype(Long)
    d -= d.mean(axis=1, keepdims=True)
    d -= d.mean(axis=1, keepdims=True)
    covariance = d @ d.T / d.shape[1]
    sigma = covariance + Long(eps) * np.eye(len(d))
    values, vectors = jacobi(sigma)
    rows = vectors.T / np.sqrt(values)[:, np.newaxis]
    if method == "cholesky":
        matrix = inverse_cholesky(sigma)
    elif method == "newton":
        matrix = newton(sigma, n_iterations)[-1] / np.sqrt(np.trace(sigma))
    else:
        matrix = vectors @ rows if method == "zca" else rows
    return Exact(matrix @ d, d, covariance, matrix, values, vectors, float(values[0] / values[-1]))


def _inner_gradient(dmatrix: Array, exact: Exact, method: str) -> Array:
    """Gradient to the covariance in the eigenvectors' basis, not yet symmetric."""
    r = 1 / np.sqrt(exact.values)
    product = dmatrix @ exact.vectors
    if method == "zca":
        return -np.outer(r, r) / np.add.outer(1 / r, 1 / r) * (exact.vectors.T @ product)
    gaps = np.subtract.outer(exact.values, exact.values)
    np.fill_diagonal(gaps, 1)
    inner = r[:, np.newaxis] * product / gaps
    np.fill_diagonal(inner, -(r**3) * np.diag(product) / 2)
    return inner


def _newton_gradient(dmatrix: Array, sigma: Array, n_iterations: int) -> Array:
    trace, steps = np.trace(sigma), newton(sigma, n_iterations)
    normal, dp, dnormal = sigma / trace, dmatrix / np.sqrt(trace), np.zeros_like(sigma)
    for p in reversed(steps[:-1]):
        square = p @ p
        dnormal -= (square @ p).T @ dp / 2
        dp = 1.5 * dp - (dp @ (square @ normal).T + p.T @ dp @ (p @ normal).T + square.T @ dp @ normal.T) / 2
    dtrace = -(dmatrix * steps[-1]).sum() / (2 * trace**1.5) - (dnormal * sigma).sum() / trace**2
    return dnormal / trace + dtrace * np.eye(len(sigma))


def whiten_backward(dy: Array, x: Array, eps: float, method: str, n_iterations: int = 5) -> Array:
    """Gradient (channels, columns) in extended precision."""
    exact = whiten(x, eps, method, n_iterations)
    incoming = dy.astype(Long)
    incoming -= incoming.mean(axis=1, keepdims=True)
    dmatrix = incoming @ exact.centred.T
    if method == "cholesky":
        inner = np.tril(-dmatrix @ exact.matrix.T)
        np.fill_diagonal(inner, np.diag(inner) / 2)
        gradient = exact.matrix.T @ inner @ exact.matrix
    elif method == "newton":
        sigma = exact.covariance + Long(eps) * np.eye(len(x))
        gradient = _newton_gradient(dmatrix, sigma, n_iterations)
    else:
        gradient = exact.vectors @ _inner_gradient(dmatrix, exact, method) @ exact.vectors.T
    return exact.matrix.T @ incoming + (gradient + gradient.T) @ exact.centred / x.shape[1]
