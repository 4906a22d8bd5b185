"""Every check of arguments, with one wording: which argument, what was expected, what came.

A wrong type or dtype is a TypeError, a wrong shape or value a ValueError. Nothing is read or written before
all of a call's checks are through.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cnorm import _backend, _layouts
from cnorm._gradients import Gradients

Array = NDArray[Any]
DType = np.dtype[Any]

_COMPUTE: dict[str, DType] = {"e": np.dtype(np.float32), "f": np.dtype(np.float32), "d": np.dtype(np.float64)}
_OVERLAP_EFFORT = 10_000  # candidates that the exact solution may try before an overlap is assumed


def _refuse(kind: type[Exception], name: str, expected: str, got: object) -> NoReturn:
    raise kind(f"{name}: expected {expected}, got {got}")


def _is_bfloat16(dtype: DType) -> bool:
    """Recognised by name, so that ml_dtypes need not be imported, nor installed."""
    return dtype.kind not in "iufcbOSUMm" and dtype.name == "bfloat16"


def array(name: str, value: object) -> Array:
    """Return `value` as a plain ndarray on the same memory."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        _refuse(
            TypeError, name, "an array without a mask", f"{type(value).__name__}, whose mask would be ignored"
        )
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if not any(
        hasattr(value, protocol) for protocol in ("__array__", "__array_interface__", "__array_struct__")
    ):
        try:
            memoryview(value)  # type: ignore[arg-type]
        except TypeError:
            _refuse(TypeError, name, "an array", type(value).__name__)
    return np.asarray(value)


def floating(name: str, value: object) -> tuple[Array, DType]:
    """Return `value` as an array of a type we compute with, and the dtype in which that is done."""
    result = array(name, value)
    if _is_bfloat16(result.dtype):
        return result, _COMPUTE["e"]
    if result.dtype.char not in _COMPUTE:
        _refuse(TypeError, name, "dtype float16, bfloat16, float32 or float64", result.dtype)
    return result, _COMPUTE[result.dtype.char]


def number(name: str, value: Any) -> float:
    """Return `value` as a finite float."""
    if not hasattr(type(value), "__float__") or (isinstance(value, np.ndarray) and value.ndim):
        _refuse(TypeError, name, "a number", type(value).__name__)
    result = float(value)
    if not math.isfinite(result):
        _refuse(ValueError, name, "a finite number", result)
    return result


def epsilon(eps: Any) -> float:
    """Check what is added to the variance."""
    if (value := number("eps", eps)) < 0:
        _refuse(ValueError, "eps", "a number >= 0", value)
    return value


def integer(name: str, value: Any) -> int:
    """Return `value` as an int."""
    try:
        return operator.index(value)
    except TypeError:
        _refuse(TypeError, name, "an integer", type(value).__name__)


def channel_axis(x: Array, axis: Any, first: int, name: str = "x") -> int:
    """Return the channel axis of `x` counted from the front; axes before `first` cannot be it."""
    if x.ndim < 2:
        _refuse(ValueError, name, "at least 2 axes, batch and channels", f"shape {x.shape}")
    given = integer("axis", axis)
    result = given + x.ndim if given < 0 else given
    if not first <= result < x.ndim:
        other = f" other than the batch axis {first - 1}" if first else ""
        _refuse(ValueError, "axis", f"an axis of {name}, which has {x.ndim},{other}".rstrip(","), given)
    return result


def groups(num_groups: Any, channels: int, name: str = "num_groups") -> int:
    """Check that the channels can be cut into `num_groups` groups of one size."""
    count = integer(name, num_groups)
    if count < 1 or channels % count:
        _refuse(ValueError, name, f"a positive divisor of the {channels} channels", count)
    return count


def trailing_shape(x: Array, normalized_shape: Any, weight: object) -> tuple[int, ...]:
    """Return the shape of a row of `x`: as given, or that of the weight, or the last axis."""
    if x.ndim == 0:
        _refuse(ValueError, "x", "at least 1 axis", "shape ()")
    name = "normalized_shape"
    if normalized_shape is None:
        if weight is None:
            return x.shape[-1:]
        name, shape = "weight", array("weight", weight).shape
    elif isinstance(normalized_shape, (tuple, list)):
        shape = tuple(integer(name, n) for n in normalized_shape)
    else:
        shape = (integer(name, normalized_shape),)
    if not shape or x.shape[-len(shape) :] != shape:
        _refuse(ValueError, name, f"the last axes of x, of shape {x.shape}", f"shape {shape}")
    return shape


def _parameter(name: str, value: object, shape: tuple[int, ...]) -> Array:
    result = array(name, value)
    if result.dtype.kind != "f" and not _is_bfloat16(result.dtype):
        _refuse(TypeError, name, "a floating dtype", result.dtype)
    if result.shape != shape:
        _refuse(ValueError, name, f"shape {shape}", f"shape {result.shape}")
    return result


def statistic(name: str, value: object, shape: tuple[int, ...], dtype: DType) -> Array:
    """Return a saved statistic as a ready 1-D array of the compute dtype."""
    return _layouts.compact(_parameter(name, value, shape), dtype)


