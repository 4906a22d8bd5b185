"""The oracle against arithmetic of 800 decimal digits: it must be right to a small part of a unit."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oracle
from traps import TRAPS, Trap


def _decimal_rows(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> list[list[Decimal]]:
    """weight * (x - mean) / sqrt(var + eps) + bias, row by row; 800 digits hold any float64 squared."""
    result = []
    for row in x.tolist():
        values = [Decimal(v) for v in row]
        mean = sum(values) / len(values)
        var = sum((v - mean) ** 2 for v in values) / len(values) + Decimal(eps)
        rstd = 1 / var.sqrt() if var else Decimal(0)
        result.append(
            [
                (v - mean) * rstd * Decimal(w) + Decimal(b)
                for v, w, b in zip(values, weight.tolist(), bias.tolist(), strict=True)
            ]
        )
    return result


@pytest.mark.skipif(not oracle.EXTENDED, reason="numpy.longdouble has no 64-bit significand here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_layer_norm_oracle_is_exact_to_a_twentieth_of_a_unit(trap: Trap, dtype: Any) -> None:
    x = trap(5, 23, dtype)
    rng = np.random.default_rng(3)
    weight = (rng.standard_normal(23) * 10.0 ** rng.integers(-3, 4, 23)).astype(dtype)
    bias = rng.standard_normal(23).astype(dtype)
    exact = oracle.layer_norm(x, weight, bias, trap.eps)
    with localcontext() as context:
        context.prec = 800
        wanted = _decimal_rows(x, weight, bias, trap.eps)
        one, _ = oracle.tolerance(exact.y, exact.xhat, exact.weight, exact.bias, dtype)
        worst = Decimal(0)
        for y_row, wanted_row, one_row in zip(exact.y, wanted, one, strict=True):
            for y, right, allowed in zip(y_row, wanted_row, one_row, strict=True):
                numerator, denominator = y.as_integer_ratio()
                error = abs(Decimal(numerator) / Decimal(denominator) - right)
                worst = max(worst, error / Decimal(float(allowed)))
    assert worst < Decimal("0.05")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_round_to_agrees_with_the_cast(dtype: Any) -> None:
    """The values are float32: then the cast is one rounding (ml_dtypes takes float64 in two)."""
    rng = np.random.default_rng(4)
    values = rng.standard_normal(5000) * 10.0 ** rng.uniform(-46, 39, 5000)
    # halfway cases, which must go to even
    values[:64] = 1 + (np.arange(64) + 0.5) * float(ml_dtypes.finfo(dtype).eps)
    with np.errstate(over="ignore", under="ignore"):
        if np.dtype(dtype) != np.float32:
            values = values.astype(np.float32).astype(np.float64)
        wanted = values.astype(dtype)
    np.testing.assert_array_equal(
        oracle.round_to(values, dtype).astype(np.float64), wanted.astype(np.float64)
    )


def test_units_of_a_known_error() -> None:
    """One spacing above 1 is two units of u; a NaN, an infinity or a wrong sign is never small."""
    exact = oracle.layer_norm(np.array([[-1.0, 1.0]], np.float32), eps=0.0)
    right = exact.y.astype(np.float32)
    assert oracle.worst_units(right, exact) == 0
    assert oracle.worst_units(np.nextafter(right, np.float32(9)), exact) == pytest.approx(2)
    for wrong in (np.nan, np.inf, -1.0):
        assert oracle.worst_units(np.array([[-1.0, wrong]], np.float32), exact) > 1e6


def test_the_allowance_is_for_subnormal_results_only() -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    x = np.array([[-1.0, 1.0]], np.float32)
    small = oracle.layer_norm(x, np.full(2, 1000 * tiny, np.float32), eps=0.0)
    assert oracle.worst_units((small.y + tiny / 2).astype(np.float64).astype(np.float32), small) == 0
    assert oracle.worst_units((small.y + 2 * tiny).astype(np.float32), small) > 1e3
    normal = oracle.layer_norm(x, np.full(2, 2.0**-120, np.float32), eps=0.0)
    _, allowance = oracle.tolerance(normal.y, normal.xhat, normal.weight, normal.bias, np.float32)
    assert not allowance.any()
