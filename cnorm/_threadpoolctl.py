"""Makes threadpoolctl see and limit cnorm's threads.

Importing threadpoolctl takes four milliseconds, more than the rest of cnorm, and most programs never need it.
So the controller is registered at once where threadpoolctl is already loaded, and otherwise by a finder on
``sys.meta_path`` that waits for somebody to import it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cnorm._version import __version__


def _register(threadpoolctl: Any) -> None:
    """Add a controller for the extension module's exported thread functions."""
    if not hasattr(threadpoolctl, "register"):
        return  # versions before 3.2 know a fixed set of libraries

    class CnormController(threadpoolctl.LibController):  # type: ignore[misc]
        user_api = "openmp"
        internal_api = "cnorm"
        filename_prefixes = ("_cnorm",)
        check_symbols = ("cnorm_get_num_threads", "cnorm_set_num_threads")

        def get_num_threads(self) -> int:
            return int(self.dynlib.cnorm_get_num_threads())

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.cnorm_set_num_threads(num_threads)

        def get_version(self) -> str:
            return __version__

    threadpoolctl.register(CnormController)


class _Registrar:
    """Finder that finds nothing itself, but has `_register` called once threadpoolctl has been executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "threadpoolctl":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._extend(spec.loader)
                return spec
        return None

    def _extend(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _register(module)

        loader.exec_module = exec_module


def register() -> None:
    """Register the controller now, or as soon as threadpoolctl is imported."""
    if "threadpoolctl" in sys.modules:
        _register(sys.modules["threadpoolctl"])
    else:
        sys.meta_path.insert(0, _Registrar())
