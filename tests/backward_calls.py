"""A plainly valid call of every backward function, and the check that a change to it is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm

OPS = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")
ROW_OPS = OPS[:2]
CHANNEL_OPS = OPS[2:]
SHAPE = (2, 6, 5)

#: The statistics each takes, and their shape for x of SHAPE and two groups.
STATISTICS = {
    "layer_norm": ("mean", "rstd"),
    "rms_norm": ("rstd",),
    "group_norm": ("mean", "rstd"),
    "instance_norm": ("mean", "rstd"),
    "batch_norm": ("mean", "rstd"),
}
STATISTICS_SHAPE = {
    "layer_norm": (2, 6, 1),
    "rms_norm": (2, 6, 1),
    "group_norm": (2, 2),
    "instance_norm": (2, 6),
    "batch_norm": (6,),
}


def valid(op: str) -> dict[str, Any]:
    """A plainly valid call, fresh each time."""
    rng = np.random.default_rng(0)
    dy, x = rng.standard_normal((2, *SHAPE)).astype(np.float32)
    call: dict[str, Any] = {"dy": dy, "x": x, "out": np.zeros_like(x)}
    for name in STATISTICS[op]:
        call[name] = 1 + rng.random(STATISTICS_SHAPE[op]).astype(np.float32)
    call["weight"] = 1 + rng.random(5 if op in ROW_OPS else 6).astype(np.float32)
    if op in ROW_OPS:
        call["normalized_shape"] = 5
    if op == "group_norm":
        call["num_groups"] = 2
    return call


def run(op: str, arguments: dict[str, Any]) -> cnorm.Gradients:
    return getattr(cnorm, f"{op}_backward")(**arguments)


def expect_error(op: str, error: type[Exception], name: str, change: dict[str, Any]) -> None:
    """The changed call raises ``error`` naming ``name`` first; the arrays of the call keep their bytes."""
    call = valid(op) | change
    arrays = {
        key: value for key, value in call.items() if isinstance(value, np.ndarray) and value.dtype != object
    }
    before = {key: value.tobytes() for key, value in arrays.items()}
    with pytest.raises(error, match=rf"^{name}: expected ") as caught:
        run(op, call)
    assert type(caught.value) is error
    assert {key: value.tobytes() for key, value in arrays.items()} == before


each_op = pytest.mark.parametrize("op", OPS)
