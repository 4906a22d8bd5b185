"""The fused multiply-add of CPUs without one (src_c/kernels/fused.h), against exact arithmetic."""

import ctypes
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

KERNELS = Path(__file__).parent.parent / "src_c" / "kernels"
COMPILER = shutil.which("cc")
SOURCE = """
#define FUSED_IN_HARDWARE 0
#include "fused.h"
void fuse(float *out, const float *a, const float *b, const float *sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = fused(a[i], b[i], sum[i]);
}
"""
Floats = NDArray[np.float32]

pytestmark = pytest.mark.skipif(
    COMPILER is None or not KERNELS.exists(), reason="needs a C compiler and src_c"
)


@pytest.fixture(scope="module", params=["-O0", "-O3"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("fused")
    (folder / "fuse.c").write_text(SOURCE)
    flags = [
        request.param,
        "-std=c11",
        "-ffp-contract=off",
        "-DCN_REAL=f32",
        "-DCN_ISA=base",
        "-shared",
        "-fPIC",
    ]
    command = [str(COMPILER), *flags, f"-I{KERNELS}", "fuse.c", "-o", "fuse.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "fuse.so"))


def fuse(library: ctypes.CDLL, a: Floats, b: Floats, total: Floats) -> Floats:
    out = np.empty_like(a)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, a, b, total)]
    library.fuse(*pointers, ctypes.c_size_t(a.size))
    return out


def rounded(exact: Fraction) -> np.float32:
    """To the nearest float32; of two, the even one. The result has to be finite."""
    near = np.float32(float(exact))
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1))


def assert_right(library: ctypes.CDLL, a: Floats, b: Floats, total: Floats) -> None:
    got = fuse(library, a, b, total)
    for x, y, z, result in zip(a.tolist(), b.tolist(), total.tolist(), got, strict=True):
        assert result == rounded(Fraction(x) * Fraction(y) + Fraction(z)), (x.hex(), y.hex(), z.hex())


def significands(rng: np.random.Generator, n: int) -> Floats:
    return (1 + rng.integers(0, 2**23, n) * 2.0**-23).astype(np.float32)


def test_random_operands(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    sign = rng.choice(np.float32([-1, 1]), 3000)
    a, b, total = (np.ldexp(significands(rng, 3000), rng.integers(-9, 9, 3000)) for _ in range(3))
    assert_right(library, a * sign, b, total)


def test_products_that_nearly_make_a_tie(library: ctypes.CDLL) -> None:
    """Half a unit of the sum, but for a part in 2**46: rounded in double and again, they are wrong."""
    rng = np.random.default_rng(2)
    k = rng.integers(1, 64, 3000)
    a = ((1 + k * 2.0**-23) * 2.0**-24).astype(np.float32)
    b = (1 - rng.integers(0, 128, 3000) * 2.0**-24).astype(np.float32)
    for sign in (1, -1):
        total = np.float32(sign) * significands(rng, 3000)
        assert_right(library, a, b, total)
    exact_first = np.float32(np.float64(a) * b + np.float64(total))
    assert (exact_first != fuse(library, a, b, total)).any(), "the cases do not tell one rounding from two"


def test_subnormal_results_and_cancellation(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(3)
    a, b = np.ldexp(significands(rng, 2000), -70), np.ldexp(significands(rng, 2000), -70)
    total = np.ldexp(significands(rng, 2000), rng.integers(-149, -140, 2000))
    assert_right(library, a, b, total)
    a, b = significands(rng, 2000), significands(rng, 2000)
    assert_right(library, a, b, -(a * b))


def test_what_is_not_finite(library: ctypes.CDLL) -> None:
    inf, nan, large = np.inf, np.nan, np.finfo(np.float32).max
    cases = [
        (inf, 1, 1, inf),
        (-inf, 1, 1, -inf),
        (1, 1, -inf, -inf),
        (large, 2, 0, inf),
        (large, 2, -large, large),
    ]
    a, b, total, wanted = (np.array(column, np.float32) for column in zip(*cases, strict=True))
    np.testing.assert_array_equal(fuse(library, a, b, total), wanted)
    a, b, total = (
        np.array(column, np.float32) for column in zip((inf, 1, -inf), (0, inf, 1), (nan, 1, 1), strict=True)
    )
    assert np.isnan(fuse(library, a, b, total)).all()
