"""One case from beginning to end: build it, measure everybody, check everybody, report."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from bench.bandwidth import copies
from bench.cases import Case
from bench.check import UNITS_OF_PEERS
from bench.measure import Call, Effort, Timing, interleave
from bench.peers import CNORM_OUT, PEERS, Line, inference_mode
from bench.problem import Problem

PEDANTIC_ROUNDS = 5
LONGER = 3  # share of time of a case beyond the cache: each of its calls takes a tenth of a second
CLOSE = 0.1  # a case with a ratio nearer to 1 is measured again


P = TypeVar("P", bound=Problem)


class Comparable(Protocol[P]):
    """What forward and backward ops have in common."""

    @property
    def units_allowed(self) -> float:
        """cnorm's largest error, in the units of `judge`."""

    @property
    def composed(self) -> bool:
        """Whether PyTorch has no kernel, and its ops are put together instead."""

    def prepare(self, case: Case) -> P:
        """Return the case's arrays."""

    def line_up(self, problem: P) -> Line:
        """Return everybody who can run this case."""

    def judge(self, problem: P) -> Callable[[Any], float]:
        """Return a function that gives a result's worst error."""


def compare(benchmark: Any, case: Case, op: Comparable[P], effort: Effort) -> None:
    """Benchmark one case.

    pytest-benchmark's own figures are cnorm's call with `out=`, on its own; the comparison comes from the
    interleaved run and goes into ``benchmark.extra_info``.
    """
    if case.beyond_cache:
        effort = replace(effort, seconds=LONGER * effort.seconds)
    problem, line, copy_calls, timings = measure(case, op, effort)
    for _ in range(effort.again):
        if not is_close(timings):
            break
        problem, line, copy_calls, more = measure(case, op, effort)
        timings = {name: timing.joined(more[name]) for name, timing in timings.items()}
    with inference_mode():
        units = check(problem, line, op)
    benchmark.group = case.family
    benchmark.extra_info.update(
        facts(case),
        **rates(case, timings, copy_calls),
        units=units,
        notes=line.notes,
        composed=op.composed,
    )
    benchmark.pedantic(
        line.contestants[CNORM_OUT].call, rounds=PEDANTIC_ROUNDS, iterations=timings[CNORM_OUT].loops
    )


def measure(
    case: Case, op: Comparable[P], effort: Effort
) -> tuple[P, Line, dict[str, Call], dict[str, Timing]]:
    """Build the case, graphs for autograd too, and time everybody in it."""
    problem = op.prepare(case)
    line = op.line_up(problem)
    copy_calls = copies(problem.out, problem.x)
    calls = {name: contestant.call for name, contestant in line.contestants.items()} | copy_calls
    with inference_mode():
        return problem, line, copy_calls, interleave(calls, effort)


def is_close(timings: dict[str, Timing]) -> bool:
    """Whether cnorm and a peer take about the same time, whoever is ahead.

    Which pages arrays happen to lie on changes a call by some percent: new arrays and more rounds tell more.
    """
    return any(abs(ratio - 1) < CLOSE for ratio in ratios_of(timings).values())


def ratios_of(timings: dict[str, Timing]) -> dict[str, float]:
    """Return each peer's time over cnorm's."""
    return {
        peer: timings[peer].median / timings[ours].median for peer, ours in PEERS.items() if peer in timings
    }


def check(problem: P, line: Line, op: Comparable[P]) -> dict[str, float]:
    """Return each contestant's worst error in the op's units; fail if they did not compute the same thing."""
    worst = op.judge(problem)
    units = {}
    for name, contestant in line.contestants.items():
        problem.out.fill(float("nan"))  # nobody may pass on another's result
        units[name] = worst(contestant.result(contestant.call()))
        allowed = UNITS_OF_PEERS if name in PEERS else op.units_allowed
        assert units[name] <= allowed, f"{problem.case}: {name} is {units[name]:.3g} units off"
    return units


def facts(case: Case) -> dict[str, Any]:
    """What was run, as JSON values."""
    names = ("op", "direction", "part", "family", "name", "shape", "dtype", "channels_last", "beyond_cache")
    return {name: getattr(case, name) for name in (*names, "nbytes", "passes", "traffic")}


def rates(case: Case, timings: dict[str, Timing], copy_calls: dict[str, Call]) -> dict[str, Any]:
    """What was measured: seconds, GB/s of useful traffic, fraction of a copy's, ratio to each peer."""
    seconds = {name: timing.median for name, timing in timings.items()}
    gb_per_second = case.traffic / seconds[CNORM_OUT] / 1e9
    copy = max((2 * case.nbytes / seconds[name] / 1e9 for name in copy_calls), default=None)
    ratios = ratios_of(timings)
    return {
        "seconds": seconds,
        "gb_per_second": gb_per_second,
        "copy_gb_per_second": copy,
        "fraction_of_copy": None if copy is None else gb_per_second / copy,
        "ratios": ratios,
        "disturbed": [name for name, timing in timings.items() if timing.disturbed],
        "best_peer": min(ratios, key=lambda peer: ratios[peer]),
    }
