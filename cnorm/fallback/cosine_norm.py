"""Cosine norm after the matrix product, in NumPy."""

from __future__ import annotations

import numpy as np

from cnorm._numbers import Array


@np.errstate(all="ignore")
def cosine_norm(y: Array, x_norm: Array, weight_norm: Array, eps: float) -> None:
    """``y = y / max(x_norm * weight_norm, eps)``, within [-1, 1]; y (rows, cols) of products."""
    products = x_norm[:, np.newaxis].astype(np.float64) * weight_norm
    y[:] = np.clip(y / np.maximum(products, eps), -1, 1)
