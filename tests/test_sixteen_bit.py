"""float16 and bfloat16: computed in float32, with float32 statistics, and rounded once to nearest even."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
import oracle
from norms import NORMS, Norm, Parameters
from traps import TRAPS

BOUND = 6.0

#: Traps whose values a 16-bit type can hold (float16 ends at 65504).
NAMES = (
    "normal",
    "mean 3, spread 0.5, no eps",
    "counting from 40000",
    "100 +- 0.01",
    "constant 1234",
    "constant 0.1, no eps",
    "signed zeros",
    "Cauchy",
    "spread below eps",
)

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)


@pytest.fixture(params=[np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def narrow(request: pytest.FixtureRequest) -> np.dtype:
    return np.dtype(request.param)


def _rows(trap: Any, rows: int, elements: int, narrow: np.dtype) -> np.ndarray:
    x = trap(rows, elements, np.float32)
    return np.clip(x, -60000, 60000).astype(narrow)


def _assert_one_rounding(y: np.ndarray, exact: oracle.Exact) -> None:
    """y is what rounding some float32 value within six units of the exact one gives."""
    lowest, highest = oracle.rounded_range(exact, y.dtype, BOUND)
    wide = y.astype(oracle.Long)
    assert ((wide >= lowest) & (wide <= highest)).all()


@each_norm
@pytest.mark.parametrize("trap", [t for t in TRAPS if t.name in NAMES], ids=lambda trap: trap.name)
def test_one_rounding_of_a_float32_result(norm: Norm, trap: Any, narrow: np.dtype) -> None:
    for rows, elements in ((15, 9), (25, 255), (5, 8199)):
        x = norm.arrange(_rows(trap, rows, elements, narrow))
        for layout in (layouts.contiguous, layouts.steps, layouts.channels_last, layouts.channels_last_view):
            if layout in (layouts.channels_last, layouts.channels_last_view) and not norm.channels:
                continue
            arranged, axis = layout(x)
            plain = np.ascontiguousarray(arranged)
            p = norm.parameters(plain, axis=axis)
            assert p.weight is not None
            assert p.weight.dtype == np.float32
            y = norm.call(arranged, p, trap.eps, axis)
            assert y.dtype == narrow
            _assert_one_rounding(y, norm.exact(plain, p, trap.eps, axis))


@each_norm
def test_parameters_of_the_narrow_type_are_taken_as_they_are(norm: Norm, narrow: np.dtype) -> None:
    x = norm.arrange(_rows(TRAPS[0], 15, 255, narrow))
    p = norm.parameters(x)
    narrowed = Parameters(*(None if v is None else v.astype(narrow) for v in vars(p).values()))
    y = norm.call(
        x, narrowed if not norm.groups_cross_samples else Parameters(narrowed.weight, narrowed.bias), 1e-5
    )
    _assert_one_rounding(y, norm.exact(x, narrowed, 1e-5))


@each_norm
def test_statistics_are_float32_and_not_rounded(norm: Norm, narrow: np.dtype) -> None:
    x = norm.arrange(_rows(TRAPS[1], 15, 255, narrow))
    p = norm.parameters(x)
    exact = norm.exact(x, p, 1e-5)
    for statistic in norm.call(x, p, 1e-5, return_stats=True)[1:]:
        assert statistic.dtype == np.float32
    rstd = norm.call(x, p, 1e-5, return_stats=True)[-1].astype(oracle.Long)
    np.testing.assert_array_less(np.abs(rstd / exact.rstd - 1), 4 * 2.0**-24)


def test_running_statistics_stay_float32(narrow: np.dtype) -> None:
    """Their updates are smaller than a 16-bit spacing here; a narrow accumulation would stand still."""
    x = _rows(TRAPS[1], 15, 255, narrow).reshape(3, 5, 255)
    wide = x.astype(np.float32)
    mean, var = np.full(5, 100, np.float32), np.full(5, 100, np.float32)
    cnorm.batch_norm(x, mean, var, training=True, momentum=1e-4)
    exact = oracle.batch_norm(wide)
    np.testing.assert_allclose(mean, 100 + 1e-4 * (exact.mean.astype(float) - 100), rtol=4 * 2.0**-24)
    assert (mean != 100).all()
    assert (var != 100).all()


def test_eps_does_not_vanish(narrow: np.dtype) -> None:
    """1e-12 is 0 in float16, and so is the variance of 1e-4: zeros divided by that would be NaN."""
    x = np.zeros((3, 8), narrow)
    np.testing.assert_array_equal(cnorm.layer_norm(x, eps=1e-12), x)
    x = np.array([[1e-6, 3e-6, 2e-6, 2e-6]]).astype(narrow)
    y = cnorm.layer_norm(x, eps=1e-12)
    _assert_one_rounding(y, oracle.layer_norm(x, eps=1e-12))


def test_squares_beyond_float16(narrow: np.dtype) -> None:
    x = np.full((2, 1024), 1000, narrow)
    np.testing.assert_array_equal(cnorm.rms_norm(x), np.ones((2, 1024), narrow))
    x = np.tile(np.array([60000, -60000, 30000, 0], narrow), (2, 64))
    for norm in NORMS[:2]:
        _assert_one_rounding(norm.call(x, Parameters(), 1e-5), norm.exact(x, Parameters(), 1e-5))


def test_subnormal_inputs_and_outputs(narrow: np.dtype) -> None:
    smallest = float(ml_dtypes.finfo(narrow).smallest_subnormal)
    x = (np.random.default_rng(1).integers(-9, 10, (4, 65)) * smallest).astype(narrow)
    _assert_one_rounding(cnorm.layer_norm(x, eps=0.0), oracle.layer_norm(x, eps=0.0))
    weight = np.full(65, 20 * smallest, np.float32)
    y = cnorm.layer_norm(x, 65, weight, eps=0.0)
    assert np.count_nonzero(y) > y.size / 2
    _assert_one_rounding(y, oracle.layer_norm(x, weight, eps=0.0))


def test_results_beyond_the_type_are_infinite(narrow: np.dtype) -> None:
    largest = float(ml_dtypes.finfo(narrow).max)
    x = np.array([[-1, 1]], narrow)
    np.testing.assert_array_equal(
        cnorm.layer_norm(x, 2, np.full(2, largest, np.float32), eps=0.0), [[-largest, largest]]
    )
    over = np.float32(min(largest * (1 + 2.0**-7), float(np.finfo(np.float32).max)))
    np.testing.assert_array_equal(cnorm.layer_norm(x, 2, np.full(2, over), eps=0.0), [[-np.inf, np.inf]])


def test_halfway_goes_to_even(narrow: np.dtype) -> None:
    """xhat is exactly -1 and 1, so the weight alone makes the float32 result: halfway between two numbers."""
    eps = float(ml_dtypes.finfo(narrow).eps)
    weight = np.float32(1 + (np.arange(32) + 0.5) * eps)
    x = np.tile(np.array([-1, 1], narrow), 16)
    y = cnorm.layer_norm(x, 32, weight, eps=0.0).astype(np.float64)
    even = 1 + 2 * np.round((np.arange(32) + 0.5) / 2) * eps
    np.testing.assert_array_equal(y, even * np.tile([-1, 1], 16))


def test_outputs_of_the_narrow_type_in_place_and_given(narrow: np.dtype) -> None:
    for norm in NORMS:
        x = norm.arrange(_rows(TRAPS[0], 15, 255, narrow))
        p = norm.parameters(x)
        wanted = norm.call(x, p, 1e-5)
        out = np.zeros_like(x)
        assert norm.call(x, p, 1e-5, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        assert norm.call(x, p, 1e-5, out=x) is x
        np.testing.assert_array_equal(x, wanted)
        with pytest.raises(TypeError, match="out"):
            norm.call(x, p, 1e-5, out=np.zeros(x.shape, np.float32))


# casting="llama" --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_llama_rounds_xhat_before_the_weight(offset: float, with_bias: bool, narrow: np.dtype) -> None:
    """round(round(xhat) * weight + bias), where xhat may be any value within six units."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((40, 255)).astype(narrow)
    weight = rng.uniform(-4, 4, 255).astype(np.float32)
    bias = rng.standard_normal(255).astype(np.float32) if with_bias else None
    y = cnorm.rms_norm(x, 255, weight, 1e-5, bias=bias, weight_offset=offset, casting="llama")
    assert y.dtype == narrow
    plain = oracle.rms_norm(x, None, None, 1e-5)
    candidates = []
    for xhat in oracle.rounded_range(plain, narrow, BOUND):
        product = xhat.astype(np.float32) * (weight + np.float32(offset))
        candidates.append((product if bias is None else product + bias).astype(narrow))
    low, high = np.minimum(*candidates), np.maximum(*candidates)
    assert ((low <= y) & (y <= high)).all()
    assert (low == high).mean() > 0.9, "nearly everywhere there is one right answer"
    once = cnorm.rms_norm(x, 255, weight, 1e-5, bias=bias, weight_offset=offset)
    assert (y != once).any(), "the two ways differ"


@pytest.mark.peers
def test_llama_casting_is_what_the_models_do(narrow: np.dtype) -> None:
    """The reference: statistics in float32, back to the type, then the weight in the type."""
    torch = pytest.importorskip("torch")
    kind = torch.float16 if narrow == np.float16 else torch.bfloat16
    x = torch.randn((40, 256), generator=torch.Generator().manual_seed(0)).to(kind)
    weight = (1 + 0.3 * torch.randn(256, generator=torch.Generator().manual_seed(1))).to(kind)
    wide = x.float()
    theirs = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(kind)
    ours = cnorm.rms_norm(
        x.float().numpy().astype(narrow), 256, weight.float().numpy(), 1e-6, casting="llama"
    )
    different = ours.astype(np.float32) != theirs.float().numpy()
    # their float32 xhat is off by some units, so that one in a thousand rounds to the other neighbour
    assert different.mean() < 0.01
