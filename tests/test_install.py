"""The archives install and work: with a compiler, without one, without OpenMP, and editable.

Everything happens in copies below a temporary folder; the packages needed for building are this environment's
own.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
pytest.importorskip("Cython")

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="these tests need the source tree"),
]

BUILT = shutil.ignore_patterns(
    ".git", "build", "dist", "*.egg-info", "*.so", "*.pyd", "*.o", "__pycache__", "_cnorm.c"
)

CHECK = """
import numpy as np
import cnorm
x = np.arange(40000, 40004, dtype=np.float32)
assert abs(cnorm.layer_norm(x) - [-1.34163542, -0.44721181, 0.44721181, 1.34163542]).max() < 1e-6
x = np.linspace(-1, 1, 60 * 4099, dtype=np.float32).reshape(4, 15, 4099)
ys = cnorm.rms_norm(x), cnorm.group_norm(x, 5), cnorm.instance_norm(x), cnorm.batch_norm(x, training=True)
assert all(np.isfinite(y).all() for y in ys)
cnorm.show_config()
print(cnorm.__file__)
"""


PYTHON = sys.executable


def _run(
    *command: str, cwd: Path, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    ours = ("CNORM_", "PYTHONPATH", "PIP_QUIET")  # what pip prints is looked at
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False, env=clean | environment
    )
    if check:
        assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result


def _pip_install(source: Path, target: Path, *options: str, check: bool = True, **environment: str) -> str:
    """Install into a folder of its own, without index, dependencies or build isolation."""
    command = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-v",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    )
    result = _run(
        *command,
        *options,
        "--target",
        str(target),
        str(source),
        cwd=target.parent,
        check=check,
        **environment,
    )
    assert check or result.returncode != 0, "the installation was to fail"
    return result.stdout + result.stderr


def _config(target: Path, **environment: str) -> str:
    """What the package in ``target`` says of itself, after it has computed something."""
    printed = _run(
        sys.executable, "-P", "-c", CHECK, cwd=target.parent, PYTHONPATH=str(target), **environment
    ).stdout
    assert str(target) in printed
    return printed


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree as a fresh clone has it."""
    folder = tmp_path_factory.mktemp("source") / "cnorm"
    shutil.copytree(ROOT, folder, ignore=BUILT)
    return folder


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(
        sys.executable,
        "-c",
        f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})",
        cwd=source,
    )
    (archive,) = folder.glob("*.tar.gz")
    return archive


def _compiler() -> str:
    compiler = next((c for c in (os.environ.get("CC"), "gcc", "cc", "clang") if c and shutil.which(c)), None)
    if compiler is None:
        pytest.skip("no C compiler")
    return compiler


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    )
    _run(*command, str(sdist), cwd=folder, CC=_compiler(), CNORM_REQUIRE_NATIVE="1")
    (archive,) = folder.glob("*.whl")
    return archive


