"""whiten_backward: PyTorch's automatic gradients, finite differences, extended precision, the promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cnorm
import oracle
import whitening_oracle
import whitening_peer
from peer import tensor, torch
from test_whiten import METHODS, SHAPES, conditioning, layouts, mixed
from whitening_oracle import by_group

BOUND = 16.0


def backward(dy: np.ndarray, x: np.ndarray, axis: int = 1, **options: Any) -> np.ndarray:
    _, _, factors = cnorm.whiten(x, axis=axis, return_stats=True, **options)
    return cnorm.whiten_backward(dy, x, factors, axis=axis).x


def incoming(x: np.ndarray, offset: float = 0.0, seed: int = 5) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(x.shape) + offset).astype(x.dtype)


@pytest.mark.peers
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("shape", "axis", "groups"), SHAPES)
def test_pytorchs_gradients_agree(shape: tuple[int, ...], axis: int, groups: int, method: str) -> None:
    x = mixed(shape, axis, np.float64, 1)
    dy = incoming(x)
    leaf = tensor(x).requires_grad_()
    y = whitening_peer.whiten(leaf, method, 1e-3, groups, axis)
    y.backward(tensor(dy))
    ours, _, factors = cnorm.whiten(x, eps=1e-3, method=method, groups=groups, axis=axis, return_stats=True)
    np.testing.assert_allclose(ours, y.detach().numpy(), rtol=0, atol=1e-11)
    dx = cnorm.whiten_backward(dy, x, factors, axis=axis).x
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("shape", "axis", "groups"), SHAPES)
def test_accuracy(shape: tuple[int, ...], axis: int, groups: int, method: str, dtype: Any) -> None:
    """Within (16 + 2 d) units of the largest gradient of the group, times the conditioning."""
    for offset in (0.0, 1e4):
        x = mixed(shape, axis, dtype, offset)
        dy = incoming(x, offset / 100)
        dx = backward(dy, x, axis, method=method, groups=groups)
        assert dx.dtype == dtype
        parts = (by_group(a, groups, axis) for a in (dx, dy, x))
        for ours, out, group in zip(*parts, strict=True):
            exact = whitening_oracle.whiten_backward(out, group, 1e-5, method)
            whitened = whitening_oracle.whiten(group, 1e-5, method)
            # One channel has next to no gradient but for eps: what is left of terms this large.
            terms = np.abs(whitened.matrix).max() * np.abs(out - out.mean(axis=1, keepdims=True)).max()
            unit = oracle.unit(dtype) * max(np.abs(exact).max(), terms) * conditioning(whitened, method)
            assert np.abs(ours - exact).max() <= (BOUND + 2 * len(group)) * unit


def assert_differences_agree(x: np.ndarray, dy: np.ndarray, tolerance: float, **options: Any) -> None:
    """Central differences of sum(y dy) along some directions."""
    dx, step = backward(dy, x, **options), 1e-5
    for seed in range(6):
        direction = incoming(x, seed=seed)
        ends = [(cnorm.whiten(x + sign * step * direction, **options) * dy).sum() for sign in (1, -1)]
        assert abs((ends[0] - ends[1]) / (2 * step) - (dx * direction).sum()) <= tolerance


@pytest.mark.parametrize("method", ["zca", "cholesky", "newton"])
def test_equal_eigenvalues(method: str) -> None:
    """Channels of a Hadamard matrix: the covariance is I, of which every vector is an eigenvector."""
    h = np.array([[1.0]])
    for _ in range(4):
        h = np.block([[h, h], [h, -h]])
    x = h[:, 1:9].copy()
    dy = incoming(x)
    assert_differences_agree(x, dy, 1e-7, method=method, n_iterations=20)
    assert np.isfinite(backward(dy, x, method="pca")).all()


@pytest.mark.parametrize("method", METHODS)
def test_fewer_values_than_channels(method: str) -> None:
    x = mixed((5, 8), 1, np.float64)
    if method == "pca":  # three eigenvalues are equal, eps: the vectors of the rest do not depend on them
        dy = incoming(x)
        dy[:, 4:] = 0
    else:
        dy = incoming(x)
    assert_differences_agree(x, dy, 1e-6, method=method, eps=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_what_whitening_does_not_see_has_no_gradient(method: str, dtype: Any) -> None:
    """Neither a constant added to a channel nor, without eps, a factor of all channels changes y."""
    x = mixed((3, 6, 70), 1, dtype, 2)
    dy = incoming(x)
    dx = backward(dy, x, method=method, eps=0).astype(np.float64)
    size = oracle.unit(dtype) * np.abs(dx).max()
    assert np.abs(dx.mean(axis=(0, 2))).max() <= 4 * size
    centred = x - x.mean(axis=(0, 2), keepdims=True, dtype=np.float64)
    assert abs((dx * centred).mean()) <= 30 * size


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("size", "loss"), [(1e30, 1), (1e-30, 1), (1, 1e30), (1, 1e-30), (1e-25, 1e10), (1e18, 1e-15)]
)
def test_every_magnitude(size: float, loss: float, method: str, dtype: Any) -> None:
    """dx scales with dy, and with the inverse of x."""
    if dtype == np.float64:
        size, loss = size**4, loss**4
    x = mixed((50, 4), 1, dtype)
    dy = incoming(x)
    factor, scale = (2.0 ** np.round(np.log2(v)) for v in (size, loss))
    wanted = backward(dy, x, method=method, eps=0)
    dx = backward(dy * dtype.type(scale), x * dtype.type(factor), method=method, eps=0)
    ours = dx.astype(np.longdouble) * factor / scale
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=300 * oracle.unit(dtype) * np.abs(wanted).max())


@pytest.mark.parametrize("method", METHODS)
def test_inference_has_the_gradient_of_a_linear_map(method: str, dtype: Any) -> None:
    x, covariance = mixed((20, 6), 1, dtype), np.cov(mixed((40, 6), 1, np.float64).T)
    _, _, factors = cnorm.whiten(x, np.ones(6), covariance, False, method=method, return_stats=True)
    dy = incoming(x)
    dx = cnorm.whiten_backward(dy, x, factors).x
    np.testing.assert_allclose(dx, dy @ factors.matrix[0], rtol=0, atol=30 * oracle.unit(dtype))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["x", "dy"])
@pytest.mark.parametrize("method", METHODS)
def test_a_non_finite_value_spoils_its_group_only(method: str, where: str, bad: float, dtype: Any) -> None:
    x = mixed((3, 6, 17), 1, dtype)
    dy = incoming(x)
    clean = backward(dy, x, method=method, groups=3)
    (x if where == "x" else dy)[1, 2, 5] = bad
    dx = backward(dy, x, method=method, groups=3)
    assert np.isnan(dx[:, 2:4]).all()
    np.testing.assert_array_equal(np.delete(dx, (2, 3), 1), np.delete(clean, (2, 3), 1))


def test_layouts_agree_and_inputs_stay(dtype: Any) -> None:
    x = mixed((5, 6, 35), 1, dtype)
    dy = incoming(x)
    wanted = backward(dy, x, groups=2)
    for name, other in layouts(x).items():
        dx = backward(dy, other, groups=2)
        np.testing.assert_array_equal(other, x)
        np.testing.assert_allclose(dx, wanted, rtol=0, atol=60 * oracle.unit(dtype), err_msg=name)
    for name, other in layouts(dy).items():
        np.testing.assert_array_equal(backward(other, x, groups=2), wanted, err_msg=name)
        np.testing.assert_array_equal(other, dy)


@pytest.mark.parametrize("kind", [oracle.FLOAT16, oracle.BFLOAT16], ids=str)
def test_sixteen_bits_are_rounded_once(kind: Any) -> None:
    x = mixed((5, 6, 35), 1, np.float32).astype(kind)
    dy = incoming(x)
    dx = backward(dy, x, groups=2)
    assert dx.dtype == kind
    wide = backward(dy.astype(np.float32), x.astype(np.float32), groups=2)
    np.testing.assert_array_equal(dx, wide.astype(kind))


@pytest.mark.parametrize("axis", [1, -1])
def test_out_receives_and_is_the_result(axis: int, dtype: Any) -> None:
    x = mixed((3, 8, 37) if axis == 1 else (3, 37, 8), axis, dtype)
    dy = incoming(x)
    _, _, factors = cnorm.whiten(x, axis=axis, return_stats=True)
    wanted = cnorm.whiten_backward(dy, x, factors, axis=axis).x
    out = np.full_like(x, np.nan)
    assert cnorm.whiten_backward(dy, x, factors, axis=axis, out=out).x is out
    np.testing.assert_array_equal(out, wanted)
    assert cnorm.whiten_backward(dy, x, factors, axis=axis, out=dy).x is dy
    np.testing.assert_array_equal(dy, wanted)


def test_wrong_arguments() -> None:
    x = mixed((6, 4), 1, np.float32)
    _, _, factors = cnorm.whiten(x, return_stats=True)
    for arguments, error, name in (
        ({"dy": x.T}, ValueError, "dy"),
        ({"dy": x.astype(int)}, TypeError, "dy"),
        ({"x": x[:, :3], "dy": x[:, :3]}, ValueError, "factors"),
        ({"factors": factors.matrix}, TypeError, "factors"),
        ({"axis": 2}, ValueError, "axis"),
        ({"out": x}, ValueError, "out"),
        ({"out": x.astype(np.float64)}, TypeError, "out"),
    ):
        with pytest.raises(error, match=name):
            cnorm.whiten_backward(**{"dy": x.copy(), "x": x, "factors": factors, **arguments})


@pytest.mark.peers
@pytest.mark.parametrize("method", METHODS)
def test_the_layer_follows_pytorch(method: str, dtype: Any) -> None:
    """Several steps of training, the running statistics after each, then inference and its gradient."""
    layer = cnorm.Whitening(6, method, groups=2, momentum=0.3, dtype=dtype)
    t = torch()
    mean, covariance = t.zeros(6, dtype=t.float64), t.eye(3, dtype=t.float64).repeat(2, 1, 1)
    atol = 300 * oracle.unit(dtype)
    for step in range(4):
        x = mixed((7, 6, 5), 1, dtype, step, seed=step)
        leaf = tensor(x.astype(np.float64)).requires_grad_()
        batch_mean, batch_covariance = whitening_peer.statistics(leaf, 2, 1)
        if step == 3:
            layer.eval()
            batch_mean, batch_covariance = mean, covariance
        else:
            mean = 0.7 * mean + 0.3 * batch_mean.detach()
            covariance = 0.7 * covariance + 0.3 * batch_covariance.detach()
        matrices = [whitening_peer.matrix(c, method, 1e-5) for c in batch_covariance]
        y = whitening_peer.apply(leaf, batch_mean, matrices, 1)
        dy = incoming(x)
        y.backward(tensor(dy.astype(np.float64)))
        np.testing.assert_allclose(layer(x), y.detach().numpy(), rtol=0, atol=atol)
        np.testing.assert_allclose(layer.backward(dy), leaf.grad.numpy(), rtol=0, atol=10 * atol)
        np.testing.assert_allclose(layer.running_mean, mean.numpy(), rtol=0, atol=atol)
        np.testing.assert_allclose(layer.running_cov, covariance.numpy(), rtol=0, atol=atol)
    assert layer.num_batches_tracked == 3


def test_the_layers_state_and_settings(dtype: Any) -> None:
    layer = cnorm.Whitening(6, "newton", 3, momentum=None, dtype=dtype)
    batches = [mixed((20, 6), 1, dtype, seed=seed) for seed in range(3)]
    for x in batches:
        layer(x)
    state = layer.state_dict()
    assert list(state) == ["running_mean", "running_cov", "num_batches_tracked"]
    assert state["running_cov"].shape == (3, 2, 2)
    assert state["running_mean"].dtype == dtype
    average = np.mean([x.mean(axis=0) for x in batches], axis=0)
    np.testing.assert_allclose(state["running_mean"], average, rtol=0, atol=1e-6)
    other = cnorm.Whitening(6, "newton", 3, dtype=dtype).eval()
    other.load_state_dict(state)
    np.testing.assert_array_equal(other(batches[0]), layer.eval()(batches[0]))
    assert not layer.parameters()
    assert repr(layer) == (
        "Whitening(6, method='newton', groups=3, eps=1e-05, momentum=None, n_iterations=5, "
        "track_running_stats=True)"
    )
    untracked = cnorm.Whitening(6, track_running_stats=False, dtype=dtype).eval()
    np.testing.assert_array_equal(untracked(batches[0]), cnorm.whiten(batches[0]))
    assert not untracked.state_dict()
    for arguments in (
        {"groups": 4},
        {"method": "ica"},
        {"eps": -1.0},
        {"num_features": -1},
        {"n_iterations": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            cnorm.Whitening(**{"num_features": 6, **arguments})
    with pytest.raises(ValueError, match="x"):
        layer(batches[0][:, :5])
