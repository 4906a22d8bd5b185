"""Every memory layout gives what its contiguous copy gives, and the result keeps its memory order."""

from __future__ import annotations

import array as stdlib_array
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnorm
import layouts
import oracle
from norms import GROUPS, NORMS, Norm, Parameters
from traps import TRAPS

BOUND = 6.0
OFFSET = next(trap for trap in TRAPS if trap.name == "mean 1e4, spread 1")

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)


def _check(norm: Norm, x: np.ndarray, axis: int = 1, eps: float = 1e-5) -> np.ndarray:
    """Right, with nothing but the result changed; returns the result."""
    plain = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
    p = norm.parameters(plain, axis=axis)
    y = norm.call(x, p, eps, axis)
    np.testing.assert_array_equal(x, plain)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    assert type(y) is np.ndarray
    assert oracle.worst_units(y, norm.exact(plain, p, eps, axis)) <= BOUND
    return y


def _bytes_behind(x: np.ndarray) -> bytes:
    """All the memory of the buffer ``x`` is a view of, gaps included."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x.tobytes()


@pytest.mark.parametrize(
    ("norm", "layout"),
    [
        pytest.param(norm, layout, id=f"{norm.name}-{name}")
        for norm in NORMS
        for name, layout in layouts.of(norm.channels, norm.op == "batch_norm").items()
    ],
)
def test_every_layout(norm: Norm, layout: layouts.Layout, dtype: Any) -> None:
    for rows, elements in ((15, 2), (15, 9), (35, 255), (15, 2003)):
        x, axis = layout(norm.arrange(OFFSET(rows, elements, dtype)))
        before = _bytes_behind(x)
        _check(norm, x, axis)
        assert _bytes_behind(x) == before, "the gaps of the input"


@each_norm
@pytest.mark.parametrize(
    "layout", [layouts.columns, layouts.steps, layouts.swapped], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("rows", "elements"), [(60, 9001), (GROUPS, 270_001)])
def test_more_than_a_tile(norm: Norm, layout: layouts.Layout, rows: int, elements: int) -> None:
    """Strided data are gathered by tiles of about a mebibyte: many groups, and groups larger than that."""
    x, axis = layout(norm.arrange(OFFSET(rows, elements, np.float32)))
    _check(norm, x, axis)


@each_norm
def test_every_transpose(norm: Norm, dtype: Any) -> None:
    base = OFFSET(35, 36, dtype).reshape(7, 5, 4, 9)
    for order in permutations(range(4)):
        x = base.transpose(order)
        for axis in range(1, 4) if norm.channels else (1,):
            if norm.op != "group_norm" or x.shape[axis] == GROUPS:
                _check(norm, x, axis)


@each_norm
def test_zero_strides(norm: Norm, dtype: Any) -> None:
    """Broadcast arrays: equal samples, equal channels, and equal elements, which are constant groups."""
    base = OFFSET(1, 45, dtype).reshape(3, 5, 3)
    for shape, view in (
        ((7, 5, 3), base[:1]),
        ((3, 5, 3), base[:, :1]),
        ((3, 5, 9), base[:, :, :1]),
        ((4, 5, 9), base[:1, :1, :1]),
    ):
        y = _check(norm, np.broadcast_to(view, shape))
        assert y.flags.writeable
        assert 0 not in y.strides


@each_norm
def test_size_one_axes_with_odd_strides(norm: Norm, dtype: Any) -> None:
    """The stride of an axis of one element means nothing: the same bits, in a contiguous result."""
    for shape in ((1, 5, 9), (3, 5, 1), (1, 5, 1, 9), (3, 5, 1, 9), (3, 5, 9, 1, 1)):
        x = OFFSET(1, int(np.prod(shape)), dtype).reshape(shape)
        p = norm.parameters(x)
        wanted = norm.call(x, p, 1e-5)
        for odd in (8, 0, -48, 1 << 40):
            strides = tuple(odd if n == 1 else s for n, s in zip(shape, x.strides, strict=True))
            view = np.lib.stride_tricks.as_strided(x, shape, strides)
            y = norm.call(view, p, 1e-5)
            np.testing.assert_array_equal(y, wanted, err_msg=str(odd))
            assert y.flags.c_contiguous


@pytest.mark.parametrize("norm", [n for n in NORMS if n.channels], ids=lambda norm: norm.name)
def test_the_result_keeps_channels_last(norm: Norm, dtype: Any) -> None:
    x = OFFSET(15, 36, dtype).reshape(3, 5, 4, 9)
    last, axis = layouts.channels_last(x)
    y = _check(norm, last, axis)
    assert y.flags.c_contiguous
    view, axis = layouts.channels_last_view(x)
    y_view = _check(norm, view, axis)
    assert y_view.strides == view.strides
    np.testing.assert_array_equal(np.moveaxis(y_view, 1, -1), y, err_msg="both take the same kernel")


@each_norm
def test_the_result_of_a_contiguous_input_is_contiguous(norm: Norm, dtype: Any) -> None:
    x = norm.arrange(OFFSET(15, 36, dtype))
    for layout in (
        layouts.contiguous,
        layouts.steps,
        layouts.padded_rows,
        layouts.unaligned,
        layouts.read_only,
    ):
        y = norm.call(layout(x)[0], norm.parameters(x), 1e-5)
        assert y.flags.c_contiguous
        assert y.flags.aligned
        assert y.flags.writeable
        assert y.flags.owndata or y.base is not None


@each_norm
def test_memory_mapped_files(norm: Norm, dtype: Any, tmp_path: Path) -> None:
    x = norm.arrange(OFFSET(35, 255, dtype))
    path = tmp_path / "x.bin"
    x.tofile(path)
    p = norm.parameters(x)
    for mode in ("r", "c", "r+"):
        mapped = np.memmap(path, dtype, mode, shape=x.shape)  # type: ignore[call-overload]
        y = norm.call(mapped, p, 1e-5)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, norm.call(x, p, 1e-5))
        del mapped
    np.testing.assert_array_equal(np.fromfile(path, dtype).reshape(x.shape), x)
    target = np.memmap(tmp_path / "y.bin", dtype, "w+", shape=x.shape)
    assert norm.call(x, p, 1e-5, out=target) is target
    np.testing.assert_array_equal(target, y)


@each_norm
def test_zero_size(norm: Norm, dtype: Any) -> None:
    for shape in ((0, 5, 3), (3, 5, 0), (0, 5, 0), (0, 5, 3, 2), (2, 5, 0, 3), (0, 5)):
        for axis in range(1, len(shape)) if norm.channels else (1,):
            moved = np.moveaxis(np.empty(shape, dtype), 1, axis)
            p = norm.parameters(moved, axis=axis)
            result = norm.call(moved, p, 1e-5, axis, return_stats=True)
            assert result[0].shape == moved.shape
            assert result[0].dtype == dtype
            assert all(s.dtype == dtype for s in result[1:])
            assert norm.call(moved, p, 1e-5, axis, out=moved) is moved


def test_zero_size_normalized_axes(dtype: Any) -> None:
    for op in (cnorm.layer_norm, cnorm.rms_norm):
        y, *statistics = op(np.empty((3, 4, 0), dtype), (4, 0), np.empty((4, 0), dtype), return_stats=True)
        assert y.shape == (3, 4, 0)
        assert all(s.shape == (3, 1, 1) for s in statistics)


# Outputs ----------------------------------------------------------------------------------------------------

OUTPUTS = {
    name: layout for name, layout in layouts.ANY.items() if name not in ("read-only", "other byte order")
}


@each_norm
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_in_every_layout(norm: Norm, name: str, dtype: Any) -> None:
    """The result goes between the gaps of the output, and the gaps stay as they are."""
    for rows, elements in ((15, 9), (35, 255), (GROUPS, 30_003)):
        x = norm.arrange(OFFSET(rows, elements, dtype))
        p = norm.parameters(x)
        out, _ = OUTPUTS[name](np.zeros_like(x))
        out[...] = 0
        empty = _bytes_behind(out)
        assert norm.call(x, p, 1e-5, out=out) is out
        np.testing.assert_array_equal(out, norm.call(x, p, 1e-5))
        out[...] = 0
        assert _bytes_behind(out) == empty, "the gaps of the output"


@each_norm
@pytest.mark.parametrize("name", OUTPUTS)
def test_in_place_in_every_layout(norm: Norm, name: str, dtype: Any) -> None:
    for rows, elements in ((15, 9), (35, 255), (GROUPS, 30_003)):
        x, axis = OUTPUTS[name](norm.arrange(OFFSET(rows, elements, dtype)))
        p = norm.parameters(np.ascontiguousarray(x))
        wanted = norm.call(x, p, 1e-5, axis)
        assert norm.call(x, p, 1e-5, axis, out=x) is x
        np.testing.assert_array_equal(x, wanted)


@each_norm
def test_an_output_of_the_other_byte_order_is_another_type(norm: Norm, dtype: Any) -> None:
    """out has x's dtype, byte order included: swapped to swapped works, native to swapped is refused."""
    x, _ = layouts.swapped(norm.arrange(OFFSET(15, 9, dtype)))
    p = norm.parameters(x.astype(dtype))
    out = np.zeros_like(x)
    assert norm.call(x, p, 1e-5, out=out) is out
    np.testing.assert_array_equal(out, norm.call(x.astype(dtype), p, 1e-5))
    with pytest.raises(TypeError, match="out"):
        norm.call(x, p, 1e-5, out=np.zeros(x.shape, dtype))


