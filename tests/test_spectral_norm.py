"""spectral_norm: values, vectors step by step, every magnitude and layout, bits, PyTorch, and mistakes."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
import spectral_oracle as exact
from conftest import THREAD_COUNTS
from peer import keyword_only, tensor, torch
from placement import at_offset, digest
from processes import answer
from spectral_oracle import SHAPES, TRAPS, Long, Problem, problem, units

BOUND = 6.0

each_shape = pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)


def _traps(dtype: Any) -> list[tuple[str, float, float, float]]:
    return TRAPS[np.dtype(dtype).name]


def _assert_step(p: Problem, eps: float) -> None:
    """One call in training, each of its results from the exact ones of what it was given."""
    u, v = p.u.copy(), p.v.copy()
    w, sigma = cnorm.spectral_norm(p.weight, u, v, dim=p.dim, eps=eps)
    after = p._replace(u=u, v=v)
    assert units(v, exact.next_v(p.weight, p.u, p.dim, eps)) <= BOUND
    assert units(u, exact.next_u(p.weight, v, p.dim, eps)) <= BOUND
    wanted = exact.sigma_of(after)
    roundoff, smallest = np.finfo(p.weight.dtype).eps / 2, np.finfo(np.float64).smallest_subnormal
    assert np.isinf(sigma) or abs(sigma - wanted) <= BOUND * roundoff * wanted + smallest
    assert units(w, p.weight / wanted) <= BOUND


@each_shape
def test_a_step_from_any_vectors(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    """With a mean far from 0, W^T u cancels unless u points along the ones."""
    for _, scale, offset, eps in _traps(dtype)[:2]:
        _assert_step(problem(shape, dim, dtype, scale, offset), eps)


@pytest.mark.parametrize(
    ("shape", "dim"), [((7, 9), 0), ((7, 9), 1), ((20, 12, 4, 4), 1), ((70, 600), 0)], ids=str
)
def test_every_magnitude(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    for _, scale, offset, eps in _traps(dtype):
        _assert_step(problem(shape, dim, dtype, scale, offset), eps)


def test_every_size_from_1_to_70(dtype: Any) -> None:
    for n in range(1, 71):
        for shape in ((n, 5), (5, n), (9, 3, n)):
            _assert_step(problem(shape, len(shape) - 2, dtype), 1e-12)


@pytest.mark.parametrize("iterations", [2, 3, 5])
@each_shape
def test_several_iterations_in_one_call(
    shape: tuple[int, ...], dim: int, iterations: int, dtype: Any
) -> None:
    """Vectors of a matrix whose first singular value stands out, so that roundings do not grow."""
    p = problem(shape, dim, dtype, offset=2.0)
    u, v = p.u.copy(), p.v.copy()
    right_u = p.u
    for _ in range(iterations):
        right_v = exact.next_v(p.weight, right_u, dim, 1e-12)
        right_u = exact.next_u(p.weight, right_v, dim, 1e-12)
    w, sigma = cnorm.spectral_norm(p.weight, u, v, n_power_iterations=iterations, dim=dim)
    assert units(v, right_v) <= BOUND
    assert units(u, right_u) <= BOUND
    right_sigma = right_u @ exact.matrix(p.weight, dim) @ right_v
    assert abs(sigma / right_sigma - 1) <= BOUND * np.finfo(dtype).eps / 2
    assert units(w, p.weight / right_sigma) <= BOUND


@each_shape
def test_without_training_the_vectors_are_read_only(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    p = problem(shape, dim, dtype)
    for vector in (p.u, p.v):
        vector.flags.writeable = False
    w, sigma = cnorm.spectral_norm(p.weight, p.u, p.v, dim=dim, training=False, n_power_iterations=3)
    wanted, terms = exact.sigma_of(p), abs(p.u) @ abs(exact.matrix(p.weight, dim) @ p.v)
    allowed = BOUND * np.finfo(np.float64).eps / 2 * terms
    assert abs(sigma - wanted) <= allowed
    assert units(w, p.weight / Long(sigma)) <= BOUND
    assert type(sigma) is float


@pytest.mark.parametrize("iterations", [1, 2, 40])
def test_the_largest_singular_value(iterations: int, dtype: Any) -> None:
    weight = np.array([[3, 3], [0, 3]], dtype)
    u, v = np.array([0.6, 0.8], dtype), np.zeros(2, dtype)
    for _ in range(40 // iterations):
        w, sigma = cnorm.spectral_norm(weight, u, v, n_power_iterations=iterations)
    assert abs(sigma - 4.854101966249685) <= 4e-7
    np.testing.assert_allclose(w, weight / 4.854101966249685, rtol=4e-7)
    left, _, right = np.linalg.svd(weight.astype(np.float64))
    np.testing.assert_allclose(np.outer(u, v), np.outer(left[:, 0], right[0]), atol=1e-6)


def test_nearly_equal_singular_values(dtype: Any) -> None:
    """The vectors are in no hurry, but sigma cannot exceed the largest value and is close to it at once."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, 20)))[0] for n in (30, 40))
    weight = (left * np.linspace(1, 1 + 1e-6, 20) @ right.T).astype(dtype)
    p = problem(weight.shape, 0, dtype)
    u, v = p.u.copy(), p.v.copy()
    for _ in range(5):
        _, sigma = cnorm.spectral_norm(weight, u, v)
        assert 1 - 1e-6 <= sigma <= 1 + 3e-6


