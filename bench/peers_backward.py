"""Who cnorm's gradients are compared with: all of dx, dweight and dbias, from the statistics of the forward.

NumPy      the composition that users write, in the dtype of x; it allocates its results.
PyTorch    torch.ops.aten.native_*_backward, called directly in inference mode, never through autograd, on
           tensors that share the arrays' memory; it allocates its results. Where it has no such kernel for
           CPUs (RMS norm), the formula in eager torch ops stands for it, and the case is marked as composed.

Both are compared with cnorm's call without `out=`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cnorm
from bench.cases import Case
from bench.check import Groups
from bench.check_backward import UNITS_ALLOWED, judge
from bench.machine import optional
from bench.measure import Call
from bench.peers import CNORM, CNORM_OUT, NUMPY, PYTORCH, Contestant, Line
from bench.problem import Array, BackwardProblem, Statistics, build_backward

ALL = [True, True, True]
"""PyTorch's output mask: dx, dweight and dbias."""


@dataclass(frozen=True)
class BackwardTensors:
    """A problem's arrays as tensors that share their memory; x and dy have their channels at axis 1."""

    case: Case
    aten: Any
    dy: Any
    x: Any
    mean: Any
    rstd: Any
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any


@dataclass(frozen=True)
class BackwardOp:
    """How one op's gradients are called for by each contestant; timed calls do nothing else.

    Calls return dx, dweight and dbias, or without dbias where the op has no bias. The tensors that `torch`'s
    call returns may have another shape of the same elements.
    """

    eps: float
    statistics: Statistics
    cnorm: Callable[[BackwardProblem, Array | None], Call]
    numpy: Callable[[BackwardProblem], Call]
    torch: Callable[[BackwardTensors], Call]
    groups: Callable[[Case], Groups]
    composed: bool = False

    units_allowed: ClassVar[float] = UNITS_ALLOWED

    def prepare(self, case: Case) -> BackwardProblem:
        """Return the case's arrays."""
        return build_backward(case, self.statistics)

    def line_up(self, problem: BackwardProblem) -> Line:
        """Return everybody who can run this case."""
        line = Line(
            {
                CNORM: Contestant(self.cnorm(problem, None), wanted),
                CNORM_OUT: Contestant(self.cnorm(problem, problem.out), wanted),
                NUMPY: Contestant(self.numpy(problem), tuple),
            }
        )
        entered = pytorch(self, problem)
        if isinstance(entered, Contestant):
            line.contestants[PYTORCH] = entered
        else:
            line.notes[PYTORCH] = entered
        return line

    def judge(self, problem: BackwardProblem) -> Callable[[tuple[Array, ...]], float]:
        """Return a function that gives the worst error of a result."""
        return judge(problem, self.groups(problem.case), self.eps)


def wanted(gradients: cnorm.Gradients) -> tuple[Array, ...]:
    """What was asked for."""
    return tuple(gradient for gradient in gradients if gradient is not None)


def composition(problem: BackwardProblem, groups: Groups) -> Call:
    """Return a call of the formula in NumPy, for norms that take the mean and the variance of x."""
    kept = tuple(1 if axis in groups.over else size for axis, size in enumerate(groups.view))
    mean, rstd = problem.mean.reshape(kept), problem.rstd.reshape(kept)
    weight = problem.weight.reshape(groups.parameters)
    over, parameter_axes = groups.over, groups.parameter_axes

    def call() -> tuple[Array, ...]:
        x, dy = problem.x.reshape(groups.view), problem.dy.reshape(groups.view)
        xhat = (x - mean) * rstd
        g = dy * weight
        dx = rstd * (g - g.mean(over, keepdims=True) - xhat * (g * xhat).mean(over, keepdims=True))
        return dx.reshape(problem.x.shape), (dy * xhat).sum(parameter_axes), dy.sum(parameter_axes)

    return call


def pytorch(op: BackwardOp, problem: BackwardProblem) -> Contestant | str:
    """PyTorch's kernel, or why not."""
    torch = optional("torch")
    if torch is None:
        return "not installed"
    torch.set_num_threads(cnorm.get_num_threads())
    last = problem.case.channels_last

    def image(array: Array) -> Any:
        tensor = torch.from_numpy(array)
        return tensor.movedim(-1, 1) if last else tensor

    x = image(problem.x)
    vectors = ("mean", "rstd", "weight", "bias", "running_mean", "running_var")
    tensors = BackwardTensors(
        problem.case,
        torch.ops.aten,
        dy=image(problem.dy),
        x=x,
        **{name: torch.from_numpy(getattr(problem, name)) for name in vectors},
    )

    def result(gradients: Any) -> tuple[Array, ...]:
        dx, *parameters = gradients
        dx = dx.reshape(x.shape)
        return tuple(gradient.numpy() for gradient in (dx.movedim(1, -1) if last else dx, *parameters))

    return Contestant(op.torch(tensors), result)
