"""state_dict and load_state_dict: PyTorch's names both ways, files, and everything that does not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cnorm
from layer_cases import CASES, NAMES, Case, randomize
from peer import tensor, torch

each_case = pytest.mark.parametrize("case", CASES, ids=NAMES)


def _assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert list(a) == list(b)
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


@pytest.mark.peers
@each_case
def test_names_shapes_dtypes_and_first_values_are_pytorchs(case: Case, dtype: Any) -> None:
    ours = case.ours(dtype).state_dict()
    theirs = {name: value.numpy() for name, value in case.theirs(dtype).state_dict().items()}
    _assert_same(ours, theirs)
    assert [v.dtype for v in ours.values()] == [v.dtype for v in theirs.values()]
    assert [v.shape for v in ours.values()] == [v.shape for v in theirs.values()]


@pytest.mark.peers
@each_case
def test_round_trip_with_pytorch(case: Case) -> None:
    ours, theirs, back = case.ours(), case.theirs(), case.ours()
    randomize(ours, 1)
    theirs.load_state_dict({name: tensor(value) for name, value in ours.state_dict().items()})
    x = case.draw(np.random.default_rng(1))
    result = theirs.eval()(tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours.eval()(x), result, rtol=1e-11, atol=1e-12)
    back.load_state_dict(theirs.state_dict())
    _assert_same(back.state_dict(), ours.state_dict())


@pytest.mark.peers
def test_pytorch_loads_our_safetensors_file_and_we_theirs(tmp_path: Path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    torch_files = pytest.importorskip("safetensors.torch")
    ours, theirs, back = cnorm.BatchNorm2d(3), torch().nn.BatchNorm2d(3), cnorm.BatchNorm2d(3)
    randomize(ours, 2)
    numpy_files.save_file(ours.state_dict(), tmp_path / "ours.safetensors")
    theirs.load_state_dict(torch_files.load_file(tmp_path / "ours.safetensors"))
    torch_files.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    back.load_state_dict(numpy_files.load_file(tmp_path / "theirs.safetensors"))
    _assert_same(back.state_dict(), ours.state_dict())
    assert theirs.num_batches_tracked == ours.num_batches_tracked


def test_a_file_of_numpys(tmp_path: Path) -> None:
    ours, back = cnorm.BatchNorm1d(3), cnorm.BatchNorm1d(3)
    randomize(ours, 3)
    np.savez(tmp_path / "layer.npz", **ours.state_dict())
    with np.load(tmp_path / "layer.npz") as file:
        back.load_state_dict(file)
    _assert_same(back.state_dict(), ours.state_dict())


def test_a_state_dict_is_a_snapshot() -> None:
    layer = cnorm.BatchNorm1d(3)
    state = layer.state_dict()
    layer(np.arange(12, dtype=np.float32).reshape(4, 3))
    layer.weight += 1
    _assert_same(state, cnorm.BatchNorm1d(3).state_dict())


def test_values_are_copied_into_the_arrays_there_are() -> None:
    layer = cnorm.BatchNorm1d(3)
    arrays = [layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.num_batches_tracked]
    state = {name: value + 1 for name, value in layer.state_dict().items()}
    assert layer.load_state_dict(state) == ([], [])
    assert layer.weight is arrays[0]
    assert layer.num_batches_tracked is arrays[4]
    _assert_same(layer.state_dict(), state)
    state["weight"][:] = 9
    assert not (layer.weight == 9).any()


def test_values_may_be_views_of_what_they_replace() -> None:
    layer = cnorm.LayerNorm(3)
    layer.load_state_dict({"weight": layer.bias, "bias": layer.weight})
    np.testing.assert_array_equal([layer.weight, layer.bias], [[0] * 3, [1] * 3])


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("own", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_values_of_any_floating_type_become_the_layers(kind: Any, own: Any) -> None:
    layer = cnorm.BatchNorm1d(3, dtype=own)
    value = np.array([0.1, 1e30, -2]).clip(-6e4, 6e4).astype(kind)
    layer.load_state_dict({"weight": value, "running_mean": value}, strict=False)
    np.testing.assert_array_equal(layer.weight, value.astype(own))
    np.testing.assert_array_equal(layer.running_mean, value.astype(layer.running_mean.dtype))
    assert layer.weight.dtype == own


def test_values_beyond_the_layers_type_become_infinite_without_a_warning() -> None:
    layer = cnorm.LayerNorm(1)
    layer.load_state_dict({"weight": np.array([1e300])}, strict=False)
    assert layer.weight[0] == np.inf


def test_missing_and_unexpected_names_and_wrong_shapes_are_all_listed() -> None:
    layer = cnorm.BatchNorm2d(3)
    randomize(layer, 4)
    before = layer.state_dict()
    mapping = {"bias": np.ones(3), "weight": np.ones(2), "running_mean": np.ones((3, 1)), "scale": np.ones(3),
               "0.bias": np.ones(3)}  # fmt: skip
    parts = ["mapping for BatchNorm2d", "missing keys 'running_var'", "unexpected keys 'scale', '0.bias'",
             "weight: expected shape (3,), got shape (2,)",
             "running_mean: expected shape (3,), got shape (3, 1)"]  # fmt: skip
    for kind in (ValueError, RuntimeError):  # the latter is PyTorch's
        with pytest.raises(kind) as caught:
            layer.load_state_dict(mapping)
        assert all(part in str(caught.value) for part in parts)
    _assert_same(layer.state_dict(), before)
    with pytest.raises(ValueError, match=re.escape("(3,), got shape (2,)")) as caught:
        layer.load_state_dict(mapping, strict=False)
    assert "keys" not in str(caught.value)
    _assert_same(layer.state_dict(), before)


@pytest.mark.peers
@each_case
def test_missing_and_unexpected_names_are_pytorchs(case: Case) -> None:
    ours, theirs = case.ours(), case.theirs()
    # Statistics for an instance norm that tracks none are an error of its own in PyTorch.
    for mapping in ({}, {"weight": np.ones(1)}, {"scale": np.ones(1)}):
        fitting = {name: ours.state_dict().get(name, value) for name, value in mapping.items()}
        wanted = theirs.load_state_dict({k: tensor(v) for k, v in fitting.items()}, strict=False)
        result = ours.load_state_dict(fitting, strict=False)
        assert result.missing_keys == wanted.missing_keys
        assert result.unexpected_keys == wanted.unexpected_keys


def test_the_counter_may_be_missing() -> None:
    layer = cnorm.BatchNorm1d(3)
    randomize(layer, 5)
    count = int(layer.num_batches_tracked)
    state = layer.state_dict()
    del state["num_batches_tracked"]
    layer.load_state_dict(state)
    assert layer.num_batches_tracked == count


@pytest.mark.parametrize(
    ("mapping", "match"),
    [
        ({"weight": [1.0] * 3}, "weight: expected an array, got list"),
        ({"weight": None}, "weight: expected an array, got NoneType"),
        ({"weight": np.ones(3, int)}, "weight: expected dtype float16.*, got int64"),
        ({"running_mean": np.ones(3, complex)}, "running_mean: expected dtype float16.*, got complex128"),
        ({"num_batches_tracked": np.ones(())}, "num_batches_tracked: expected an integer dtype, got float64"),
        ([("weight", np.ones(3))], "mapping: expected a mapping of names to arrays, got list"),
        (None, "mapping: expected a mapping of names to arrays, got NoneType"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_wrong_types(mapping: Any, match: str, strict: bool) -> None:
    layer = cnorm.BatchNorm1d(3)
    state = layer.state_dict()
    complete = {**state, **mapping} if isinstance(mapping, dict) else mapping
    with pytest.raises(TypeError, match=match):
        layer.load_state_dict(complete, strict=strict)
    _assert_same(layer.state_dict(), state)