def test_the_source_archive_is_complete(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sdist.name.startswith("cnorm_kernels-")
    for path in ROOT.glob("src_c/**/*.[ch]"):
        if "build" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names
    for pattern in ("cnorm/**/*.py", "cnorm/**/*.px[di]", "cnorm/**/*.pyx", "tests/*.py"):
        for path in ROOT.glob(pattern):
            assert path.relative_to(ROOT).as_posix() in names
    for name in ("setup.py", "pyproject.toml", "LICENSE", "cnorm/py.typed"):
        assert name in names
    assert not [n for n in names if n.endswith((".so", ".o", ".pyc", "_cnorm.c"))]


def test_the_wheel_holds_the_extension_and_what_cython_users_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert sum(n.startswith("cnorm/native/_cnorm.") and n.endswith((".so", ".pyd")) for n in names) == 1
    for name in (
        "cnorm/native/_cnorm.pxd",
        "cnorm/native/cnorm_h.pxd",
        "cnorm/py.typed",
        "cnorm/__init__.py",
    ):
        assert name in names
    assert not [n for n in names if n.startswith(("tests/", "src_c/", "bench/", "examples/"))]
    assert not wheel.name.endswith("none-any.whl")


def test_the_wheel_installs_and_computes(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    _pip_install(wheel, target)
    printed = _config(target, CNORM_BACKEND="native")
    assert "backend: native" in printed
    _run(sys.executable, "-P", "-m", "cnorm", "--no-timing", cwd=tmp_path, PYTHONPATH=str(target))


def test_without_a_compiler_the_python_backend_is_installed_and_it_is_said_once(
    sdist: Path, tmp_path: Path
) -> None:
    target = tmp_path / "site"
    words = _pip_install(sdist, target, CC="/bin/false")
    assert words.count("could not be built") == 1
    printed = _config(target)
    assert "backend: python" in printed
    assert not list(target.glob("cnorm/native/_cnorm*.so"))
    refused = _run(
        sys.executable,
        "-c",
        "import cnorm",
        cwd=tmp_path,
        check=False,
        PYTHONPATH=str(target),
        CNORM_BACKEND="native",
    )
    assert "ImportError" in refused.stderr


def test_without_a_compiler_a_required_native_backend_is_an_error(sdist: Path, tmp_path: Path) -> None:
    _pip_install(sdist, tmp_path / "site", check=False, CC="/bin/false", CNORM_REQUIRE_NATIVE="1")


@pytest.mark.skipif(os.name == "nt", reason="wraps the compiler in a shell script")
def test_another_build_computes_the_same(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    """A compiler that refuses -fopenmp, flags that would break promises: the bits are the full build's.

    -march=native -ffast-math -Ofast may not reach the kernels. One build for both: it takes a minute, or less
    with ccache: with the interpreter's own flags said again, the kernels' are those of the other build.
    """
    wrapper = tmp_path / "cc-without-openmp"
    wrapper.write_text(
        f'#!/bin/sh\nfor word; do [ "$word" = -fopenmp ] && exit 1; done\nexec {_compiler()} "$@"\n'
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    target, full = tmp_path / "site", tmp_path / "full"
    flags = f"{sysconfig.get_config_var('CFLAGS') or ''} -march=native -ffast-math -Ofast"
    _pip_install(sdist, target, CC=str(wrapper), CFLAGS=flags, CNORM_REQUIRE_NATIVE="1")
    _pip_install(wheel, full)
    printed = _config(target, CNORM_BACKEND="native")
    assert "OpenMP: no" in printed
    digest = (
        "import hashlib, numpy as np, cnorm; cnorm.set_num_threads(3);"
        "x = np.sin(np.arange(60 * 4099, dtype=np.float32)).reshape(4, 15, 4099) + np.float32(1e4);"
        "ys = [cnorm.layer_norm(x), cnorm.group_norm(x, 5)];"
        "batch = lambda level: cnorm.set_isa(level) or cnorm.batch_norm(x, training=True);"
        "ys += [batch(level) for level in cnorm.isa_levels()];"
        "y, mean, rstd = cnorm.layer_norm(x, return_stats=True);"
        "ys += cnorm.layer_norm_backward(y, x, mean, rstd, need=('x', 'weight', 'bias'));"
        "print(hashlib.sha256(b''.join(y.tobytes() for y in ys)).hexdigest(), 1e-310 * 0.5 != 0)"
    )
    hashes = {
        _run(
            sys.executable, "-P", "-c", digest, cwd=tmp_path, PYTHONPATH=str(t), CNORM_BACKEND="native"
        ).stdout
        for t in (target, full)
    }
    assert len(hashes) == 1
    assert hashes.pop().strip().endswith("True"), (
        "-ffast-math flushes subnormals from the moment it is loaded"
    )


def test_editable(source: Path, tmp_path: Path) -> None:
    """``pip install -e .``: the package is the source tree's, and native."""
    tree = tmp_path / "tree"
    shutil.copytree(source, tree)
    prefix = tmp_path / "prefix"
    command = (
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    )
    environment = {"CC": _compiler(), "CNORM_REQUIRE_NATIVE": "1"}
    _run(
        *command, "--ignore-installed", "--prefix", str(prefix), "-e", str(tree), cwd=tmp_path, **environment
    )
    (site,) = {p.parent for p in prefix.rglob("*.dist-info")}
    # The finder of the editable install goes first: another cnorm may be installed where this test runs.
    first = "sys.meta_path.insert(0, sys.meta_path.pop())"
    code = f"import site, sys; site.addsitedir({str(site)!r}); {first}\n{CHECK}"
    printed = _run(sys.executable, "-P", "-c", code, cwd=tmp_path, CNORM_BACKEND="native").stdout
    assert str(tree / "cnorm") in printed
    assert "backend: native" in printed
