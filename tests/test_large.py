"""Sizes beyond 16- and 32-bit counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
from norms import NORMS, Norm

BOUND = 6.0

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)


@each_norm
@pytest.mark.parametrize("rows", [65_540, 200_005])
def test_more_than_two_to_the_sixteen_groups(norm: Norm, rows: int, dtype: Any) -> None:
    x = norm.arrange(np.random.default_rng(rows).standard_normal((rows, 6)).astype(dtype) + 3)
    p = norm.parameters(x)
    assert oracle.worst_units(norm.call(x, p, 1e-5), norm.exact(x, p, 1e-5)) <= BOUND


@pytest.mark.parametrize("channels", [65_537, 100_003])
def test_more_than_two_to_the_sixteen_channels(channels: int, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((7, channels)).astype(dtype) + 3
    y = cnorm.batch_norm(x, training=True)
    assert oracle.worst_units(y, oracle.batch_norm(x)) <= BOUND
    last = x.reshape(1, 7, channels)
    y = cnorm.instance_norm(last, axis=-1)
    assert oracle.worst_units(y, oracle.instance_norm(last, axis=-1)) <= BOUND


# More than 2**31 elements in one call: 8.6 GB of float32, in place ------------------------------------------

ROWS, COLS = 32_771, 65_537
assert ROWS * COLS > 2**31


def _available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


@pytest.fixture
def huge(native: None) -> np.ndarray:
    """(ROWS, COLS) of float32: one pattern of normal numbers, scaled and moved by row as in ``_row``."""
    needed = 4 * ROWS * COLS + (1 << 30)
    if not Path("/proc/meminfo").exists() or _available() < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free memory")
    x = np.empty((ROWS, COLS), np.float32)
    pattern = _pattern()
    for row in range(ROWS):
        np.multiply(pattern, row % 7 + 1, out=x[row])
        x[row] += 100 * (row % 11)
    return x


def _pattern() -> np.ndarray:
    return np.random.default_rng(5).standard_normal(COLS).astype(np.float32)


def _row(row: int) -> np.ndarray:
    """What the fixture put in a row."""
    return _pattern() * np.float32(row % 7 + 1) + np.float32(100 * (row % 11))


LOOKED_AT = (0, 1, 16_383, 32_760, 32_767, 32_768, ROWS - 1)


@pytest.mark.slow
def test_rows_of_more_than_two_to_the_31_elements(huge: np.ndarray) -> None:
    """Rows on both sides of element 2**31; they are looked at after being normalised in place."""
    assert cnorm.layer_norm(huge, out=huge) is huge
    for row in LOOKED_AT:
        exact = oracle.layer_norm(_row(row)[None])
        assert oracle.worst_units(huge[row : row + 1], exact) <= BOUND, row


@pytest.mark.slow
@pytest.mark.parametrize("axis", [1, -1])
def test_one_group_of_more_than_two_to_the_31_elements(huge: np.ndarray, axis: int) -> None:
    """+-1 around 5: the mean and the variance are known, and so is every result."""
    flat = huge.reshape(-1)
    flat[0::2], flat[1::2] = 4, 6
    if flat.size % 2:
        flat[-1] = 5  # the mean stays 5
    x = huge.reshape((1, 1, -1) if axis == 1 else (1, -1, 1))
    variance = np.longdouble(flat.size - flat.size % 2) / flat.size
    wanted = np.float32(1 / np.sqrt(variance + np.longdouble(1e-5)))
    y, mean, rstd = cnorm.group_norm(x, 1, axis=axis, out=x, return_stats=True)
    assert mean == 5
    np.testing.assert_allclose(rstd, wanted, rtol=4 * 2.0**-24)
    flat = y.reshape(-1)
    for part in (flat[:1000], flat[2**31 - 500 : 2**31 + 500], flat[-1001:-1]):
        np.testing.assert_allclose(np.abs(part), wanted, rtol=6 * 2.0**-24)
        np.testing.assert_array_equal(part[0::2] * part[1::2] < 0, np.ones(500, bool))


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_more_than_two_to_the_31_elements(huge: np.ndarray, training: bool) -> None:
    """(N, C) with the pattern along the channels: every channel holds 77 kinds of rows."""
    kinds = np.array([[row % 7 + 1, 100 * (row % 11)] for row in range(ROWS)], np.float32)
    columns = [0, 1, 32_000, COLS - 1]
    pattern = _pattern()
    x = np.stack([pattern[c] * kinds[:, 0] + kinds[:, 1] for c in columns], axis=1)
    np.testing.assert_array_equal(x, huge[:, columns])
    mean, var = np.full(COLS, 400, np.float32), np.full(COLS, 1e5, np.float32)
    exact = oracle.batch_norm(x) if training else oracle.batch_norm_inference(x, mean[columns], var[columns])
    y = cnorm.batch_norm(huge, mean, var, training=training, out=huge)[:, columns]
    assert oracle.worst_units(y, exact) <= BOUND
