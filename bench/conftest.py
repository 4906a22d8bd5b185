"""pytest's side of the benchmarks: the options --quick and --only, and the machine in the saved JSON."""

from typing import Any

import pytest

from bench.cases import BACKWARD, FORWARD, OTHERS, PARTS
from bench.machine import describe
from bench.measure import FULL, FULL_BACKWARD, FULL_OTHERS, QUICK, Effort

EFFORT = {FORWARD: FULL, BACKWARD: FULL_BACKWARD, OTHERS: FULL_OTHERS}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --quick and --only."""
    parser.addoption(
        "--quick", action="store_true", help="a smoke run: few cases, few rounds, meaningless numbers"
    )
    parser.addoption("--only", choices=PARTS, help="the cases of one part of the benchmark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Keep the cases that were asked for."""
    quick, only = config.getoption("--quick"), config.getoption("--only")
    items[:] = [
        item
        for item in items
        if (item.callspec.params["case"].quick or not quick)
        and only in (item.callspec.params["case"].part, None)
    ]


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Say what was measured on what; leave out the machine's name in its network."""
    machine_info.pop("node", None)
    machine_info["cnorm"] = describe()


@pytest.fixture
def effort(request: pytest.FixtureRequest) -> Effort:
    """How long to measure a case."""
    if request.config.getoption("--quick"):
        return QUICK
    return EFFORT[request.node.callspec.params["case"].part]