def parameter(name: str, value: object, shape: tuple[int, ...], dtype: DType) -> Array | None:
    """Return a parameter as a ready 1-D array of the compute dtype."""
    return None if value is None else _layouts.compact(_parameter(name, value, shape), dtype)


def _overlap(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_EFFORT)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _check_writeable(name: str, target: Array) -> None:
    """Refuse read-only arrays, and those in which two elements share memory or may do."""
    if not target.flags.writeable:
        _refuse(ValueError, name, "a writeable array", "a read-only one")
    end = target.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(target.strides, target.shape, strict=True) if n > 1):
        if stride < end and target.size:
            _refuse(ValueError, name, "elements apart in memory", f"strides {target.strides}")
        end += stride * (n - 1)


def output(out: object, x: Array, name: str = "x", /, **inputs: object) -> Array:
    """Return the array to write to: `out`, or a new one like the argument `name`. It may be that itself."""
    return _layouts.empty_like(x) if out is None else _destination(out, x, name, x, name, inputs)


def input_gradient(
    out: object,
    needed: frozenset[str],
    dy: Array,
    x: Array,
    name: str = "x",
    incoming: str = "dy",
    /,
    **inputs: object,
) -> Array | None:
    """Return the array for the gradient of the argument `name`, if that is needed: `out` or a new one.

    It may be the `incoming` gradient itself.
    """
    if name in needed:
        return only_gradient(out, dy, x, name, incoming, **inputs)
    if out is not None:
        _refuse(ValueError, "out", f"None, as need has no '{name}'", "an array")
    return None


def only_gradient(
    out: object, dy: Array, x: Array, name: str = "x", incoming: str = "dy", /, **inputs: object
) -> Array:
    """As `input_gradient`, of a function that has no other."""
    if out is None:
        return _layouts.empty_like(x)
    return _destination(out, x, name, dy, incoming, {name: x, **inputs})


def _destination(
    out: object, x: Array, name: str, replaced: Array, replaced_name: str, inputs: dict[str, object]
) -> Array:
    """Check an output given for a result like the argument `name`, that may replace one of the inputs."""
    target = _writeable_like("out", out, x.shape, x.dtype, name)
    same = (
        target.ctypes.data == replaced.ctypes.data
        and target.strides == replaced.strides
        and target.dtype == replaced.dtype
    )
    own = f"{replaced_name} itself or memory of its own"
    if not same and _overlap(target, replaced):
        _refuse(ValueError, "out", own, f"another view of {replaced_name}")
    for other, value in inputs.items():
        if value is not None and _overlap(target, array(other, value)):
            _refuse(ValueError, "out", own, f"memory of {other}")
    return target


def _writeable_like(name: str, out: object, shape: tuple[int, ...], dtype: DType, like: str) -> Array:
    if not isinstance(out, np.ndarray):
        _refuse(TypeError, name, "a NumPy array", type(out).__name__)
    target = array(name, out)
    if target.dtype != dtype:
        _refuse(TypeError, name, f"dtype {dtype}, that of {like}", target.dtype)
    if target.shape != shape:
        _refuse(ValueError, name, f"shape {shape}, that of {like}", f"shape {target.shape}")
    _check_writeable(name, target)
    return target


def separate_output(out: object, shape: tuple[int, ...], dtype: DType, **inputs: object) -> Array:
    """Return the array for a result of another shape than any input's: `out`, or a new one."""
    if out is None:
        return _backend.empty(shape, dtype)
    target = _writeable_like("out", out, shape, dtype, "the result")
    for other, value in inputs.items():
        if _overlap(target, array(other, value)):
            _refuse(ValueError, "out", "memory of its own", f"memory of {other}")
    return target


def running_statistics(
    running_mean: object, running_var: object, channels: int, *, needed: bool, updated: bool, **inputs: object
) -> tuple[Array, Array] | None:
    """Check running statistics, of which there are two or none.

    Parameters
    ----------
    needed : bool
        Whether there must be two.
    updated : bool
        Whether the call changes them: then they have to be writeable arrays with memory of their own.
    inputs
        The call's other arrays, with which they may not overlap then.
    """
    pair = {"running_mean": running_mean, "running_var": running_var}
    return running_pair(pair, ((channels,), (channels,)), needed, updated, inputs)


