"""float16 and bfloat16 gradients: dx computed in float32 and rounded once, dweight and dbias float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import gradient_oracle
import layouts
import oracle
from gradients import BACKWARDS, BOUND, TRAINING, Backward, Case, upstream
from traps import TRAPS

#: Traps whose values a 16-bit type can hold (float16 ends at 65504).
NAMES = (
    "normal",
    "mean 3, spread 0.5, no eps",
    "counting from 40000",
    "100 +- 0.01",
    "constant 1234",
    "signed zeros",
    "Cauchy",
    "spread below eps",
)

pytestmark = pytest.mark.skipif(not oracle.EXTENDED, reason="numpy.longdouble has no 64-bit significand here")

each_backward = pytest.mark.parametrize("backward", BACKWARDS, ids=lambda backward: backward.name)


@pytest.fixture(params=[np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def narrow(request: pytest.FixtureRequest) -> np.dtype:
    return np.dtype(request.param)


def _rows(trap: Any, rows: int, elements: int, narrow: np.dtype) -> np.ndarray:
    return np.clip(trap(rows, elements, np.float32), -60000, 60000).astype(narrow)


def _upstream(x: np.ndarray) -> np.ndarray:
    return upstream(x.astype(np.float32)).astype(x.dtype)


def _check(backward: Backward, case: Case) -> cnorm.Gradients:
    """dx is what rounding some float32 value within 16 units of the exact one gives."""
    grads = backward.of(case)
    exact = backward.exact(replace(case, x=np.ascontiguousarray(case.x)))
    assert grads.x.dtype == case.x.dtype
    lowest, highest = gradient_oracle.rounded_range(exact.x, case.x.dtype, BOUND)
    wide = grads.x.astype(oracle.Long)
    assert ((wide >= lowest) & (wide <= highest)).all()
    for ours, right in ((grads.weight, exact.weight), (grads.bias, exact.bias)):
        assert ours.dtype == np.float32
        assert gradient_oracle.units(ours, right) <= BOUND
    return grads


@pytest.mark.parametrize("trap", [t for t in TRAPS if t.name in NAMES], ids=lambda trap: trap.name)
@each_backward
def test_one_rounding_of_a_float32_gradient(backward: Backward, trap: Any, narrow: np.dtype) -> None:
    for rows, elements in ((15, 9), (10, 255), (5, 4099)):
        x = _rows(trap, rows, elements, narrow)
        for layout in (layouts.contiguous, layouts.steps, layouts.channels_last)[
            : 2 + backward.norm.channels
        ]:
            case = backward.case(x, _upstream(x), trap.eps, layout)
            assert all(s.dtype == np.float32 for s in case.statistics)
            _check(backward, case)
            _check(backward, case.without_weight())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@each_backward
def test_dy_of_another_type_is_used_in_float32(backward: Backward, dtype: Any, narrow: np.dtype) -> None:
    """Narrower or wider than x: what arrives is not rounded to x's type."""
    x = _rows(TRAPS[1], 15, 66, narrow)
    dy = upstream(x.astype(np.float64)).astype(dtype)
    _check(backward, backward.case(x, dy, 1e-5))


@each_backward
def test_dy_of_float32_x_may_be_narrower_or_wider(backward: Backward) -> None:
    """As if it had been float32 itself."""
    x = TRAPS[1](15, 66, np.float32)
    for kind in (np.float16, ml_dtypes.bfloat16, np.float64):
        dy = upstream(x.astype(np.float64)).astype(kind)
        case = backward.case(x, dy, 1e-5)
        grads = backward.of(case)
        same = backward.of(replace(case, dy=case.dy.astype(np.float32)))
        for ours, wanted in zip(grads, same, strict=True):
            np.testing.assert_array_equal(ours, wanted, strict=True)


@each_backward
def test_parameter_gradients_are_summed_in_more_than_sixteen_bits(
    backward: Backward, narrow: np.dtype
) -> None:
    """A thousand ones and more: bfloat16 would stop counting at 256."""
    x = _rows(TRAPS[0], 15, 4099, narrow)
    case = backward.case(x, np.ones(x.shape, narrow), 1e-5)
    grads = backward.of(case)
    np.testing.assert_array_equal(grads.bias, np.float32(x.size / grads.bias.size))


@each_backward
def test_many_tiles_give_the_parameter_gradients_of_the_whole(backward: Backward, narrow: np.dtype) -> None:
    """16-bit data goes to the kernels tile by tile; sums that tiles share are rounded once, at the end."""
    x = _rows(TRAPS[1], 15, 60_000, narrow)
    _check(backward, backward.case(x, _upstream(x), 1e-5))


@pytest.mark.parametrize("backward", TRAINING, ids=lambda backward: backward.name)
def test_gradients_beyond_the_type_are_infinite(backward: Backward, narrow: np.dtype) -> None:
    x = _rows(TRAPS[0], 15, 66, narrow)
    case = backward.case(x, _upstream(x), 0.0)
    assert case.p.weight is not None
    weight = np.full(case.p.weight.shape, float(ml_dtypes.finfo(narrow).max), np.float32)
    case = replace(case, p=replace(case.p, weight=weight))
    dx = _check(backward, case).x
    assert np.isinf(dx).any()
    assert not np.isnan(dx).any()


@each_backward
def test_dx_in_place_and_given(backward: Backward, narrow: np.dtype) -> None:
    x = _rows(TRAPS[0], 15, 255, narrow)
    case = backward.case(x, _upstream(x), 1e-5)
    wanted = backward.of(case).x
    for out in (np.zeros_like(case.x), case.dy):
        assert backward.of(case, out=out).x is out
        np.testing.assert_array_equal(out, wanted)
