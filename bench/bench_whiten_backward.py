"""Whitening's gradient, from what the forward returned: eigenvectors and matrices are not computed anew."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import cnorm
from bench.bench_whiten import options, worst_units
from bench.cases_whiten import WHITEN_BACKWARD, WhitenCase
from bench.compare import compare
from bench.measure import Effort
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.peers_whiten import numpy_zca_backward, torch_contestant
from bench.problem import Array, BackwardProblem, Problem, build_backward


def nothing(p: Problem) -> tuple[Array, Array]:
    """Return what takes the place of statistics that whitening has none of."""
    return p.running_mean, p.running_var


class WhitenBackwardOp:
    """How whiten's gradient is called for by each contestant."""

    units_allowed = 200.0
    composed = True

    def prepare(self, case: WhitenCase) -> BackwardProblem:
        """Return the case's arrays."""
        return build_backward(case, nothing)

    def line_up(self, problem: BackwardProblem) -> Line:
        """Return everybody who can run this case."""
        case, x, dy = problem.case, problem.x, problem.dy
        assert isinstance(case, WhitenCase)
        _, _, factors = cnorm.whiten(x, return_stats=True, **options(case))
        call = partial(cnorm.whiten_backward, dy, x, factors, axis=case.axis)
        line = Line(
            {
                CNORM: Contestant(call, lambda grads: grads.x),
                CNORM_OUT: Contestant(partial(call, out=problem.out), lambda grads: grads.x),
            }
        )
        if case.method == "zca":
            line.contestants[NUMPY] = Contestant(numpy_zca_backward(dy, x, case), np.asarray)
        else:
            line.notes[NUMPY] = "the formula is written for ZCA only"
        torch = torch_contestant(case, x, dy)
        if isinstance(torch, Contestant):
            line.contestants[PYTORCH] = torch
        else:
            line.notes[PYTORCH] = torch
        return line

    def judge(self, problem: BackwardProblem) -> Callable[[Array], float]:
        """Return a function that gives a result's worst error; the gradient in float64 is cnorm's own."""
        case = problem.case
        assert isinstance(case, WhitenCase)
        x, dy = problem.x.astype(np.float64), problem.dy.astype(np.float64)
        if case.method == "zca":
            wanted = numpy_zca_backward(dy, x, case)()
        else:
            _, _, factors = cnorm.whiten(x, return_stats=True, **options(case))
            wanted = cnorm.whiten_backward(dy, x, factors, axis=case.axis).x
        return partial(worst_units, wanted, case)


@pytest.mark.parametrize("case", WHITEN_BACKWARD, ids=str)
def test_whiten_backward(benchmark: Any, case: WhitenCase, effort: Effort) -> None:
    compare(benchmark, case, WhitenBackwardOp(), effort)
