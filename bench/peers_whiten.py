"""Who whitening is compared with: the compositions that users write of NumPy's and of PyTorch's operations.

Mean, covariance by matmul, eigenvalues, Cholesky factor or Newton-Schulz iterations, and the product with W,
all in the dtype of x. PyTorch's is put together as in the IterNorm that its authors published (baddbmm for
the covariance and for the iterations), with y contiguous and in the memory order of x, as theirs and cnorm's.
The backward of PyTorch is autograd's, on a graph that is kept: the forward pass is not timed. NumPy's is the
formula for "zca", from what its forward has left.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import cnorm
from bench.cases_whiten import WhitenCase
from bench.machine import optional
from bench.measure import Call
from bench.peers import Contestant
from bench.problem import Array

EPS = 1e-5
ITERATIONS = 5


def columns(x: Array, case: WhitenCase) -> Array:
    """Return (groups, width, columns): a copy, unless the batch is a matrix."""
    return np.moveaxis(x, case.axis, 0).reshape(case.num_groups, case.width, -1)


def restored(y: Array, case: WhitenCase) -> Array:
    """Return (groups, width, columns) in the shape and the memory order of x."""
    others = [n for i, n in enumerate(case.shape) if i != case.axis % len(case.shape)]
    return np.ascontiguousarray(np.moveaxis(y.reshape(case.channels, *others), 0, case.axis))


def product(matrix: Any, d: Any) -> Any:
    """Matrix times columns; if those of one group are rows in memory, then the result's too."""
    rows = d.swapaxes(1, 2)
    if rows.shape[0] == 1 and is_contiguous(rows):
        return (rows @ matrix.swapaxes(1, 2)).swapaxes(1, 2)
    return matrix @ d


def is_contiguous(array: Any) -> bool:
    """Whether a NumPy array or a tensor is."""
    return bool(array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_contiguous())


def numpy_matrix(sigma: Array, method: str) -> tuple[Array, Array, Array]:
    """W (groups, d, d), and for ZCA and PCA eigenvalues and vectors."""
    identity = np.eye(sigma.shape[-1], dtype=sigma.dtype)
    if method == "cholesky":
        return np.linalg.inv(np.linalg.cholesky(sigma)), identity, identity
    if method == "newton":
        trace = np.trace(sigma, axis1=1, axis2=2)[:, None, None]
        p, normal = identity, sigma / trace
        for _ in range(ITERATIONS):
            p = (3 * p - p @ p @ p @ normal) / 2
        return p / np.sqrt(trace), identity, identity
    values, vectors = np.linalg.eigh(sigma)
    rows = (vectors / np.sqrt(values)[:, None, :]).transpose(0, 2, 1)
    if method == "pca":
        rows, values, vectors = rows[:, ::-1], values[:, ::-1], vectors[:, :, ::-1]
        signs = np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(1)[:, None], 1))
        return rows * signs.transpose(0, 2, 1), values, vectors * signs
    return vectors @ rows, values, vectors


def numpy_forward(x: Array, case: WhitenCase) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """y in the shape of x, the centred columns, and the matrices."""
    d = columns(x, case)
    d = d - d.mean(2, keepdims=True)
    sigma = d @ d.transpose(0, 2, 1) / d.shape[2] + EPS * np.eye(case.width, dtype=x.dtype)
    matrices = numpy_matrix(sigma, case.method)
    return restored(product(matrices[0], d), case), d, matrices


def numpy_zca_backward(dy: Array, x: Array, case: WhitenCase) -> Callable[[], Array]:
    """Return a call of ZCA's gradient."""
    _, d, (matrix, values, vectors) = numpy_forward(x, case)
    root = np.sqrt(values)
    a, b = root[:, :, None], root[:, None, :]
    differences = -1 / (a * b * (a + b))

    def call() -> Array:
        g = columns(dy, case)
        g = g - g.mean(2, keepdims=True)
        turned = vectors.transpose(0, 2, 1)
        gradient = vectors @ (differences * (turned @ (g @ d.transpose(0, 2, 1)) @ vectors)) @ turned
        both = (gradient + gradient.transpose(0, 2, 1)) / d.shape[2]
        return restored(product(matrix, g) + product(both, d), case)

    return call


def torch_matrix(torch: Any, sigma: Any, method: str) -> Any:
    """W (groups, d, d)."""
    identity = torch.eye(sigma.shape[-1], dtype=sigma.dtype).expand_as(sigma)
    if method == "cholesky":
        factor = torch.linalg.cholesky(sigma)
        return torch.linalg.solve_triangular(factor, identity, upper=False)
    if method == "newton":
        trace = sigma.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
        p, normal = identity, sigma / trace
        for _ in range(ITERATIONS):
            p = torch.baddbmm(p, torch.matrix_power(p, 3), normal, beta=1.5, alpha=-0.5)
        return p / trace.sqrt()
    values, vectors = torch.linalg.eigh(sigma)
    rows = values.rsqrt()[:, :, None] * vectors.transpose(1, 2)
    if method == "pca":
        largest = torch.take_along_dim(vectors, vectors.abs().argmax(1, keepdim=True), 1)
        return (rows * largest.sign().transpose(1, 2)).flip(1)
    return vectors @ rows


def torch_forward(torch: Any, x: Any, case: WhitenCase) -> Any:
    """y in the shape and the memory order of x."""
    moved = x.movedim(case.axis, 0)
    d = moved.reshape(case.num_groups, case.width, -1)
    d = d - d.mean(2, keepdim=True)
    identity = torch.eye(case.width, dtype=x.dtype).expand(case.num_groups, -1, -1)
    sigma = torch.baddbmm(identity, d, d.transpose(1, 2), beta=EPS, alpha=1 / d.shape[2])
    y = product(torch_matrix(torch, sigma, case.method), d)
    return y.reshape(moved.shape).movedim(0, case.axis).contiguous()


def torch_contestant(case: WhitenCase, x: Array, dy: Array | None) -> Contestant | str:
    """PyTorch's forward or, with `dy`, autograd's backward; or why not."""
    torch = optional("torch")
    if torch is None:
        return "not installed"
    torch.set_num_threads(cnorm.get_num_threads())
    leaf = torch.from_numpy(x)
    if dy is None:
        return Contestant(lambda: torch_forward(torch, leaf, case), lambda y: y.numpy())
    return Contestant(torch_backward(torch, leaf, torch.from_numpy(dy), case), lambda dx: dx.numpy())


def torch_backward(torch: Any, x: Any, dy: Any, case: WhitenCase) -> Call:
    """Return a call of autograd on the graph of one forward; inference mode knows no graphs."""
    with torch.inference_mode(False), torch.enable_grad():
        x.requires_grad_()
        y = torch_forward(torch, x, case)

    def call() -> Any:
        with torch.inference_mode(False):
            return torch.autograd.grad(y, x, dy, retain_graph=True)[0]

    return call
