"""The small kernels (src_c/small) behind the C interface: accuracy, range, statistics, containment."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from norms import far_from_one
from traps import TRAPS

LIBRARY = Path(__file__).parent.parent / "src_c"
COMPILER = shutil.which("cc")
BOUND = 6.0
FIRST, LAST = 0, 1
STATISTIC_UNITS = 4.0

pytestmark = pytest.mark.skipif(
    COMPILER is None or not LIBRARY.exists(), reason="needs a C compiler and src_c"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("small") / "small.so"
    ops = sorted(LIBRARY.glob("small/*_norm*.c"))
    api = sorted({LIBRARY / "api" / path.name.replace("_inference", "") for path in ops})
    sources = [*ops, LIBRARY / "small" / "group.c", *api, LIBRARY / "parallel.c", LIBRARY / "cpu.c"]
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-DCN_REAL=f32", "-DCN_ISA=small", "-DCN_ONE_LEVEL=1"]
    flags += ["-shared", "-fPIC"]
    subprocess.run([str(COMPILER), *flags, *map(str, sources), "-lm", "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def call(library: Any, function: str, *arguments: Any) -> None:
    """Arrays as pointers, integers as sizes, floats as doubles; no workspace."""
    converted: list[Any] = []
    for argument in arguments:
        if argument is None or isinstance(argument, np.ndarray):
            converted.append(ctypes.c_void_p(None if argument is None else argument.ctypes.data))
        elif isinstance(argument, float):
            converted.append(ctypes.c_double(argument))
        else:
            converted.append(ctypes.c_size_t(argument))
    assert getattr(library, f"cnorm_{function}_f32")(*converted, None, ctypes.c_size_t(0)) == 0


def assert_statistics(values: np.ndarray, exact: Any) -> None:
    """Within some units, relative to themselves."""
    wanted = np.asarray(exact).reshape(values.shape)
    with np.errstate(over="ignore"):
        spacing = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    finite = np.isfinite(spacing)
    assert np.all(np.abs(values - wanted)[finite] <= STATISTIC_UNITS * spacing[finite])
    assert np.isinf(values[~finite]).all()


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.parametrize("cols", [1, 2, 3, 16, 33, 300, 5000])
def test_rows(library: Any, trap: Any, cols: int) -> None:
    x = trap(15, cols, np.float32)
    rng = np.random.default_rng(cols)
    weight, bias = (far_from_one(rng, cols, np.float32) for _ in range(2))
    y, mean, rstd = np.empty_like(x), np.empty(15, np.float32), np.empty(15, np.float32)
    call(library, "layer_norm_forward", y, mean, rstd, x, weight, bias, 15, cols, trap.eps)
    exact = oracle.layer_norm(x, weight, bias, trap.eps)
    assert oracle.worst_units(y, exact) <= BOUND
    assert_statistics(rstd, exact.rstd)
    call(library, "rms_norm_forward", y, rstd, x, weight, bias, 15, cols, trap.eps, 1.0)
    exact = oracle.rms_norm(x, weight, bias, trap.eps, weight_offset=1.0)
    assert oracle.worst_units(y, exact) <= BOUND
    assert_statistics(rstd, exact.rstd)


@pytest.mark.parametrize("trap", TRAPS[::2], ids=lambda trap: trap.name)
@pytest.mark.parametrize("layout", [FIRST, LAST])
@pytest.mark.parametrize("sizes", [(3, 6, 35), (10, 9, 1), (1, 3, 300)])
def test_channels(library: Any, trap: Any, layout: int, sizes: tuple[int, int, int]) -> None:
    batch, channels, spatial = sizes
    x = trap(batch * channels, spatial, np.float32).reshape(sizes)
    axis = 1
    if layout == LAST:
        x, axis = np.ascontiguousarray(np.moveaxis(x, 1, 2)), 2
    rng = np.random.default_rng(layout)
    weight, bias = (far_from_one(rng, channels, np.float32) for _ in range(2))
    y, eps = np.empty_like(x), trap.eps
    call(library, "group_norm_forward", y, None, None, x, weight, bias, *sizes, 3, eps, layout)
    assert oracle.worst_units(y, oracle.group_norm(x, 3, weight, bias, eps, axis=axis)) <= BOUND
    call(
        library, "instance_norm_forward", y, None, None, None, None, x, weight, bias, *sizes, eps, 0.0, layout
    )
    assert oracle.worst_units(y, oracle.instance_norm(x, weight, bias, eps, axis=axis)) <= BOUND
    call(library, "batch_norm_forward", y, *[None] * 4, x, weight, bias, *sizes, eps, 0.0, 1, layout)
    assert oracle.worst_units(y, oracle.batch_norm(x, weight, bias, eps, axis=axis)) <= BOUND
    mean, var = rng.standard_normal(channels).astype(np.float32), rng.random(channels).astype(np.float32)
    call(library, "batch_norm_inference", y, x, mean, var, weight, bias, *sizes, eps, layout)
    exact = oracle.batch_norm_inference(x, mean, var, weight, bias, eps, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e-15])
def test_running_statistics(library: Any, scale: float) -> None:
    x = (scale * np.random.default_rng(0).normal(5, 2, (4, 3, 20))).astype(np.float32)
    running = np.full((2, 3), 0.5, np.float32)
    y, eps, momentum = np.empty_like(x), 1e-5, 0.25
    wide = x.astype(np.float64)
    call(
        library,
        "batch_norm_forward",
        y,
        None,
        None,
        *running,
        x,
        None,
        None,
        4,
        3,
        20,
        eps,
        momentum,
        1,
        FIRST,
    )
    wanted = [wide.mean(axis=(0, 2)), wide.var(axis=(0, 2), ddof=1)]
    np.testing.assert_allclose(running, 0.375 + 0.25 * np.array(wanted), rtol=1e-6)
    running[:] = 0.5
    call(
        library,
        "instance_norm_forward",
        y,
        None,
        None,
        *running,
        x,
        None,
        None,
        4,
        3,
        20,
        eps,
        momentum,
        FIRST,
    )
    wanted = [wide.mean(axis=(0, 2)), wide.var(axis=2, ddof=1).mean(axis=0)]
    np.testing.assert_allclose(running, 0.375 + 0.25 * np.array(wanted), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_are_nan_and_no_others(library: Any, value: float) -> None:
    x = np.random.default_rng(1).standard_normal((4, 9)).astype(np.float32)
    wanted, y = np.empty_like(x), np.empty_like(x)
    for function, scalars in (("layer_norm_forward", (1e-5,)), ("rms_norm_forward", (1e-5, 0.0))):
        statistics = [None] * (2 if function == "layer_norm_forward" else 1)
        call(library, function, wanted, *statistics, x, None, None, 4, 9, *scalars)
        bad = x.copy()
        bad[2, 5] = value
        call(library, function, y, *statistics, bad, None, None, 4, 9, *scalars)
        assert np.isnan(y[2]).all()
        np.testing.assert_array_equal(np.delete(y, 2, axis=0), np.delete(wanted, 2, axis=0))


@pytest.mark.parametrize("value", [0.0, 0.1, -1234.5, 3e38, 1e-44])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 1e-80])
def test_constant_rows_give_the_bias(library: Any, value: float, eps: float) -> None:
    for cols in (1, 2, 3, 100, 1000):
        x = np.full((2, cols), value, np.float32)
        bias = np.random.default_rng(cols).standard_normal(cols).astype(np.float32)
        weight = np.full(cols, 7, np.float32)
        call(library, "layer_norm_forward", x, None, None, x, weight, bias, 2, cols, eps)
        np.testing.assert_array_equal(x, [bias, bias])


@pytest.mark.parametrize("eps", [1e-44, 1e-40, 1e-30, 1e30])
def test_eps_of_any_size(library: Any, eps: float) -> None:
    """As large as the variance, also where a float holds only some bits of it."""
    x = (np.sqrt(eps) * np.random.default_rng(2).standard_normal((3, 50))).astype(np.float32)
    y = np.empty_like(x)
    call(library, "layer_norm_forward", y, None, None, x, None, None, 3, 50, eps)
    assert oracle.worst_units(y, oracle.layer_norm(x, None, None, eps)) <= BOUND
    assert abs(y).max() > 0.5
