"""The memory of outputs: recycled up to a limit, never shared by two arrays that are alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import cnorm

MEGABYTE = 1 << 20


@pytest.fixture
def limit() -> Iterator[int]:
    """Sets a limit of 8 MB for a test that begins with nothing kept."""
    before = cnorm.cache_limit()
    cnorm.set_cache_limit(0)
    cnorm.set_cache_limit(8 * MEGABYTE)
    yield 8 * MEGABYTE
    cnorm.set_cache_limit(before)


def test_results_own_their_memory() -> None:
    """A result, or a view of one that is gone, is never overwritten by a later call."""
    x = np.random.default_rng(1).standard_normal((300, 1031)).astype(np.float32)
    first = cnorm.layer_norm(x)
    kept, part = first.copy(), first[7:9]
    second = cnorm.layer_norm(-3 * x)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    del first
    gc.collect()
    results = [cnorm.layer_norm(x[::-1]) for _ in range(8)]
    np.testing.assert_array_equal(part, kept[7:9])
    addresses = {r.ctypes.data for r in results}
    assert len(addresses) == 8


@pytest.mark.usefixtures("native")
def test_what_is_kept_is_bounded(limit: int) -> None:
    """Twenty outputs of 3 MB are dropped together: two fit."""
    from cnorm.native import _cnorm

    x = np.ones((384, 2048), np.float32)
    held = [cnorm.layer_norm(x) for _ in range(20)]
    assert _cnorm.cache_bytes() == 0
    del held
    gc.collect()
    assert 2 * x.nbytes <= _cnorm.cache_bytes() <= limit


@pytest.mark.usefixtures("native")
def test_an_output_takes_the_memory_of_one_that_is_gone(limit: int) -> None:
    x = np.ones((384, 2048), np.float32)
    address = cnorm.layer_norm(x).ctypes.data
    assert cnorm.layer_norm(x).ctypes.data == address


@pytest.mark.usefixtures("native", "limit")
def test_a_lower_limit_frees_at_once_and_zero_switches_off() -> None:
    from cnorm.native import _cnorm

    x = np.ones((384, 2048), np.float32)
    cnorm.layer_norm(x)
    assert _cnorm.cache_bytes() > 0
    cnorm.set_cache_limit(0)
    assert _cnorm.cache_bytes() == 0
    y = cnorm.layer_norm(x)
    assert y.base is None
    assert y.flags.owndata
    del y
    assert _cnorm.cache_bytes() == 0


@pytest.mark.usefixtures("native")
def test_small_outputs_are_numpys_own(limit: int) -> None:
    assert cnorm.layer_norm(np.ones((4, 768), np.float32)).flags.owndata
