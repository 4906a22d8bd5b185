"""Which backend and level are in use, how they are chosen, and what importing them costs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest

import cnorm
from processes import answer, run

BACKEND = "import cnorm; print(cnorm.backend)"
INSTALLED = importlib.util.find_spec("cnorm.native._cnorm") is not None

#: What importing cnorm may add to importing NumPy.
IMPORT_MILLISECONDS = 30.0

LEVELS = {"avx512", "avx2", "base", "sve", "neon", "rvv", "numpy"}


def test_python_is_always_there() -> None:
    assert answer(BACKEND, CNORM_BACKEND="python") == "python"


@pytest.mark.skipif(not INSTALLED, reason="cnorm was installed without its extension module")
def test_native_is_the_default_where_it_is_installed() -> None:
    for value in ("native", "auto", ""):
        assert answer(BACKEND, CNORM_BACKEND=value) == "native"


@pytest.mark.skipif(INSTALLED, reason="the extension module is installed")
def test_python_is_the_default_otherwise_and_native_an_error() -> None:
    assert answer(BACKEND, CNORM_BACKEND="") == "python"
    result = run(BACKEND, check=False, CNORM_BACKEND="native")
    assert result.returncode != 0
    assert "ImportError" in result.stderr
    assert "CNORM_BACKEND" in result.stderr


def test_an_unknown_backend_is_an_error() -> None:
    result = run(BACKEND, check=False, CNORM_BACKEND="fortran")
    assert result.returncode != 0
    assert re.search(r"ValueError: .*CNORM_BACKEND.*'fortran'", result.stderr)


def test_levels_are_known_names_best_first() -> None:
    levels = cnorm.isa_levels()
    assert type(levels) is tuple
    assert levels
    assert set(levels) <= LEVELS
    assert cnorm.isa() in levels
    order = [name for name in ("avx512", "avx2", "base") if name in levels]
    assert order == [name for name in levels if name in ("avx512", "avx2", "base")]


def test_the_best_level_is_the_default() -> None:
    assert answer("import cnorm; print(cnorm.isa() == cnorm.isa_levels()[0])", CNORM_ISA="") == "True"


def test_set_isa_chooses(level: str) -> None:
    assert cnorm.isa() == level
    y = cnorm.layer_norm(np.arange(8, dtype=np.float32))
    assert np.isfinite(y).all()


@pytest.mark.parametrize("name", ["sse9", "", "AVX2", "numpy2", "avx512 "])
def test_set_isa_refuses_unknown_names(name: str) -> None:
    before = cnorm.isa()
    with pytest.raises(ValueError, match=re.escape(", ".join(cnorm.isa_levels()))):
        cnorm.set_isa(name)
    assert cnorm.isa() == before


@pytest.mark.parametrize("name", [None, 2, b"base"])
def test_set_isa_refuses_what_is_no_name(name: object) -> None:
    with pytest.raises(TypeError, match="string"):
        cnorm.set_isa(name)  # type: ignore[arg-type]


@pytest.mark.usefixtures("native")
def test_cnorm_isa_chooses_at_import() -> None:
    for name in cnorm.isa_levels():
        assert answer("import cnorm; print(cnorm.isa())", CNORM_ISA=name) == name


@pytest.mark.usefixtures("native")
def test_an_unknown_cnorm_isa_is_an_error() -> None:
    result = run("import cnorm", check=False, CNORM_ISA="sse9")
    assert result.returncode != 0
    assert re.search(r"ValueError: .*CNORM_ISA.*sse9", result.stderr)


@pytest.mark.usefixtures("native")
def test_the_level_really_changes_the_code_that_runs() -> None:
    """The kernels' own word for it; test_objects.py looks at the instructions of each level."""
    from cnorm.native import _cnorm

    seen = set()
    for name in cnorm.isa_levels():
        cnorm.set_isa(name)
        seen.add(_cnorm.isa())
    assert len(seen) == len(cnorm.isa_levels())


def test_show_config_tells_what_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    cnorm.set_num_threads(3)
    cnorm.show_config()
    text = capsys.readouterr().out
    assert f"cnorm {cnorm.__version__}" in text
    assert f"backend: {cnorm.backend}" in text
    assert re.search(rf"levels: .*{cnorm.isa()}", text)
    assert re.search(r"threads: 3\b", text)


def test_python_dash_m_passes_its_self_test() -> None:
    result = subprocess.run(
        [sys.executable, "-P", "-m", "cnorm", "--no-timing"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"cnorm {cnorm.__version__}" in result.stdout
    for op in ("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"):
        assert result.stdout.count(f"PASS  {op}") >= 4, "two types, forward and backward"
    assert result.stdout.count("PASS  spectral_norm") == 4
    assert result.stdout.count("PASS  normalize") == 4
    assert result.stdout.count("PASS  weight_norm") == 4


def test_everything_public_is_there_and_documented() -> None:
    assert len(set(cnorm.__all__)) == len(cnorm.__all__)
    for name in cnorm.__all__:
        thing = getattr(cnorm, name)
        assert thing is not None
        if callable(thing):
            assert thing.__doc__
            assert "Examples" in thing.__doc__


def _import_microseconds() -> dict[str, int]:
    """Cumulative import times of one fresh process, by module."""
    result = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-c", "import numpy; import cnorm"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \|\s*(\S+)$", result.stderr, re.MULTILINE)
    return {module: int(cumulative) for cumulative, module in lines}


def test_importing_adds_less_than_thirty_milliseconds_to_numpy() -> None:
    """The best of nine fresh processes: what other work on the machine adds is no property of cnorm."""
    best = min(_import_microseconds()["cnorm"] for _ in range(9)) / 1000
    assert best < IMPORT_MILLISECONDS


def test_importing_pulls_in_nothing_large() -> None:
    loaded = answer("import sys, cnorm; print(*sys.modules)").split()
    assert not {"torch", "scipy", "threadpoolctl", "ml_dtypes", "setuptools", "Cython", "cython"} & set(
        loaded
    )
