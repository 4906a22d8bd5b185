"""Imports the examples, which are scripts beside the package, for their tests."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load_example(monkeypatch: pytest.MonkeyPatch, name: str, needs: dict[str, str]) -> ModuleType:
    """Import an example as a script would be; skip where a module it needs is absent."""
    for module, pip_arguments in needs.items():
        if find_spec(module) is None:
            pytest.skip(f"{name} needs {module}: pip install {pip_arguments}")
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(name)
