"""PyTorch in float64 as the arbiter of what an argument means."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle

Array = NDArray[Any]

#: PyTorch's own float64 error on benign data (a thousand elements, mean like spread) stays below 100 units,
#: 1e-14: its sums lose some bits. Any difference in meaning (eps outside the root, n - 1 for n, a swapped
#: argument) is larger by ten orders of magnitude.
PEER_UNITS = 100.0


def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def tensor(array: Array | None) -> Any:
    return None if array is None else torch().from_numpy(np.array(array))


def assert_parity(ours: Array, theirs: Any, exact: oracle.Exact) -> None:
    """Ours equals PyTorch's within the errors of both."""
    difference = np.abs(ours.astype(oracle.Long) - theirs.detach().numpy())
    one, _ = oracle.tolerance(exact.y, exact.xhat, exact.weight, exact.bias, np.float64)
    assert (difference <= (PEER_UNITS + 6) * one).all()


def positional_parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Names and defaults of the positional parameters, in order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values() if p.kind in kinds]


def keyword_only(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and defaults of the keyword-only parameters."""
    return {
        p.name: p.default
        for p in inspect.signature(function).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
