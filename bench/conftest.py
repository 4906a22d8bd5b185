"""pytest's side of the benchmarks: the --quick option, and the machine in the saved JSON."""

from typing import Any

import pytest

from bench.machine import describe
from bench.measure import FULL, QUICK, Effort


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --quick."""
    parser.addoption(
        "--quick", action="store_true", help="a smoke run: few cases, few rounds, meaningless numbers"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Keep the quick cases alone when asked to."""
    if config.getoption("--quick"):
        items[:] = [item for item in items if item.callspec.params["case"].quick]


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Say what was measured on what; leave out the machine's name in its network."""
    machine_info.pop("node", None)
    machine_info["cnorm"] = describe()


@pytest.fixture
def effort(request: pytest.FixtureRequest) -> Effort:
    """How long to measure a case."""
    return QUICK if request.config.getoption("--quick") else FULL
