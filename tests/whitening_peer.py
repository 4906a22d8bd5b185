"""Whitening as users of PyTorch write it, in float64, for automatic gradients."""

from __future__ import annotations

from typing import Any

from peer import torch


def matrix(covariance: Any, method: str, eps: float, n_iterations: int = 5) -> Any:
    """The whitening matrix of (d, d)."""
    t = torch()
    identity = t.eye(len(covariance), dtype=covariance.dtype)
    sigma = covariance + eps * identity
    if method == "cholesky":
        return t.linalg.inv(t.linalg.cholesky(sigma))
    if method == "newton":
        trace, p = t.trace(sigma), identity
        for _ in range(n_iterations):
            p = (3 * p - p @ p @ p @ (sigma / trace)) / 2
        return p / trace.sqrt()
    values, vectors = t.linalg.eigh(sigma)
    values, vectors = values.flip(0), vectors.flip(1)
    largest = t.take_along_dim(vectors, vectors.abs().argmax(0, keepdim=True), 0)
    vectors = vectors * largest.sign().detach()
    rows = values.rsqrt()[:, None] * vectors.T
    return vectors @ rows if method == "zca" else rows


def statistics(x: Any, groups: int, axis: int) -> tuple[Any, Any]:
    """Mean (channels,) and covariance (groups, d, d)."""
    columns = x.movedim(axis, 0).flatten(1)
    mean = columns.mean(1)
    centred = (columns - mean[:, None]).unflatten(0, (groups, -1))
    return mean, centred @ centred.transpose(1, 2) / centred.shape[2]


def apply(x: Any, mean: Any, matrices: list[Any], axis: int) -> Any:
    """``W (x - mean)`` by groups."""
    moved = x.movedim(axis, 0)
    centred = (moved.flatten(1) - mean[:, None]).unflatten(0, (len(matrices), -1))
    y = torch().stack([w @ c for w, c in zip(matrices, centred, strict=True)])
    return y.flatten(0, 1).reshape(moved.shape).movedim(0, axis)


def whiten(x: Any, method: str, eps: float, groups: int = 1, axis: int = 1) -> Any:
    """Whiten by the batch's statistics."""
    mean, covariance = statistics(x, groups, axis)
    return apply(x, mean, [matrix(c, method, eps) for c in covariance], axis)