# Parameters -------------------------------------------------------------------------------------------------


@each_norm
def test_parameters_in_every_layout(norm: Norm, dtype: Any) -> None:
    x = norm.arrange(OFFSET(15, 9, dtype))
    p = norm.parameters(x)
    wanted = norm.call(x, p, 1e-5)
    for name, layout in layouts.ANY.items():
        if norm.groups_cross_samples or not norm.running:
            moved = Parameters(layout(p.weight)[0], layout(p.bias)[0])  # type: ignore[arg-type]
        else:
            moved = Parameters(*(layout(v)[0] for v in vars(p).values()))
        before = [_bytes_behind(v) for v in vars(moved).values() if v is not None]
        np.testing.assert_array_equal(norm.call(x, moved, 1e-5), wanted, err_msg=name)
        assert [_bytes_behind(v) for v in vars(moved).values() if v is not None] == before


def test_one_number_broadcast_to_every_weight(dtype: Any) -> None:
    x = OFFSET(15, 9, dtype)
    weight = np.broadcast_to(np.array(-7.5, dtype), (9,))
    np.testing.assert_array_equal(cnorm.layer_norm(x, 9, weight), cnorm.layer_norm(x, 9, weight.copy()))


# Other sources of memory ------------------------------------------------------------------------------------


class _Interface:
    """An object that lends its memory through the array interface only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class _Subclass(np.ndarray):
    pass


def test_whatever_asarray_takes_without_copying() -> None:
    x = OFFSET(15, 9, np.float64)
    wanted = cnorm.layer_norm(x)
    sources = {
        "memoryview": memoryview(x),
        "array interface": _Interface(x),
        "subclass": x.view(_Subclass),
        "array.array": stdlib_array.array("d", x.reshape(-1).tolist()),
    }
    for name, source in sources.items():
        y = cnorm.layer_norm(source, 9) if name != "array.array" else cnorm.layer_norm(source)
        assert type(y) is np.ndarray
        if name != "array.array":
            np.testing.assert_array_equal(y, wanted, err_msg=name)
        else:
            assert y.shape == (135,)


@pytest.mark.peers
def test_pytorch_tensors_are_read_in_place() -> None:
    torch = pytest.importorskip("torch")
    x = OFFSET(15, 9, np.float32)
    np.testing.assert_array_equal(cnorm.layer_norm(torch.from_numpy(x)), cnorm.layer_norm(x))


# Hypothesis -------------------------------------------------------------------------------------------------

DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(">f4"), np.dtype(">f8")]


@st.composite
def strided(draw: st.DrawFn, least_axes: int) -> np.ndarray:
    """Random shape, steps of both signs, broadcast axes, and a random order of the axes."""
    shape = draw(st.lists(st.integers(0, 7), min_size=least_axes, max_size=5))
    steps = [draw(st.sampled_from((1, 1, 2, 3, -1, -2, 0))) for _ in shape]
    dtype = draw(st.sampled_from(DTYPES))
    base_shape = [1 if step == 0 else max(n * abs(step), 1) for n, step in zip(shape, steps, strict=True)]
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    mean = draw(st.sampled_from((0.0, 1.0, -1e4)))
    base = (mean + rng.standard_normal(base_shape)).astype(dtype)
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        index = [slice(None)] * len(shape)
        index[axis] = slice(None, None, step or 1)
        base = base[tuple(index)]
        if step == 0:
            base = np.broadcast_to(base, [n if i == axis else m for i, m in enumerate(base.shape)])
        else:
            index[axis] = slice(0, n)
            base = base[tuple(index)]
    return base.transpose(draw(st.permutations(range(len(shape)))))


@given(x=strided(1), data=st.data())
def test_any_strides_row_norms(x: np.ndarray, data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, x.ndim))
    trailing = x.shape[x.ndim - axes :]
    plain = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((2, *trailing)).astype(plain.dtype)
    y = cnorm.layer_norm(x, trailing, weight, bias)
    assert y.dtype == x.dtype
    assert oracle.worst_units(y, oracle.layer_norm(plain, weight, bias, axes=axes)) <= BOUND
    y = cnorm.rms_norm(x, trailing, weight, 1e-5, bias=bias)
    assert oracle.worst_units(y, oracle.rms_norm(plain, weight, bias, axes=axes)) <= BOUND
    np.testing.assert_array_equal(x, plain)


@given(x=strided(2), data=st.data())
def test_any_strides_channel_norms(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(1, x.ndim - 1))
    channels = x.shape[axis]
    plain = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
    rng = np.random.default_rng(2)
    weight, bias, mean = rng.standard_normal((3, channels)).astype(plain.dtype)
    var = np.abs(mean) + plain.dtype.type(0.1)
    if channels:
        groups = data.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        y = cnorm.group_norm(x, groups, weight, bias, axis=axis)
        assert oracle.worst_units(y, oracle.group_norm(plain, groups, weight, bias, axis=axis)) <= BOUND
        y = cnorm.instance_norm(x, None, None, weight, bias, axis=axis - x.ndim)
        assert oracle.worst_units(y, oracle.instance_norm(plain, weight, bias, axis=axis)) <= BOUND
    y = cnorm.batch_norm(x, mean, var, weight, bias, axis=axis)
    exact = oracle.batch_norm_inference(plain, mean, var, weight, bias, axis=axis)
    assert oracle.worst_units(y, exact) <= BOUND
    if np.prod(x.shape) != channels:  # more than one value per channel, or none
        y = cnorm.batch_norm(x, None, None, weight, bias, True, axis=axis)
        assert oracle.worst_units(y, oracle.batch_norm(plain, weight, bias, axis=axis)) <= BOUND
    np.testing.assert_array_equal(x, plain)


@given(x=strided(2), data=st.data())
def test_any_strides_of_the_output(x: np.ndarray, data: st.DataObject) -> None:
    """An output with other strides than the input's receives the same bits."""
    order = data.draw(st.permutations(range(x.ndim)))
    step = data.draw(st.sampled_from((1, 2, -1)))
    memory = np.zeros([x.shape[a] * abs(step) for a in order], x.dtype)
    out = memory[tuple(slice(None, None, step) for _ in order)].transpose(np.argsort(order))
    assert out.shape == x.shape
    assert cnorm.layer_norm(x, out=out) is out
    np.testing.assert_array_equal(out, cnorm.layer_norm(x))


@given(x=strided(1))
def test_any_strides_sixteen_bit(x: np.ndarray) -> None:
    for kind in (np.float16, ml_dtypes.bfloat16):
        narrow = x.astype(kind)
        np.testing.assert_array_equal(cnorm.layer_norm(narrow), cnorm.layer_norm(np.array(narrow, order="C")))
