"""Whitening in training, of images, features and patches, by every method."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.cases_whiten import WHITEN, WhitenCase
from bench.compare import compare
from bench.measure import Effort
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.peers_whiten import EPS, ITERATIONS, numpy_forward, torch_contestant
from bench.problem import Array, Problem, build


def options(case: WhitenCase) -> dict[str, Any]:
    """Keyword arguments of the case's call."""
    return {
        "eps": EPS,
        "method": case.method,
        "groups": case.num_groups,
        "axis": case.axis,
        "n_iterations": ITERATIONS,
    }


CONDITION = {"pca": 100.0}
"""How much less certain results are than their covariance: its eigenvalues lie close to each other here."""


def worst_units(wanted: Array, case: WhitenCase, result: Array) -> float:
    """Largest error, in units of rounding times the largest magnitude of all."""
    error = np.abs(result - wanted).max() / np.abs(wanted).max() / CONDITION.get(case.method, 1.0)
    return float("inf") if np.isnan(error) else float(error / (np.finfo(case.dtype).eps / 2))


class WhitenOp:
    """How whiten is called by each contestant. Allowed is what LAPACK's rounding of 256 channels comes to."""

    units_allowed = 100.0
    composed = True

    def prepare(self, case: WhitenCase) -> Problem:
        """Return the case's arrays."""
        return build(case)

    def line_up(self, problem: Problem) -> Line:
        """Return everybody who can run this case."""
        x, case = problem.x, problem.case
        assert isinstance(case, WhitenCase)
        calls = {
            CNORM: partial(cnorm.whiten, x, **options(case)),
            CNORM_OUT: partial(cnorm.whiten, x, out=problem.out, **options(case)),
            NUMPY: lambda: numpy_forward(x, case)[0],
        }
        line = Line({name: Contestant(call, np.asarray) for name, call in calls.items()})
        torch = torch_contestant(case, x, None)
        if isinstance(torch, Contestant):
            line.contestants[PYTORCH] = torch
        else:
            line.notes[PYTORCH] = torch
        return line

    def judge(self, problem: Problem) -> Callable[[Array], float]:
        """Return a function that gives a result's worst error."""
        assert isinstance(problem.case, WhitenCase)
        wanted = numpy_forward(problem.x.astype(np.float64), problem.case)[0]
        return partial(worst_units, wanted, problem.case)


@pytest.mark.parametrize("case", WHITEN, ids=str)
def test_whiten(benchmark: Any, case: WhitenCase, effort: Effort) -> None:
    compare(benchmark, case, WhitenOp(), effort)
