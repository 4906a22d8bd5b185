"""whiten: every method against extended precision, the promises N1 to N5, statistics, arguments."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
import whitening_oracle
from whitening_oracle import METHODS, by_group

BOUND = 6.0

#: Shape, channel axis, groups: rows and columns of every remainder, channels first, last and in between.
SHAPES = [((9, 1), 1, 1), ((70, 3), 1, 1), ((5, 4, 33), 1, 2), ((3, 7, 5, 8), -1, 4), ((700, 12), 1, 3),
          ((7, 3, 51), 0, 1), ((40, 10), 1, 1), ((2, 18, 3, 67), 1, 2)]  # fmt: skip


def mixed(shape: tuple[int, ...], axis: int, dtype: Any, offset: float = 0.0, seed: int = 0) -> np.ndarray:
    """Correlated channels with variances apart from one another."""
    rng = np.random.default_rng([seed, *shape])
    channels = shape[axis]
    turn = np.linalg.qr(rng.standard_normal((channels, channels)))[0] * np.linspace(1, 2, channels)
    others = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    x = np.tensordot(turn, rng.standard_normal((channels, *others)), 1) + offset
    return np.ascontiguousarray(np.moveaxis(x, 0, axis).astype(dtype))


def conditioning(exact: whitening_oracle.Exact, method: str) -> float:
    """What relative errors of the covariance grow by in y: more for vectors of eigenvalues close together."""
    gaps = -np.diff(exact.values)
    apart = float(exact.values[0] / gaps.min()) if method == "pca" and gaps.size else 1.0
    return max(exact.condition, apart)


def assert_whitened(y: np.ndarray, x: np.ndarray, axis: int, groups: int, method: str, eps: float) -> None:
    """Within (6 + d) units, u times the largest result times the conditioning: LAPACK errs more with d."""
    for ours, group in zip(by_group(y, groups, axis), by_group(x, groups, axis), strict=True):
        exact = whitening_oracle.whiten(group, eps, method)
        unit = oracle.unit(x.dtype) * np.abs(exact.y).max() * conditioning(exact, method)
        assert np.abs(ours - exact.y).max() <= (BOUND + len(group)) * unit


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("shape", "axis", "groups"), SHAPES)
def test_accuracy(shape: tuple[int, ...], axis: int, groups: int, method: str, dtype: Any) -> None:
    for offset in (0.0, 1e4):
        x = mixed(shape, axis, dtype, offset)
        y = cnorm.whiten(x, method=method, groups=groups, axis=axis)
        assert y.dtype == dtype
        assert y.shape == x.shape
        assert_whitened(y, x, axis, groups, method, 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-44, 1e150, 1e-140, 1e300, 1e-310])
def test_every_magnitude(scale: float, method: str) -> None:
    """Whitening does not depend on the scale; integers, so that subnormal numbers have no rounding."""
    rng = np.random.default_rng(3)
    dtype = np.dtype(np.float32 if 1e-45 < scale < 1e37 else np.float64)
    power = 2.0 ** np.floor(np.log2(scale))
    x = rng.integers(-9, 9, (50, 3)).astype(np.float64)
    if scale > 1e-40:
        x += rng.standard_normal(x.shape)
    x = x.astype(dtype)
    wanted = cnorm.whiten(x, eps=0, method=method)
    y = cnorm.whiten((x * dtype.type(power)).astype(dtype), eps=0, method=method)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * oracle.unit(dtype))


def test_differences_beyond_the_range(dtype: Any) -> None:
    """x and -x of the largest magnitude: their difference is no number of the dtype."""
    x = np.array([[1, 3], [-3, 1], [3, -1], [-1, -3], [1, 1], [-1, -1]], dtype)
    y = cnorm.whiten(x * dtype.type(np.finfo(dtype).max / 4), eps=0)
    np.testing.assert_allclose(y, cnorm.whiten(x, eps=0), rtol=0, atol=16 * oracle.unit(dtype))


# What whitening means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["zca", "pca", "cholesky"])
def test_the_result_is_white(method: str, dtype: Any) -> None:
    x = mixed((4, 12, 9, 11), 1, dtype, 100)
    _, mean, factors = cnorm.whiten(x, eps=0, method=method, groups=2, return_stats=True)
    y = by_group(cnorm.whiten(x, eps=0, method=method, groups=2), 2, 1).astype(np.float64)
    identity = y @ y.transpose(0, 2, 1) / y.shape[2]
    np.testing.assert_allclose(identity, np.tile(np.eye(6), (2, 1, 1)), atol=200 * oracle.unit(dtype))
    assert np.abs(y.mean(axis=2)).max() <= 100 * oracle.unit(dtype)
    assert mean.shape == (12,)
    assert mean.dtype == dtype
    assert factors.matrix.shape == (2, 6, 6)
    assert not factors.exponents.any()


def test_newton_approaches_zca() -> None:
    x = mixed((500, 8), 1, np.float64)
    wanted = cnorm.whiten(x, method="zca")
    errors = [
        np.abs(cnorm.whiten(x, method="newton", n_iterations=t) - wanted).max() for t in (3, 6, 20, 100)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-12
    assert errors[3] < 1e-12, "rounding errors do not grow with the iterations"


def test_form_of_the_matrices() -> None:
    x = mixed((300, 6), 1, np.float64)
    matrices = {m: cnorm.whiten(x, method=m, return_stats=True)[2].matrix[0] for m in METHODS}
    np.testing.assert_allclose(matrices["zca"], matrices["zca"].T, atol=1e-14)
    np.testing.assert_array_equal(matrices["cholesky"], np.tril(matrices["cholesky"]))
    norms = np.linalg.norm(matrices["pca"], axis=1)
    assert (np.diff(norms) > 0).all(), "descending eigenvalues"
    largest = np.abs(matrices["pca"]).argmax(axis=1)
    assert (matrices["pca"][np.arange(6), largest] > 0).all()


def test_one_channel_is_batch_norm(dtype: Any) -> None:
    x = mixed((3, 1, 50), 1, dtype, 5)
    wanted = cnorm.batch_norm(x, training=True)
    for method in METHODS:
        y = cnorm.whiten(x, method=method)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=20 * oracle.unit(dtype))


def test_groups_are_whitened_by_themselves(dtype: Any) -> None:
    x = mixed((3, 12, 35), 1, dtype)
    for method in METHODS:
        whole = cnorm.whiten(x, groups=3, method=method)
        for g in range(3):
            some = slice(4 * g, 4 * g + 4)
            np.testing.assert_array_equal(whole[:, some], cnorm.whiten(x[:, some].copy(), method=method))


# Where there is no spread -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e20, 1e-42])
def test_constant_channels_give_exactly_zero(value: float, eps: float, method: str, dtype: Any) -> None:
    y = cnorm.whiten(np.full((33, 4), value, dtype), eps=eps, method=method)
    np.testing.assert_array_equal(y, 0)
    x = mixed((700, 5), 1, dtype)
    x[:, 2] = value
    y = cnorm.whiten(x, eps=eps, method=method)
    assert np.isfinite(y).all()
    if method != "pca":
        np.testing.assert_array_equal(y[:, 2], 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5])
@pytest.mark.parametrize("kind", ["fewer values", "equal channels", "a sum of others", "one value"])
def test_singular_covariances_stay_finite(kind: str, eps: float, method: str, dtype: Any) -> None:
    x = mixed((40, 8), 1, dtype, 3)
    if kind == "fewer values":
        x = x[:5]
    elif kind == "equal channels":
        x[:, 6] = x[:, 1]
    elif kind == "a sum of others":
        x[:, 7] = x[:, 0] + x[:, 3]
    else:
        x = x[:1]
    y, _, factors = cnorm.whiten(x, eps=eps, method=method, return_stats=True)
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= 100
    dx = cnorm.whiten_backward(np.ones_like(y) * y.dtype.type(0.5) + y**2, x, factors).x
    assert np.isfinite(dx).all()


def test_equal_channels_share_what_one_would_have(dtype: Any) -> None:
    """ZCA of (a, a) with eps = 0 is (a, a) / sqrt(2 var a)."""
    a = mixed((60, 1), 1, dtype)
    y = cnorm.whiten(np.hstack([a, a]), eps=0)
    wanted = cnorm.whiten(a, eps=0) / np.sqrt(2)
    np.testing.assert_allclose(y, np.hstack([wanted, wanted]), rtol=0, atol=8 * oracle.unit(dtype))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_non_finite_value_spoils_its_group_only(axis: int, bad: float, method: str, dtype: Any) -> None:
    shape = (3, 6, 17) if axis == 1 else (3, 17, 6)
    x = mixed(shape, axis, dtype)
    clean = by_group(cnorm.whiten(x, groups=3, method=method, axis=axis), 3, axis)
    np.moveaxis(x, axis, 0)[3, 1, 5] = bad
    y = by_group(cnorm.whiten(x, groups=3, method=method, axis=axis), 3, axis)
    assert np.isnan(y[1]).all()
    np.testing.assert_array_equal(y[[0, 2]], clean[[0, 2]])


# Bits, layouts and types ------------------------------------------------------------------------------------


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize(
    ("shape", "axis", "groups"), [((40, 33, 51), 1, 1), ((4000, 20), 1, 2), ((6, 700, 12), -1, 4)]
)
def test_bits_are_those_of_one_thread_on_every_level(
    shape: tuple[int, ...], axis: int, groups: int, dtype: Any
) -> None:
    x = mixed(shape, axis, dtype, 2)
    seen = set()
    for level in cnorm.isa_levels():
        for threads in (1, 2, 3, 7):
            cnorm.set_isa(level)
            cnorm.set_num_threads(threads)
            y, mean, factors = cnorm.whiten(x, groups=groups, axis=axis, return_stats=True)
            dx = cnorm.whiten_backward(x, x, factors, axis=axis).x
            seen.add(digest(y, mean, factors.matrix, dx))
    assert len(seen) == 1


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in other memory."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "step 2": wide[..., ::2],
        "reversed": x[::-1, :, ::-1].copy()[::-1, :, ::-1],
        "byte-swapped": x.astype(x.dtype.newbyteorder("S")),
        "unaligned": shifted,
        "read-only": read_only,
        "channels last": np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1),
        "Fortran order": np.asfortranarray(x),
    }


def test_layouts_agree_and_inputs_stay(dtype: Any) -> None:
    x = mixed((5, 6, 35), 1, dtype)
    wanted = cnorm.whiten(x, groups=2)
    for name, other in layouts(x).items():
        y = cnorm.whiten(other, groups=2)
        np.testing.assert_array_equal(other, x)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=30 * oracle.unit(dtype), err_msg=name)
        assert y.dtype == other.dtype
    last = layouts(x)["channels last"]
    assert cnorm.whiten(last, groups=2).strides == last.strides


@pytest.mark.parametrize("kind", [oracle.FLOAT16, oracle.BFLOAT16], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_sixteen_bits_are_rounded_once(method: str, kind: Any) -> None:
    x = mixed((5, 6, 35), 1, np.float32).astype(kind)
    wide, mean, _ = cnorm.whiten(x.astype(np.float32), method=method, groups=2, return_stats=True)
    y, ours, _ = cnorm.whiten(x, method=method, groups=2, return_stats=True)
    assert y.dtype == kind
    np.testing.assert_array_equal(y, wide.astype(kind))
    np.testing.assert_array_equal(ours, mean)
    assert ours.dtype == np.float32


@pytest.mark.parametrize("axis", [1, -1])
def test_out_receives_and_is_the_result(axis: int, dtype: Any) -> None:
    x = mixed((3, 8, 37) if axis == 1 else (3, 37, 8), axis, dtype)
    wanted = cnorm.whiten(x, axis=axis)
    out = np.full_like(x, np.nan)
    assert cnorm.whiten(x, axis=axis, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    assert cnorm.whiten(x, axis=axis, out=x) is x
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("shape", [(0, 4), (3, 4, 0), (0, 4, 7), (5, 0)])
@pytest.mark.parametrize("method", METHODS)
def test_empty_batches(shape: tuple[int, ...], method: str, dtype: Any) -> None:
    x = np.empty(shape, dtype)
    mean, covariance = np.full(shape[1], 7.0), np.full((shape[1], shape[1]), 7.0)
    y, m, factors = cnorm.whiten(x, mean, covariance, method=method, return_stats=True)
    assert y.shape == shape
    np.testing.assert_array_equal(m, 0)
    np.testing.assert_array_equal(mean, 7)
    np.testing.assert_array_equal(covariance, 7)
    assert cnorm.whiten_backward(x, x, factors).x.shape == shape


# Running statistics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f8"])
def test_training_updates_running_statistics(kind: Any, momentum: float, dtype: Any) -> None:
    x = mixed((40, 6), 1, dtype, 1)
    rng = np.random.default_rng(2)
    mean, covariance = rng.standard_normal(6).astype(kind), rng.standard_normal((2, 3, 3)).astype(kind)
    before = mean.copy(), covariance.copy()
    cnorm.whiten(x, mean, covariance, momentum=momentum, groups=2)
    batch = by_group(x, 2, 1).astype(np.float64)
    batch_mean = batch.mean(axis=2, keepdims=True)
    centred = batch - batch_mean
    new = batch_mean.reshape(-1), centred @ centred.transpose(0, 2, 1) / 40
    for ours, old, value in zip((mean, covariance), before, new, strict=True):
        wanted = (1 - momentum) * old.astype(np.float64) + momentum * value
        tolerance = 4 * max(float(np.finfo(kind).eps), oracle.unit(dtype))
        np.testing.assert_allclose(ours.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)
        if momentum == 0:
            np.testing.assert_array_equal(ours, old)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("flat", [True, False])
def test_inference_takes_the_running_statistics(flat: bool, method: str, dtype: Any) -> None:
    x, other = mixed((50, 5), 1, dtype, 2), mixed((30, 5), 1, dtype, 1, seed=1)
    mean, covariance = np.zeros(5, dtype), np.zeros((5, 5) if flat else (1, 5, 5), dtype)
    wanted, batch_mean, factors = cnorm.whiten(
        x, mean, covariance, momentum=1.0, method=method, return_stats=True
    )
    mean.flags.writeable = covariance.flags.writeable = False
    y, used, frozen = cnorm.whiten(x, mean, covariance, False, method=method, return_stats=True)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=100 * oracle.unit(dtype))
    np.testing.assert_array_equal(used, batch_mean)
    assert factors.training
    assert not frozen.training
    y = cnorm.whiten(other, mean, covariance, False, method=method)
    exact = (other.astype(np.float64) - mean) @ frozen.matrix[0].T
    np.testing.assert_allclose(y, exact, rtol=0, atol=30 * oracle.unit(dtype))


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_inference_at_any_magnitude(size: float) -> None:
    rng = np.random.default_rng(4)
    x, mean, power = rng.standard_normal((20, 3)), rng.standard_normal(3), 2.0 ** np.round(np.log2(size))
    covariance = np.cov(rng.standard_normal((3, 50)))
    wanted = cnorm.whiten(x, mean, covariance, False, eps=0)
    scaled = [(a * power).astype(np.float32) for a in (x, mean)]
    y = cnorm.whiten(scaled[0], scaled[1], covariance * power * power, False, eps=0)
    if size < 1:
        y = cnorm.whiten(x * power, mean * power, covariance * power * power, False, eps=0)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6)
    else:
        assert not np.isfinite(y).all(), "the covariance is beyond float32, in which it is used"


def test_a_running_covariance_with_negative_eigenvalues_is_taken_as_singular(dtype: Any) -> None:
    covariance = np.diag(np.array([1, -1e-9, 4], dtype))
    x = mixed((20, 3), 1, dtype)
    for method in METHODS:
        assert np.isfinite(cnorm.whiten(x, np.zeros(3, dtype), covariance, False, method=method)).all()


# Arguments --------------------------------------------------------------------------------------------------

X = np.arange(24, dtype=np.float32).reshape(6, 4)

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X.astype(int)}, TypeError, "x"),
    ({"x": X[0]}, ValueError, "x"),
    ({"axis": 2}, ValueError, "axis"),
    ({"axis": 0.5}, TypeError, "axis"),
    ({"groups": 3}, ValueError, "groups"),
    ({"groups": 0}, ValueError, "groups"),
    ({"groups": 1.0}, TypeError, "groups"),
    ({"eps": -1}, ValueError, "eps"),
    ({"eps": np.nan}, ValueError, "eps"),
    ({"momentum": np.inf}, ValueError, "momentum"),
    ({"method": "ica"}, ValueError, "method"),
    ({"method": None}, TypeError, "method"),
    ({"n_iterations": 0}, ValueError, "n_iterations"),
    ({"n_iterations": 101}, ValueError, "n_iterations"),
    ({"n_iterations": 2.0}, TypeError, "n_iterations"),
    ({"running_mean": np.zeros(4)}, ValueError, "running_cov"),
    ({"running_cov": np.eye(4)}, ValueError, "running_mean"),
    ({"training": False}, ValueError, "running_mean"),
    ({"running_mean": np.zeros(3), "running_cov": np.eye(4)}, ValueError, "running_mean"),
    ({"running_mean": np.zeros(4), "running_cov": np.eye(3)}, ValueError, "running_cov"),
    ({"running_mean": np.zeros(4), "running_cov": np.eye(4), "groups": 2}, ValueError, "running_cov"),
    ({"running_mean": [0.0] * 4, "running_cov": np.eye(4)}, TypeError, "running_mean"),
    ({"running_mean": np.zeros(4, int), "running_cov": np.eye(4)}, TypeError, "running_mean"),
    ({"running_mean": np.zeros(4), "running_cov": np.broadcast_to(1.0, (4, 4))}, ValueError, "running_cov"),
    ({"out": X.astype(np.float64)}, TypeError, "out"),
    ({"out": np.zeros((4, 6), np.float32)}, ValueError, "out"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "name"), WRONG)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        cnorm.whiten(**{"x": X.copy(), **arguments})


def test_overlaps_are_refused_before_anything_changes() -> None:
    memory = np.zeros(64, np.float32)
    x, shifted = memory[:24].reshape(6, 4), memory[4:28].reshape(6, 4)
    with pytest.raises(ValueError, match="out"):
        cnorm.whiten(x, out=shifted)
    with pytest.raises(ValueError, match="running_mean"):
        cnorm.whiten(x, memory[:4], np.eye(4))
    both = np.zeros((5, 4))
    with pytest.raises(ValueError, match="running_cov"):
        cnorm.whiten(X, both[0], both[:4])
    assert not memory.any()
