"""Fixtures of the whole suite, which runs unchanged on either backend (CNORM_BACKEND=native or python)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

import cnorm

NATIVE = cnorm.backend == "native"

#: 2 and 3 split work evenly and unevenly, 7 is more than the cores of a small machine.
THREAD_COUNTS = (1, 2, 3, 7)

hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too (also: -m slow)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests (installs, gigabytes) run when they are asked for."""
    if config.getoption("--slow") or "slow" in config.getoption("-m"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


def pytest_configure(config: pytest.Config) -> None:
    """Where the native backend is expected, its absence is an error and not some hundred skipped tests."""
    if os.environ.get("CNORM_TEST_NATIVE") == "1" and not NATIVE:
        raise pytest.UsageError(
            f"CNORM_TEST_NATIVE=1, but cnorm ({cnorm.__file__}) runs the {cnorm.backend} backend"
        )


def pytest_report_header() -> str:
    levels = ", ".join(cnorm.isa_levels())
    return f"cnorm {cnorm.__version__}: {cnorm.backend} backend, levels {levels}, {cnorm.__file__}"


@pytest.fixture
def native() -> None:
    """For tests of what only the compiled backend has."""
    if not NATIVE:
        pytest.skip("only the native backend has this, and this run uses the Python one")


@pytest.fixture(autouse=True)
def _restore_settings() -> Iterator[None]:
    """Threads and level are the process's only settings; a test may change them freely."""
    threads, level = cnorm.get_num_threads(), cnorm.isa()
    yield
    cnorm.set_num_threads(threads)
    cnorm.set_isa(level)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> np.dtype:
    return np.dtype(request.param)


@pytest.fixture(params=cnorm.isa_levels())
def level(request: pytest.FixtureRequest) -> str:
    """Each level of this CPU, chosen for the test."""
    cnorm.set_isa(request.param)
    return request.param


@pytest.fixture(params=THREAD_COUNTS, ids=lambda n: f"{n} threads")
def threads(request: pytest.FixtureRequest) -> int:
    cnorm.set_num_threads(request.param)
    return request.param
