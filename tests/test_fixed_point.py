"""The fixed-point norms of the C library (src_c/fixed) against NumPy, and what is not in their objects."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCES = sorted((Path(__file__).parent.parent / "src_c" / "fixed").glob("*.c"))
COMPILER = shutil.which("cc")
OK, NULL, VALUE, OVERLAP = range(4)
COLS_MOST = 2**23

pytestmark = pytest.mark.skipif(COMPILER is None or not SOURCES, reason="needs a C compiler and src_c")


class Norm(ctypes.Structure):
    """cnorm_norm_s8."""

    _fields_ = (
        ("cols", ctypes.c_uint32),
        ("input_zero_point", ctypes.c_int32),
        ("output_zero_point", ctypes.c_int32),
        ("eps_multiplier", ctypes.c_uint32),
        ("eps_exponent", ctypes.c_int32),
        ("weight_multiplier", ctypes.c_int32),
        ("weight_shift", ctypes.c_int32),
        ("bias_multiplier", ctypes.c_int32),
        ("bias_shift", ctypes.c_int32),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("fixed") / "fixed.so"
    command = [
        str(COMPILER),
        "-std=c11",
        "-O2",
        "-shared",
        "-fPIC",
        *map(str, SOURCES),
        "-lm",
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def set_up(library: Any, cols: int, **changes: Any) -> tuple[int, Norm]:
    values: dict[str, Any] = {"eps": 1e-5, "input_scale": 0.05, "input_zero": 0, "output_scale": 0.03}
    values |= {"output_zero": 0, "weight_scale": 1 / 32767, "bias_scale": 1e-6} | changes
    norm = Norm()
    double = ctypes.c_double
    status = library.cnorm_norm_s8_setup(
        ctypes.byref(norm), ctypes.c_size_t(cols), double(values["eps"]), double(values["input_scale"]),
        int(values["input_zero"]), double(values["weight_scale"]), double(values["bias_scale"]),
        double(values["output_scale"]), int(values["output_zero"]),
    )  # fmt: skip
    return status, norm


def pointer(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def call(
    library: Any, op: str, norm: Norm, x: np.ndarray, weight: Any = None, bias: Any = None
) -> np.ndarray:
    y = np.full_like(x, 99)
    rows = ctypes.c_size_t(len(x))
    status = getattr(library, f"cnorm_{op}_s8")(
        pointer(y), pointer(x), pointer(weight), pointer(bias), rows, ctypes.byref(norm)
    )
    assert status == OK
    return y


def exact(
    op: str, x: np.ndarray, weight: Any, bias: Any, eps: float, scales: tuple[float, ...], zeros: Any
) -> Any:
    """The result in steps, before rounding: float64 on the numbers that the quantised ones stand for."""
    input_scale, weight_scale, bias_scale, output_scale = scales
    real = input_scale * (x.astype(np.float64) - zeros[0])
    if op == "layer_norm":
        real = real - real.mean(axis=1, keepdims=True)
    root = np.sqrt((real**2).mean(axis=1, keepdims=True) + eps)
    hat = np.divide(real, root, out=np.zeros_like(real), where=root > 0)
    y = hat * (weight_scale if weight is None else weight_scale * weight) + (
        0 if bias is None else bias_scale * bias
    )
    return np.clip(y / output_scale + zeros[1], -128, 127)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("zeros", [(0, 0), (-128, 127), (127, -128), (3, -5)])
@pytest.mark.parametrize("cols", [1, 2, 7, 64, 768])
def test_results_are_the_rounded_ones(library: Any, op: str, zeros: tuple[int, int], cols: int) -> None:
    rng = np.random.default_rng(cols)
    x = rng.integers(-128, 128, (30, cols), np.int8)
    x[0] = 17
    x[1], x[1, 0] = -128, 127
    weight = rng.integers(-32768, 32768, cols, np.int16)
    bias = rng.integers(-(2**20), 2**20, cols, np.int32)
    scales = (0.05, 1 / 32767, 1e-6, 0.03)
    status, norm = set_up(library, cols, input_zero=zeros[0], output_zero=zeros[1])
    assert status == OK
    wanted = exact(op, x, weight, bias, 1e-5, scales, zeros)
    y = call(library, op, norm, x, weight, bias)
    assert abs(y - wanted).max() < 0.501
    assert abs(y - np.floor(wanted + 0.5)).max() <= 1


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_the_longest_rows(library: Any, op: str) -> None:
    """All sums at the ends of their widths."""
    x = np.full((1, COLS_MOST), -128, np.int8)
    x[0, -1] = 127
    for zero in (-128, 127):
        status, norm = set_up(library, COLS_MOST, input_zero=zero, weight_scale=0.03)
        assert status == OK
        wanted = exact(op, x, None, None, 1e-5, (0.05, 0.03, 1e-6, 0.03), (zero, 0))
        assert abs(call(library, op, norm, x) - wanted).max() < 0.501


def test_rows_without_variance_give_the_bias(library: Any) -> None:
    bias = np.arange(-20, 20, dtype=np.int32) * 30000
    for eps in (0.0, 1e-5):
        for value in (-128, 0, 127):
            x = np.full((2, 40), value, np.int8)
            _, norm = set_up(library, 40, eps=eps, input_zero=value)
            wanted = np.floor(bias * 1e-6 / 0.03 + 0.5).astype(np.int8)
            for op in ("layer_norm", "rms_norm"):
                np.testing.assert_array_equal(call(library, op, norm, x, None, bias), [wanted, wanted])


def test_outputs_saturate(library: Any) -> None:
    x = np.array([[-100, 100, 100, -100]], np.int8)
    _, norm = set_up(library, 4, weight_scale=7, output_scale=0.03)
    np.testing.assert_array_equal(call(library, "layer_norm", norm, x), [[-128, 127, 127, -128]])


def test_output_may_be_the_input(library: Any) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (5, 33), np.int8)
    _, norm = set_up(library, 33, weight_scale=1)
    wanted = call(library, "rms_norm", norm, x)
    data = pointer(x)
    assert library.cnorm_rms_norm_s8(data, data, None, None, ctypes.c_size_t(5), ctypes.byref(norm)) == OK
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize(
    "changes",
    [{"eps": -1}, {"eps": np.nan}, {"input_scale": 0}, {"output_scale": np.inf}, {"input_zero": 128},
     {"output_zero": -129}, {"weight_scale": 8}, {"bias_scale": 1e-3}, {"cols": COLS_MOST + 1}],
)  # fmt: skip
def test_setup_refuses(library: Any, changes: dict[str, Any]) -> None:
    status, norm = set_up(library, changes.pop("cols", 4), **changes)
    assert status == VALUE
    assert not any(bytes(norm))


@pytest.mark.parametrize(
    ("field", "value"),
    [("cols", COLS_MOST + 1), ("input_zero_point", 200), ("output_zero_point", -200), ("eps_multiplier", 5),
     ("eps_exponent", 97), ("weight_multiplier", -1), ("weight_shift", 9), ("bias_multiplier", 7),
     ("bias_shift", 0)],
)  # fmt: skip
def test_plans_written_by_hand_are_checked(library: Any, field: str, value: int) -> None:
    _, norm = set_up(library, 4)
    setattr(norm, field, value)
    x, y = np.zeros((2, 1, 4), np.int8)
    for op in (library.cnorm_layer_norm_s8, library.cnorm_rms_norm_s8):
        assert op(pointer(y), pointer(x), None, None, ctypes.c_size_t(1), ctypes.byref(norm)) == VALUE


def test_missing_and_overlapping_arrays(library: Any) -> None:
    _, norm = set_up(library, 4)
    memory = np.zeros(64, np.int8)
    x, one, plan = memory[8:], ctypes.c_size_t(1), ctypes.byref(norm)
    for op in (library.cnorm_layer_norm_s8, library.cnorm_rms_norm_s8):
        assert op(None, pointer(x), None, None, one, plan) == NULL
        assert op(pointer(x), None, None, None, one, plan) == NULL
        assert op(pointer(x), pointer(x), None, None, one, None) == NULL
        assert op(pointer(memory[7:]), pointer(x), None, None, one, plan) == OVERLAP
        assert op(pointer(x), pointer(x), pointer(memory[4:]), None, one, plan) == OVERLAP
        assert op(pointer(x), pointer(x), None, pointer(memory[8:]), one, plan) == OVERLAP
        assert op(None, None, None, None, ctypes.c_size_t(0), plan) == OK


TARGETS = {
    "cc": (["-mgeneral-regs-only"], "objdump", r"%[xyz]mm|%st|\sf(ld|st|add|mul)"),
    "arm-none-eabi-gcc": (["-mcpu=cortex-m0", "-mthumb"], "arm-none-eabi-objdump", r"__aeabi_[fd]|\sv\w+\.f"),
}


@pytest.mark.parametrize("compiler", TARGETS)
@pytest.mark.parametrize(
    "source", [path for path in SOURCES if "setup" not in path.name], ids=lambda path: path.stem
)
def test_objects_hold_no_floating_point(compiler: str, source: Path, tmp_path: Path) -> None:
    """On x86-64 the compiler may use integer registers alone; on a Cortex-M0 floats would be calls."""
    flags, objdump, forbidden = TARGETS[compiler]
    if shutil.which(compiler) is None or shutil.which(objdump) is None:
        pytest.skip(f"needs {compiler} and {objdump}")
    target = tmp_path / "object.o"
    subprocess.run([compiler, "-std=c11", "-O2", *flags, "-c", str(source), "-o", str(target)], check=True)
    code = subprocess.run([objdump, "-dr", str(target)], capture_output=True, text=True, check=True).stdout
    assert "cn" in code
    assert not re.findall(forbidden, code)
