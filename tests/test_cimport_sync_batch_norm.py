"""Other Cython code cimports the passes of batch norm over several ranks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cnorm
import ranks
from consumer import build
from test_sync_batch_norm import draw, parameters
from test_sync_batch_norm_backward import EVERYTHING, upstream

pytestmark = pytest.mark.usefixtures("native")

MODULE = """
# cython: language_level=3, boundscheck=False
from cython cimport floating
from cnorm.native._cnorm cimport (
    sync_batch_norm_apply_view, sync_batch_norm_backward_apply_view, sync_batch_norm_backward_sums_view,
    sync_batch_norm_merge_view, sync_batch_norm_moments_view,
)


def moments(const floating[:, :, ::1] x, double eps, bint last, double[:, ::1] out):
    cdef int status
    with nogil:
        status = sync_batch_norm_moments_view(x, eps, last, out)
    return status


def merge(const double[::1] counts, const double[:, :, ::1] every, double eps, double[:, ::1] merged,
          floating[::1] mean, floating[::1] rstd):
    cdef int status
    with nogil:
        status = sync_batch_norm_merge_view[floating](
            counts, every, eps, 0.1, True, merged, mean, rstd, None, None)
    return status


def apply(const floating[:, :, ::1] x, const double[:, ::1] merged, const floating[::1] weight,
          const floating[::1] bias, bint last, floating[:, :, ::1] y):
    cdef int status
    with nogil:
        status = sync_batch_norm_apply_view(x, merged, weight, bias, last, y)
    return status


def sums(const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
         const floating[::1] rstd, bint last, double[:, ::1] out):
    cdef int status
    with nogil:
        status = sync_batch_norm_backward_sums_view(dy, x, mean, rstd, last, out)
    return status


def gradient(const floating[:, :, ::1] dy, const floating[:, :, ::1] x, const floating[::1] mean,
             const floating[::1] rstd, const floating[::1] weight, const double[:, ::1] own,
             const double[::1] counts, const double[:, :, ::1] every, bint last, floating[:, :, ::1] dx,
             floating[::1] dweight, floating[::1] dbias):
    cdef int status
    with nogil:
        status = sync_batch_norm_backward_apply_view(
            dy, x, mean, rstd, weight, own, counts, every, last, dx, dweight, dbias)
    return status
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("sync_consumer", MODULE, tmp_path_factory.mktemp("consumer"))


@pytest.mark.parametrize("last", [False, True])
def test_as_the_functions(consumer: ModuleType, last: bool, dtype: Any) -> None:
    counts = [3, 5]
    x, eps = draw(counts, (4, 6), dtype)
    dy, (weight, bias) = upstream(x), parameters(4, dtype)
    axis = 2 if last else 1
    xs, dys = (
        [np.ascontiguousarray(np.moveaxis(part, 1, axis)) for part in ranks.split(a, counts)] for a in (x, dy)
    )

    def call(comm: Any) -> Any:
        own, upward = xs[comm.rank], dys[comm.rank]
        options: Any = {"comm": comm, "axis": axis}
        result = cnorm.sync_batch_norm(
            own, None, None, weight, bias, True, eps=eps, return_stats=True, **options
        )
        grads = cnorm.sync_batch_norm_backward(upward, own, *result[1:], weight, need=EVERYTHING, **options)
        return [a.tobytes() for a in (*result, *grads)]

    wanted = ranks.on_ranks(2, call)
    values = np.array([float(part.size // 4) for part in xs])
    every, sums = np.zeros((2, 5, 4)), np.zeros((2, 8, 4))
    merged, (mean, rstd) = np.zeros((5, 4)), np.zeros((2, 4), dtype)
    for rank in range(2):
        assert consumer.moments(xs[rank], eps, last, every[rank]) == 0
    assert consumer.merge(values, every, eps, merged, mean, rstd) == 0
    for rank in range(2):
        assert consumer.sums(dys[rank], xs[rank], mean, rstd, last, sums[rank]) == 0
    for rank in range(2):
        y, dx = np.zeros_like(xs[rank]), np.zeros_like(xs[rank])
        dweight, dbias = np.zeros((2, 4), dtype)
        assert consumer.apply(xs[rank], merged, weight, bias, last, y) == 0
        status = consumer.gradient(
            dys[rank], xs[rank], mean, rstd, weight, sums[rank], values, sums, last, dx, dweight, dbias
        )
        assert status == 0
        assert [a.tobytes() for a in (y, mean, rstd, dx, dweight, dbias)] == wanted[rank]


def test_wrong_shapes_are_refused(consumer: ModuleType, dtype: Any) -> None:
    x, vector, y = np.ones((2, 4, 3), dtype), np.ones(4, dtype), np.zeros((2, 4, 3), dtype)
    short, numbers, sums, counts = np.ones(3, dtype), np.zeros((5, 4)), np.zeros((8, 4)), np.ones(1)
    assert consumer.moments(x, 0.0, False, np.zeros((5, 3)))
    assert consumer.moments(x, 0.0, True, numbers)
    assert consumer.merge(counts, np.zeros((2, 5, 4)), 0.0, numbers, vector, vector.copy())
    assert consumer.merge(counts, numbers[None], 0.0, numbers, short, vector)
    assert consumer.apply(x, numbers, short, None, False, y)
    assert consumer.apply(x, sums, None, None, False, y)
    assert consumer.sums(x, x, vector, short, False, sums)
    assert consumer.gradient(
        x, x, vector, vector, None, sums, counts, sums[None][:, :7].copy(), False, y, None, None
    )
    assert not y.any()