def test_rank_1_converges_in_one_step(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal(30), rng.standard_normal(50)
    weight = np.outer(a, b).astype(dtype)
    p = problem(weight.shape, 0, dtype)
    _, sigma = cnorm.spectral_norm(weight, p.u, p.v)
    roundoff = np.finfo(dtype).eps
    assert abs(sigma / (np.linalg.norm(a) * np.linalg.norm(b)) - 1) <= 4 * roundoff
    assert min(abs(p.u - a / np.linalg.norm(a)).max(), abs(p.u + a / np.linalg.norm(a)).max()) <= 8 * roundoff


@pytest.mark.parametrize("eps", [0.0, 1e-12])
@pytest.mark.parametrize("training", [True, False])
def test_zero_weights_and_zero_vectors_give_zeros(eps: float, training: bool, dtype: Any) -> None:
    p = problem((33, 50), 0, dtype)
    for weight, u in ((np.zeros_like(p.weight), p.u), (p.weight, np.zeros_like(p.u))):
        left, right = u.copy(), p.v.copy()
        w, sigma = cnorm.spectral_norm(weight, left, right, eps=eps, training=training, n_power_iterations=2)
        assert sigma == 0
        assert not w.any()
        assert np.isfinite(left).all()
        assert np.isfinite(right).all()
        if training:
            assert not left.any()
            assert not right.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("where", ["weight", "u", "v"])
def test_a_value_that_is_not_finite_makes_everything_nan(
    where: str, training: bool, bad: float, dtype: Any
) -> None:
    p = problem((33, 50), 0, dtype)
    getattr(p, where).flat[7] = bad
    before = p.v.copy()
    w, sigma = cnorm.spectral_norm(p.weight, p.u, p.v, training=training)
    if where == "v" and training:
        assert np.isfinite(w).all(), "v is only written in training"
        return
    assert np.isnan(w).all()
    assert np.isnan(sigma)
    if training:
        assert np.isnan(p.u).all()
        assert np.isnan(p.v).all()
    else:
        np.testing.assert_array_equal(p.v, before)


@pytest.mark.parametrize("layout", [layouts.columns, layouts.steps, layouts.reversed_all, layouts.swapped,
                                    layouts.unaligned, layouts.packed_record,
                                    layouts.channels_last_view])  # fmt: skip
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_layouts(layout: Any, dim: int, dtype: Any) -> None:
    p = problem((12, 5, 7), dim, dtype)
    strange, _ = layout(p.weight)
    before = strange.copy()
    u, v = p.u.copy(), p.v.copy()
    wanted, sigma = cnorm.spectral_norm(p.weight, u, v, dim=dim)
    strided_u, strided_v = np.repeat(p.u, 2)[::2], np.repeat(p.v, 3)[::3]
    out = np.full_like(strange, np.nan)
    for target in (None, out):
        left, right = np.repeat(strided_u, 2)[::2], np.repeat(strided_v, 3)[::3]
        w, again = cnorm.spectral_norm(strange, left, right, dim=dim, out=target)
        np.testing.assert_array_equal(w, wanted)
        np.testing.assert_array_equal(left, u)
        np.testing.assert_array_equal(right, v)
        assert again == sigma
        assert w.dtype == strange.dtype
        assert target is None or w is target
    np.testing.assert_array_equal(strange, before)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_16_bits_are_computed_in_float32_and_rounded_once(kind: Any) -> None:
    p = problem((20, 33), 0, np.float32)
    weight = (1000 * p.weight).astype(kind)
    u, v = p.u.copy(), p.v.copy()
    wide, sigma = cnorm.spectral_norm(weight.astype(np.float32), p.u, p.v)
    w, again = cnorm.spectral_norm(weight, u, v)
    assert w.dtype == kind
    assert again == sigma
    np.testing.assert_array_equal(w, wide.astype(kind))
    np.testing.assert_array_equal(u, p.u)


def test_out_may_be_the_weight(dtype: Any) -> None:
    for shape, dim in (((20, 33), 0), ((12, 20, 9), 1), ((300, 900), 0)):
        p = problem(shape, dim, dtype)
        u, v = p.u.copy(), p.v.copy()
        wanted, _ = cnorm.spectral_norm(p.weight, u, v, dim=dim)
        assert cnorm.spectral_norm(p.weight, p.u, p.v, dim=dim, out=p.weight)[0] is p.weight
        np.testing.assert_array_equal(p.weight, wanted)
        np.testing.assert_array_equal(p.v, v)


def test_empty_weights_leave_the_vectors(dtype: Any) -> None:
    for shape in ((0, 5), (5, 0), (5, 0, 3)):
        weight = np.empty(shape, dtype)
        u, v = np.ones(shape[0], dtype), np.ones(weight.size // max(1, shape[0]) if shape[0] else 5, dtype)
        w, sigma = cnorm.spectral_norm(weight, u, v)
        assert w.shape == shape
        assert sigma == 0
        assert (u == 1).all()
        assert (v == 1).all()


@pytest.mark.usefixtures("native")
def test_one_hash_over_levels_threads_and_places(dtype: Any) -> None:
    shapes = [((40, 300, 9), 1), ((3, 70_000), 0), ((520, 700), 0), ((9_000, 9), 0), ((600, 70), 1)]
    for shape, dim in shapes:
        for scale in (1.0, 1e30 if dtype == np.float32 else 1e200)[: 1 + (shape == (600, 70))]:
            p = problem(shape, dim, dtype, scale)
            hashes = set()
            for level in cnorm.isa_levels():
                cnorm.set_isa(level)
                for threads in THREAD_COUNTS:
                    with cnorm.num_threads(threads):
                        weight = at_offset(p.weight, threads * p.weight.itemsize)
                        for iterations, training in ((1, True), (3, True), (1, False)):
                            u, v = p.u.copy(), p.v.copy()
                            options = {"n_power_iterations": iterations, "training": training, "dim": dim}
                            w, sigma = cnorm.spectral_norm(weight, u, v, **options)
                            hashes.add((iterations, training, digest([w, u, v, np.float64(sigma)])))
            assert len(hashes) == 3, shape


def test_numpys_error_handling_sees_nothing(dtype: Any) -> None:
    """Overflow or underflow inside is nobody's business, even where NumPy is told to raise."""
    state = np.geterr()
    for _, scale, offset, eps in _traps(dtype):
        for shape, dim in (((7, 9), 0), ((5, 7, 3), 1)):
            p = problem(shape, dim, dtype, scale, offset)
            dw = np.ones_like(p.weight)
            with warnings.catch_warnings(), np.errstate(all="raise"):
                warnings.simplefilter("error")
                _, sigma = cnorm.spectral_norm(p.weight, p.u, p.v, dim=dim, eps=eps)
                cnorm.spectral_norm_backward(dw, p.weight, p.u, p.v, sigma, dim=dim)
    assert np.geterr() == state


GUARDED = """
import sys

sys.path.insert(0, {tests!r})
import numpy as np

import cnorm
from guard_pages import guarded, release
from spectral_oracle import SHAPES, problem

sizes = [((5, n), 0) for n in range(1, 71)] + [((9, 3, n), 1) for n in range(1, 71)] + SHAPES
for level in cnorm.isa_levels():
    cnorm.set_isa(level)
    for dtype in (np.float32, np.float64):
        for shape, dim in sizes:
            p = problem(shape, dim, dtype)
            u, v = p.u.copy(), p.v.copy()
            w, sigma = cnorm.spectral_norm(p.weight, u, v, dim=dim, n_power_iterations=2)
            gradient = cnorm.spectral_norm_backward(w, p.weight, u, v, sigma, dim=dim)
            for at_end in (True, False):
                weight = guarded(p.weight, at_end)
                vectors = [guarded(x, at_end, writeable=True) for x in (p.u, p.v)]
                out = guarded(np.zeros_like(w), at_end, writeable=True)
                cnorm.spectral_norm(weight, *vectors, dim=dim, n_power_iterations=2, out=out)
                assert np.array_equal(out, w)
                dw = guarded(w, at_end)
                cnorm.spectral_norm_backward(dw, weight, *vectors, sigma, dim=dim, out=out)
                assert np.array_equal(out, gradient)
                del weight, vectors, out, dw
                release()
print("passed")
"""


@pytest.mark.usefixtures("native")
@pytest.mark.skipif(sys.platform != "linux", reason="protects pages with Linux's mprotect")
def test_no_byte_beyond_an_array_is_touched() -> None:
    assert answer(GUARDED.format(tests=str(Path(__file__).parent))) == "passed"


def _torch_layer(kind: str, iterations: int) -> Any:
    nn = torch().nn
    torch().manual_seed(5)
    module = {
        "linear": lambda: nn.Linear(20, 30),
        "conv": lambda: nn.Conv2d(5, 12, 3),
        "transposed": lambda: nn.ConvTranspose2d(12, 5, 4),
    }[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends its successor
        return nn.utils.spectral_norm(module.double(), n_power_iterations=iterations)


@pytest.mark.peers
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("kind", ["linear", "conv", "transposed"])
def test_pytorchs_vectors_step_by_step(kind: str, iterations: int) -> None:
    """A warm start on a weight that changes, as in training."""
    theirs = _torch_layer(kind, iterations)
    dim = 1 if kind == "transposed" else 0
    weight = theirs.weight_orig.detach().numpy()
    u, v = theirs.weight_u.numpy().copy(), theirs.weight_v.numpy().copy()
    hook = next(iter(theirs._forward_pre_hooks.values()))
    for step in range(8):
        weight += 0.1 * np.random.default_rng(step).standard_normal(weight.shape)
        hook(theirs, None)
        w, _ = cnorm.spectral_norm(weight, u, v, n_power_iterations=iterations, dim=dim)
        np.testing.assert_allclose(u, theirs.weight_u.numpy(), atol=1e-14)
        np.testing.assert_allclose(v, theirs.weight_v.numpy(), atol=1e-14)
        np.testing.assert_allclose(w, theirs.weight.detach().numpy(), rtol=1e-13)


@pytest.mark.peers
def test_weights_below_eps_are_divided_as_pytorch_divides_them() -> None:
    """Norms less than eps do not become 1: the vectors stay short."""
    normalize = torch().nn.functional.normalize
    p = problem((7, 9), 0, np.float64, scale=1e-20)
    matrix, u = tensor(p.weight), tensor(p.u)
    v = normalize(matrix.T @ u, dim=0, eps=1e-12)
    u = normalize(matrix @ v, dim=0, eps=1e-12)
    w, sigma = cnorm.spectral_norm(p.weight, p.u, p.v)
    np.testing.assert_allclose(p.v, v.numpy(), rtol=1e-13)
    np.testing.assert_allclose(p.u, u.numpy(), rtol=1e-12)
    np.testing.assert_allclose(sigma, float(u @ (matrix @ v)), rtol=1e-12)
    np.testing.assert_allclose(w, p.weight / sigma, rtol=1e-13)


def test_defaults() -> None:
    assert keyword_only(cnorm.spectral_norm) == {
        "n_power_iterations": 1, "dim": 0, "eps": 1e-12, "training": True, "out": None,
    }  # fmt: skip


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weight": [[1.0]]}, TypeError, "weight"),
    ({"weight": np.ones((3, 4), int)}, TypeError, "weight"),
    ({"weight": np.ones((3, 4), complex)}, TypeError, "weight"),
    ({"weight": np.array(1.0, np.float32)}, ValueError, "weight"),
    ({"u": np.ones(4, np.float32)}, ValueError, "u"),
    ({"u": np.ones((3, 1), np.float32)}, ValueError, "u"),
    ({"u": np.ones(3, np.float64)}, TypeError, "u"),
    ({"u": None}, TypeError, "u"),
    ({"v": np.ones(3, np.float32)}, ValueError, "v"),
    ({"v": np.ones(4, int)}, TypeError, "v"),
    ({"v": np.ones(4, ">f4")}, TypeError, "v"),
    ({"v": [1.0] * 4}, TypeError, "v"),
    ({"v": np.broadcast_to(np.float32(1), 4)}, ValueError, "v"),
    ({"n_power_iterations": 0}, ValueError, "n_power_iterations"),
    ({"n_power_iterations": -1}, ValueError, "n_power_iterations"),
    ({"n_power_iterations": 1.0}, TypeError, "n_power_iterations"),
    ({"dim": 2}, ValueError, "dim"),
    ({"dim": -3}, ValueError, "dim"),
    ({"dim": None}, TypeError, "dim"),
    ({"eps": -1e-12}, ValueError, "eps"),
    ({"eps": np.nan}, ValueError, "eps"),
    ({"eps": "1"}, TypeError, "eps"),
    ({"out": np.ones((3, 4))}, TypeError, "out"),
    ({"out": np.ones((4, 3), np.float32)}, ValueError, "out"),
    ({"out": np.broadcast_to(np.float32(1), (3, 4))}, ValueError, "out"),
]


@pytest.mark.parametrize(("changes", "error", "name"), MISTAKES)
def test_mistakes_are_named_and_change_nothing(changes: Any, error: Any, name: str) -> None:
    p = problem((3, 4), 0, np.float32)
    arguments = {**p._asdict(), **changes}
    before = p.u.copy(), p.v.copy()
    call = [arguments.pop(argument) for argument in ("weight", "u", "v")]
    with pytest.raises(error, match=f"^{name}: expected"):
        cnorm.spectral_norm(*call, **arguments)
    np.testing.assert_array_equal(p.u, before[0])
    np.testing.assert_array_equal(p.v, before[1])


def test_overlaps_are_refused() -> None:
    memory = np.arange(1, 13, dtype=np.float32)
    weight, u, v = memory.reshape(3, 4), np.ones(3, np.float32), np.ones(4, np.float32)
    both = np.ones(5, np.float32)
    with pytest.raises(ValueError, match=r"^u: .* memory of weight"):
        cnorm.spectral_norm(weight, memory[:3], v)
    with pytest.raises(ValueError, match=r"^v: .* memory of weight"):
        cnorm.spectral_norm(weight, u, memory[4:8])
    with pytest.raises(ValueError, match=r"^v: .* memory of u"):
        cnorm.spectral_norm(weight, both[:3], both[1:])
    long = np.zeros(24, np.float32)
    with pytest.raises(ValueError, match=r"^out: .* memory of v"):
        cnorm.spectral_norm(weight, u, long[:4], out=long[:12].reshape(3, 4))
    long[:12] = memory
    with pytest.raises(ValueError, match=r"^out: .* another view of weight"):
        cnorm.spectral_norm(long[:12].reshape(3, 4), u, v, out=long[4:16].reshape(3, 4))
    w, _ = cnorm.spectral_norm(weight, memory[:3], memory[4:8], training=False)
    assert np.isfinite(w).all(), "vectors that are only read may lie anywhere"
    np.testing.assert_array_equal(memory, np.arange(1, 13))
