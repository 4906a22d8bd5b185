"""Other Cython code cimports the kernels: here a module is written, compiled and run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from consumer import build
from norms import far_from_one
from traps import TRAPS

pytestmark = pytest.mark.usefixtures("native")

BOUND = 6.0

MODULE = """
# cython: language_level=3, boundscheck=False
from cython cimport floating
from cnorm.native._cnorm cimport (
    batch_norm_inference_view, batch_norm_training_view, group_norm_view, instance_norm_view, layer_norm_view,
    rms_norm_view,
)


def layer_norm(const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps,
               floating[:, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = layer_norm_view(x, weight, bias, eps, y, nothing, nothing)
    return status


def rms_norm(const floating[:, ::1] x, const floating[::1] weight, const floating[::1] bias, double eps,
             double weight_offset, floating[:, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = rms_norm_view(x, weight, bias, eps, weight_offset, y, nothing)
    return status


def group_norm(const floating[:, :, ::1] x, size_t groups, const floating[::1] weight,
               const floating[::1] bias, double eps, bint channels_last, floating[:, :, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = group_norm_view(x, groups, weight, bias, eps, channels_last, y, nothing, nothing)
    return status


def instance_norm(const floating[:, :, ::1] x, const floating[::1] weight, const floating[::1] bias,
                  double eps, bint channels_last, floating[:, :, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = instance_norm_view(
            x, nothing, nothing, weight, bias, 0.1, eps, channels_last, y, nothing, nothing)
    return status


def batch_norm_training(const floating[:, :, ::1] x, floating[::1] mean, floating[::1] var,
                        const floating[::1] weight, const floating[::1] bias, double momentum, double eps,
                        bint unbiased, bint channels_last, floating[:, :, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = batch_norm_training_view(
            x, mean, var, weight, bias, momentum, eps, unbiased, channels_last, y, nothing, nothing)
    return status


def batch_norm_inference(const floating[:, :, ::1] x, const floating[::1] mean, const floating[::1] var,
                         const floating[::1] weight, const floating[::1] bias, double eps, bint channels_last,
                         floating[:, :, ::1] y):
    cdef int status
    cdef floating[::1] nothing = None
    with nogil:
        status = batch_norm_inference_view(x, mean, var, weight, bias, eps, channels_last, y)
    return status
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("consumer", MODULE, tmp_path_factory.mktemp("consumer"))


def _rows(dtype: Any) -> np.ndarray:
    return TRAPS[2](15, 257, dtype)


@pytest.mark.parametrize("affine", [True, False])
def test_rows(consumer: ModuleType, affine: bool, dtype: Any) -> None:
    x = _rows(dtype)
    x.flags.writeable = False
    y = np.full_like(x, np.nan, subok=False)
    weight, bias = far_from_one(np.random.default_rng(0), (2, 257), dtype) if affine else (None, None)
    assert consumer.layer_norm(x, weight, bias, 1e-5, y) == 0
    assert oracle.worst_units(y, oracle.layer_norm(x, weight, bias)) <= BOUND
    np.testing.assert_array_equal(y, cnorm.layer_norm(x, 257, weight, bias))
    assert consumer.rms_norm(x, weight, bias, 1e-5, 1.0, y) == 0
    assert oracle.worst_units(y, oracle.rms_norm(x, weight, bias, weight_offset=1.0)) <= BOUND


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_channels(consumer: ModuleType, axis: int, affine: bool, dtype: Any) -> None:
    x = np.ascontiguousarray(np.moveaxis(_rows(dtype).reshape(3, 5, 257), 1, axis))
    last = axis == -1
    y = np.full_like(x, np.nan)
    weight, bias = far_from_one(np.random.default_rng(1), (2, 5), dtype) if affine else (None, None)
    mean, var = np.full(5, 1e4, dtype), np.full(5, 2, dtype)
    assert consumer.group_norm(x, 1, weight, bias, 1e-5, last, y) == 0
    assert oracle.worst_units(y, oracle.group_norm(x, 1, weight, bias, axis=axis)) <= BOUND
    assert consumer.instance_norm(x, weight, bias, 1e-5, last, y) == 0
    assert oracle.worst_units(y, oracle.instance_norm(x, weight, bias, axis=axis)) <= BOUND
    assert consumer.batch_norm_inference(x, mean, var, weight, bias, 1e-5, last, y) == 0
    exact = oracle.batch_norm_inference(x, mean, var, weight, bias, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND
    same_mean, same_var = mean.copy(), var.copy()
    assert consumer.batch_norm_training(x, mean, var, weight, bias, 0.1, 1e-5, True, last, y) == 0
    assert oracle.worst_units(y, oracle.batch_norm(x, weight, bias, axis=axis)) <= BOUND
    cnorm.batch_norm(x, same_mean, same_var, weight, bias, True, axis=axis)
    np.testing.assert_array_equal(mean, same_mean)
    np.testing.assert_array_equal(var, same_var)


def test_the_input_as_the_output(consumer: ModuleType, dtype: Any) -> None:
    x = _rows(dtype)
    wanted = cnorm.layer_norm(x)
    assert consumer.layer_norm(x, None, None, 1e-5, x) == 0
    np.testing.assert_array_equal(x, wanted)


def test_mistakes_are_a_status_and_write_nothing(consumer: ModuleType, dtype: Any) -> None:
    x = _rows(dtype)
    y = np.full_like(x, 7)
    right, short = np.ones(257, dtype), np.ones(256, dtype)
    assert consumer.layer_norm(x, short, right, 1e-5, y) != 0
    assert consumer.layer_norm(x, right, short, 1e-5, y) != 0
    assert consumer.layer_norm(x, right, right, -1.0, y) != 0
    assert consumer.layer_norm(x, right, right, 1e-5, y[:14]) != 0
    assert consumer.rms_norm(x, short, None, 1e-5, 0.0, y) != 0
    cube, out = x.reshape(3, 5, 257), y.reshape(3, 5, 257)
    five, four = np.ones(5, dtype), np.ones(4, dtype)
    for groups in (0, 2, 6):
        assert consumer.group_norm(cube, groups, None, None, 1e-5, False, out) != 0
    assert consumer.group_norm(cube, 5, four, five, 1e-5, False, out) != 0
    assert consumer.instance_norm(cube, five, four, 1e-5, False, out) != 0
    assert consumer.batch_norm_inference(cube, four, five, None, None, 1e-5, False, out) != 0
    mean, var = np.zeros(5, dtype), np.ones(5, dtype)
    assert consumer.batch_norm_training(cube, mean, four, None, None, 0.1, 1e-5, True, False, out) != 0
    one = np.ones((1, 5, 1), dtype)
    assert consumer.batch_norm_training(one, mean, var, None, None, 0.1, 1e-5, True, False, one.copy()) != 0
    assert (y == 7).all()
    assert not mean.any()
    assert (var == 1).all()


def test_empty_arrays(consumer: ModuleType, dtype: Any) -> None:
    for shape in ((0, 7), (3, 0), (0, 0)):
        assert consumer.layer_norm(np.empty(shape, dtype), None, None, 1e-5, np.empty(shape, dtype)) == 0
    shape = (0, 5, 7)
    assert (
        consumer.instance_norm(np.empty(shape, dtype), None, None, 1e-5, False, np.empty(shape, dtype)) == 0
    )