def running_pair(
    pair: dict[str, object],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    needed: bool,
    updated: bool,
    inputs: dict[str, object],
) -> tuple[Array, Array] | None:
    """Check two running statistics by name, as `running_statistics` describes."""
    missing = [name for name, value in pair.items() if value is None]
    if missing and (needed or len(missing) == 1):
        _refuse(ValueError, missing[0], f"an array of shape {shapes[[*pair].index(missing[0])]}", None)
    if missing:
        return None
    result: dict[str, Array] = {}
    for (name, value), shape in zip(pair.items(), shapes, strict=True):
        if updated and not isinstance(value, np.ndarray):
            _refuse(TypeError, name, "a NumPy array, which is updated in place", type(value).__name__)
        result[name] = _parameter(name, value, shape)
    if updated:
        others = dict(inputs)
        for name, statistic in result.items():
            _check_writeable(name, statistic)
            for other, value in others.items():
                if value is not None and _overlap(statistic, array(other, value)):
                    _refuse(ValueError, name, "memory of its own", f"memory of {other}")
            others[name] = statistic
    first, second = result.values()
    return first, second


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Check that `value` is one of a few words."""
    if not isinstance(value, str):
        _refuse(TypeError, name, f"one of {allowed}", type(value).__name__)
    if value not in allowed:
        _refuse(ValueError, name, f"one of {allowed}", repr(value))
    return value


def needed(need: Any, weight: object) -> frozenset[str]:
    """Return which gradients to compute: as named, or that of `x`, and of the parameters if there are any."""
    if need is None:
        return frozenset(Gradients._fields if weight is not None else ("x",))
    return names_of(need, Gradients._fields)


def names_of(need: Any, fields: tuple[str, ...]) -> frozenset[str]:
    """Return the gradients named: some of `fields`, or one of them."""
    try:
        names = (need,) if isinstance(need, str) else tuple(need)
    except TypeError:
        _refuse(TypeError, "need", f"names out of {fields}", type(need).__name__)
    return frozenset(choice("need", name, fields) for name in names)


def incoming(dy: object, x: Array, like: str = "x") -> Array:
    """Return the gradient that comes in, which has the shape of the argument `like`."""
    return incoming_like("dy", dy, like, x.shape)


def incoming_like(name: str, value: object, like: str, shape: tuple[int, ...]) -> Array:
    """Return the gradient that comes in for something of this shape."""
    result, _ = floating(name, value)
    if result.shape != shape:
        _refuse(ValueError, name, f"shape {shape}, that of {like}", f"shape {result.shape}")
    return result


def axis_of(name: str, x: Array, axis_name: str, axis: Any) -> int:
    """Return an axis of the argument `name`, counted from the front."""
    if x.ndim == 0:
        _refuse(ValueError, name, "at least 1 axis", "shape ()")
    given = integer(axis_name, axis)
    result = given + x.ndim if given < 0 else given
    if not 0 <= result < x.ndim:
        _refuse(ValueError, axis_name, f"an axis of {name}, which has {x.ndim}", given)
    return result


def order(p: Any) -> float:
    """Check the order of a norm."""
    if not hasattr(type(p), "__float__") or (isinstance(p, np.ndarray) and p.ndim):
        _refuse(TypeError, "p", "a number", type(p).__name__)
    if not (value := float(p)) > 0:
        _refuse(ValueError, "p", "a number > 0", value)
    return value


def several_values(count: int, what: str) -> None:
    """Refuse statistics of a single value, whose variance says nothing."""
    if count == 1:
        _refuse(ValueError, "x", f"more than one value per {what}", "one")


def updated(name: str, value: object, shape: tuple[int, ...], dtype: DType, /, **inputs: object) -> Array:
    """Check an array that the call changes in place; it may share no memory with the other `inputs`."""
    if not isinstance(value, np.ndarray):
        _refuse(TypeError, name, "a NumPy array, which is updated in place", type(value).__name__)
    result = _parameter(name, value, shape)
    if result.dtype != dtype:
        _refuse(TypeError, name, f"dtype {dtype}, as it is updated in place", result.dtype)
    _check_writeable(name, result)
    for other, given in inputs.items():
        if given is not None and _overlap(result, array(other, given)):
            _refuse(ValueError, name, "memory of its own", f"memory of {other}")
    return result


def style_maps(style: object, axis: Any, batch: int, channels: int, needed: bool) -> tuple[Array, int]:
    """Return the style of a content of so many samples and channels, and its channel axis.

    Parameters
    ----------
    needed : bool
        Whether there is content, which needs a style of at least one position.
    """
    result, _ = floating("style", style)
    place = channel_axis(result, axis, first=1, name="style")
    if (result.shape[0], result.shape[place]) != (batch, channels):
        expected = f"{batch} samples and, on axis {place}, {channels} channels, as content has"
        _refuse(ValueError, "style", expected, f"shape {result.shape}")
    if needed and not result.size:
        _refuse(ValueError, "style", "at least one position", f"shape {result.shape}")
    return result, place


def modulation(name: str, value: object, x: Array, dtype: DType) -> Array:
    """Return numbers by sample and element of a row as a ready (batch, cols) array of the compute dtype.

    `value` has that shape, or axes of size 1 between the two, as many as `x` has there.
    """
    shape = (x.shape[0], x.shape[-1])
    given = array(name, value)
    long = (x.shape[0], *(1 for _ in x.shape[1:-1]), x.shape[-1])
    if given.shape not in (shape, long):
        _refuse(ValueError, name, f"shape {shape} or {long}", f"shape {given.shape}")
    return _layouts.compact(_parameter(name, given, given.shape), dtype).reshape(shape)


def samples_of_rows(x: Array) -> None:
    """Refuse arrays without a batch axis before their rows."""
    if x.ndim < 2:
        _refuse(ValueError, "x", "at least 2 axes, batch and the elements of a row", f"shape {x.shape}")
