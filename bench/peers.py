"""Who cnorm is compared with, and how each of them is called.

NumPy         the composition that users write; it allocates its result, so it is compared with cnorm's call
              without `out=`.
PyTorch       torch.nn.functional in inference mode, on tensors that share the arrays' memory; it has no
              `out=` either.
ONNX Runtime  a graph of the one node, parameters as initializers, input and output bound to the arrays; it
              allocates nothing, so it is compared with cnorm's call with `out=`.

All of them use as many threads as cnorm. PyTorch and ONNX Runtime are optional.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import cnorm
from bench.cases import Case
from bench.check import UNITS_ALLOWED, Groups, worst_units
from bench.machine import optional
from bench.measure import Call
from bench.problem import Array, Problem, build

CNORM, CNORM_OUT = "cnorm", "cnorm, out="
NUMPY, PYTORCH, ONNXRUNTIME = "NumPy", "PyTorch", "ONNX Runtime"
PEERS = {NUMPY: CNORM, PYTORCH: CNORM, ONNXRUNTIME: CNORM_OUT}
"""Each peer, and the call of cnorm's that does the same amount of work."""


@dataclass(frozen=True)
class Contestant:
    """A call to time, and how to see what it returned as an array laid out like x (backward: a tuple)."""

    call: Call
    result: Callable[[Any], Any]


@dataclass(frozen=True)
class Node:
    """An ONNX node. `inputs` name fields of the problem, x first; `outputs` of it after y are scratch."""

    op_type: str
    inputs: tuple[str, ...]
    attributes: dict[str, float]
    outputs: tuple[str, ...] = ("y",)
    opset: int = 21


@dataclass(frozen=True)
class Tensors:
    """A problem's arrays as tensors that share their memory; x is viewed with its channels at axis 1."""

    case: Case
    torch: Any
    x: Any
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    @property
    def functional(self) -> Any:
        """torch.nn.functional."""
        return self.torch.nn.functional


@dataclass(frozen=True)
class Op:
    """How one op is called by each contestant, prepared so that the timed call does nothing else.

    Without an ONNX node for it, `onnx` is None.
    """

    eps: float
    cnorm: Callable[[Problem, Array | None], Call]
    numpy: Callable[[Problem], Call]
    torch: Callable[[Tensors], Call]
    onnx: Callable[[Case], Node] | None
    groups: Callable[[Case], Groups]
    composed: bool = False

    units_allowed: ClassVar[float] = UNITS_ALLOWED

    def prepare(self, case: Case) -> Problem:
        """Return the case's arrays."""
        return build(case)

    def line_up(self, problem: Problem) -> "Line":
        """Return everybody who can run this case."""
        return line_up(self, problem)

    def judge(self, problem: Problem) -> Callable[[Array], float]:
        """Return a function that gives a result's worst error in units of N1."""
        return functools.partial(worst_units, problem, self.groups(problem.case), self.eps)


@dataclass
class Line:
    """The contestants of one case, and why some are missing."""

    contestants: dict[str, Contestant]
    notes: dict[str, str] = field(default_factory=dict)


def line_up(op: Op, problem: Problem) -> Line:
    """Return everybody who can run this case."""
    line = Line(
        {
            CNORM: Contestant(op.cnorm(problem, None), np.asarray),
            CNORM_OUT: Contestant(op.cnorm(problem, problem.out), np.asarray),
            NUMPY: Contestant(op.numpy(problem), np.asarray),
        }
    )
    for name, enter in ((PYTORCH, pytorch), (ONNXRUNTIME, onnxruntime)):
        entered = enter(op, problem)
        if isinstance(entered, Contestant):
            line.contestants[name] = entered
        else:
            line.notes[name] = entered
    return line


def inference_mode() -> contextlib.AbstractContextManager[Any]:
    """PyTorch's inference mode, entered once around the measurement; nothing where it is not installed."""
    torch = optional("torch")
    return contextlib.nullcontext() if torch is None else torch.inference_mode()


def pytorch(op: Op, problem: Problem) -> Contestant | str:
    """PyTorch eager, or why not."""
    torch = optional("torch")
    if torch is None:
        return "not installed"
    torch.set_num_threads(cnorm.get_num_threads())
    last = problem.case.channels_last
    x = torch.from_numpy(problem.x)
    mean, var = problem.running()
    tensors = Tensors(
        problem.case,
        torch,
        x.movedim(-1, 1) if last else x,
        *(torch.from_numpy(array) for array in (problem.weight, problem.bias, mean, var)),
    )

    def result(y: Any) -> Array:
        array: Array = (y.movedim(1, -1) if last else y).numpy()
        return array

    return Contestant(op.torch(tensors), result)


def onnxruntime(op: Op, problem: Problem) -> Contestant | str:
    """ONNX Runtime with bound buffers, or why not."""
    runtime, onnx = optional("onnxruntime"), optional("onnx")
    if runtime is None or onnx is None:
        return "not installed"
    if op.onnx is None:
        return "no such node"
    if problem.case.channels_last:
        return "channels first only"
    options = runtime.SessionOptions()
    options.intra_op_num_threads = cnorm.get_num_threads()
    options.log_severity_level = 4
    node = op.onnx(problem.case)
    try:
        session = runtime.InferenceSession(
            model(onnx, node, problem), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime's exceptions have no narrower base class
        return "no kernel for this type" if "NOT_IMPLEMENTED" in str(error) else str(error)
    binding = session.io_binding()
    buffers = {name: np.empty_like(problem.running_mean) for name in node.outputs} | {"y": problem.out}
    binding.bind_input("x", "cpu", 0, problem.x.dtype, problem.x.shape, problem.x.ctypes.data)
    for name in node.outputs:
        buffer = buffers[name]
        binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)

    def result(_: Any, buffers: dict[str, Array] = buffers) -> Array:  # also keeps the bound memory alive
        return buffers["y"]

    return Contestant(functools.partial(session.run_with_iobinding, binding), result)


def model(onnx: Any, node: Node, problem: Problem) -> bytes:
    """Return a serialized graph of the one node, with parameters as initializers."""
    helper = onnx.helper
    kind = helper.np_dtype_to_tensor_dtype(problem.x.dtype)
    parameters = [onnx.numpy_helper.from_array(getattr(problem, name), name) for name in node.inputs[1:]]
    outputs = [
        helper.make_tensor_value_info(
            name, kind, problem.x.shape if name == "y" else problem.running_mean.shape
        )
        for name in node.outputs
    ]
    graph = helper.make_graph(
        [helper.make_node(node.op_type, list(node.inputs), list(node.outputs), **node.attributes)],
        "one node",
        [helper.make_tensor_value_info("x", kind, problem.x.shape)],
        outputs,
        parameters,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=10)
    serialized: bytes = made.SerializeToString()
    return serialized
