"""Other Cython code cimports the spectral norm's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
from consumer import build
from spectral_oracle import problem

pytestmark = pytest.mark.usefixtures("native")

MODULE = """
# cython: language_level=3, boundscheck=False
from cython cimport floating
from cnorm.native._cnorm cimport spectral_norm_backward_view, spectral_norm_view


def forward(const floating[:, :, ::1] weight, floating[::1] u, floating[::1] v, size_t iterations, double eps,
            floating[:, :, ::1] w):
    cdef double sigma = 0
    cdef int status
    with nogil:
        status = spectral_norm_view(weight, u, v, iterations, eps, w, &sigma)
    return status, sigma


def backward(const floating[:, :, ::1] dw, const floating[:, :, ::1] weight, const floating[::1] u,
             const floating[::1] v, double sigma, floating[:, :, ::1] dweight):
    cdef int status
    with nogil:
        status = spectral_norm_backward_view(dw, weight, u, v, sigma, dweight)
    return status
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build("spectral_consumer", MODULE, tmp_path_factory.mktemp("consumer"))


def test_both_ways_and_mistakes(consumer: Any) -> None:
    for dtype in (np.float32, np.float64):
        p = problem((4, 5, 6), 1, dtype)
        u, v = p.u.copy(), p.v.copy()
        wanted, sigma = cnorm.spectral_norm(p.weight, u, v, dim=1)
        w = np.full_like(p.weight, 7)
        assert consumer.forward(p.weight, p.u[:4], p.v, 1, 1e-12, w)[0] != 0
        assert consumer.forward(p.weight, p.u, p.v[:20], 1, 1e-12, w)[0] != 0
        assert consumer.forward(p.weight, p.u, p.v, 1, -1.0, w)[0] != 0
        assert consumer.forward(p.weight, p.u, p.v, 1, 1e-12, w[:3])[0] != 0
        assert (w == 7).all()
        assert consumer.forward(p.weight, p.u, p.v, 1, 1e-12, w) == (0, sigma)
        np.testing.assert_array_equal(w, wanted)
        np.testing.assert_array_equal(p.v, v)
        gradient = np.full_like(w, 7)
        assert consumer.backward(w[:3], p.weight, u, v, sigma, gradient) != 0
        assert consumer.backward(w, p.weight, u[:4], v, sigma, gradient) != 0
        assert (gradient == 7).all()
        assert consumer.backward(w, p.weight, u, v, sigma, gradient) == 0
        np.testing.assert_array_equal(gradient, cnorm.spectral_norm_backward(w, p.weight, u, v, sigma, dim=1))
