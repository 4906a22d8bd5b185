"""A module of other Cython code, built as users build theirs: nothing of cnorm's source tree, no library."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import cnorm

SETUP = """
from setuptools import Extension, setup
from Cython.Build import cythonize
setup(name="consumer", ext_modules=cythonize([Extension("{name}", ["{name}.pyx"])], quiet=True))
"""


def build(name: str, source: str, folder: Path) -> ModuleType:
    """Compile and import Cython code; the test is skipped where that is not possible."""
    if cnorm.backend != "native":
        pytest.skip("only the native backend has this, and this run uses the Python one")
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler: {compiler}")
    (folder / f"{name}.pyx").write_text(source)
    (folder / "setup.py").write_text(SETUP.format(name=name))
    result = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    path = next(p for p in folder.glob(f"{name}.*") if p.suffix in (".so", ".pyd"))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
