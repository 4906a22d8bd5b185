"""Gradients of SPADE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cnorm import _arguments, _backend, _layouts, _modulation
from cnorm._gradients import SpadeGradients
from cnorm.ops.batch_norm_backward import batch_norm_backward
from cnorm.ops.group_norm_backward import group_norm_backward

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Array = NDArray[Any]
ALL = SpadeGradients._fields


def spade_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    gamma: ArrayLike,
    *,
    beta_shape: tuple[int, ...] | None = None,
    norm: str = "batch",
    gamma_offset: float = 1.0,
    axis: int = 1,
    num_groups: int | None = None,
    training: bool = True,
    need: Iterable[str] = ALL,
    out: Array | None = None,
) -> SpadeGradients:
    """Gradients of `spade` with respect to its input, gamma and beta.

    With ``xhat = (x - mean) * rstd`` and ``g = dy * (gamma_offset + gamma)``, where averages are over the
    group that an element was normalised with, and sums over the axes along which gamma and beta were
    broadcast::

        dx = rstd * (g - average(g) - xhat * average(g * xhat))
        dgamma = sum(dy * xhat)
        dbeta = sum(dy)

    and for batch norm by running statistics ``dx = g * rstd``.

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the loss with respect to the result. Its memory layout need not be that of `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was normalised, in any memory layout and byte order. Channels may be another axis, see `axis`.
    mean, rstd : array of any floating dtype
        As `spade` returned them. What the rounding of the mean left in `xhat` is removed; running statistics
        are used as given.
    gamma : array of any floating dtype, of a shape that broadcasts to that of `x`
        As it was given to `spade`.
    beta_shape : tuple of int, optional
        The shape of beta; by default that of `gamma`.
    norm : {"batch", "instance", "layer", "group"}
        As it was given to `spade`, like the next three.
    gamma_offset : float
        What was added to `gamma`.
    axis : int
        The channel axis. The batch axis is the first of the others.
    num_groups : int, optional
        For ``norm="group"``: a divisor of the number of channels.
    training : bool
        For ``norm="batch"``: whether `x` was normalised by its own statistics; else by running ones, which do
        not depend on `x`.
    need : iterable of {"x", "gamma", "beta"}, or one of them
        Which gradients to compute.
    out : array, optional
        Where to write the gradient of `x`: of the shape and dtype of `x`, and either `dy` itself or memory of
        its own.

    Returns
    -------
    SpadeGradients
        Named tuple ``(x, gamma, beta)``, None where not needed. ``x`` has the shape, dtype and memory order
        of the argument `x`; it is `out` if that was given. ``gamma`` and ``beta`` have the shapes of these,
        and the dtype computed in: float64 for float64, else float32. In a constant group `xhat` is 0; a group
        with a non-finite value gives NaN.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `norm` is no string,
        or `out` has another dtype than `x`.
    ValueError
        If `dy` or a statistic has another shape, `gamma` or `beta_shape` does not broadcast to that of `x`,
        `num_groups` does not divide the channels or is given for another norm, `axis` is not an axis of `x`,
        `need` has an unknown name, or `out` is read-only, has another shape, overlaps an input other than
        `dy` itself, or is given where the gradient of `x` is not needed.

    References
    ----------
    T. Park, M.-Y. Liu, T.-C. Wang, J.-Y. Zhu, "Semantic Image Synthesis with Spatially-Adaptive
    Normalization", 2019, arXiv:1903.07291.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> x = np.array([[[1, 2], [3, 4]]], np.float32)
    >>> gamma = np.array([[0, 1]], np.float32)
    >>> y, mean, rstd = cnorm.spade(x, gamma, gamma, norm="layer", return_stats=True)
    >>> dy = np.array([[[1, 0], [0, 0]]], np.float32)
    >>> grads = cnorm.spade_backward(dy, x, mean, rstd, gamma, norm="layer")
    >>> grads.x.round(3)
    array([[[ 0.268, -0.358],
            [-0.089,  0.179]]], dtype=float32)
    >>> grads.gamma.round(3)
    array([[-1.342,  0.   ]], dtype=float32)
    >>> grads.beta
    array([[1., 0.]], dtype=float32)
    """
    result: SpadeGradients | None = _backend.fast_spade_backward(
        dy, x, mean, rstd, gamma, beta_shape, norm, gamma_offset, axis, num_groups, training, need, out
    )
    if result is not None:
        return result

    x, dtype = _arguments.floating("x", x)
    dy = _arguments.incoming(dy, x)
    pooled = _arguments.choice("norm", norm, _modulation.NORMS) == "batch"
    axis = _arguments.channel_axis(x, axis, first=0 if pooled else 1)
    groups = _modulation.num_groups(norm, num_groups, x.shape[axis])
    shape = _modulation.statistics_shape(x, axis, norm, groups)
    means = _arguments.statistic("mean", mean, shape, dtype)
    rstds = _arguments.statistic("rstd", rstd, shape, dtype)
    offset = _arguments.number("gamma_offset", gamma_offset)
    scale = _modulation.modulation("gamma", gamma, x)
    gamma_shape = _arguments.array("gamma", gamma).shape
    beta_shape = gamma_shape if beta_shape is None else _shape("beta_shape", beta_shape)
    shift_shape = _modulation.broadcast_shape("beta_shape", beta_shape, x)
    needed = _needed(need)
    dx = _arguments.input_gradient(out, needed, dy, x, mean=mean, rstd=rstd, gamma=gamma)

    dgamma: Array | None
    dbeta: Array | None
    dgamma, dbeta = (np.zeros(shape, dtype) for shape in (scale.shape, shift_shape))
    by_channel = x.size > 0 and _modulation.per_channel(scale, x, axis, norm)
    with_kernel = shift_shape == (scale.shape if by_channel else x.shape)
    wanted = needed if with_kernel else needed - {"beta"}
    if wanted != needed:  # before dx, which may replace dy
        dbeta = _sum_of(dy, shift_shape, dtype)
    if by_channel and wanted:
        weight = _modulation.weights(scale, offset, dtype)
        own = means, rstds, weight, groups, bool(training), wanted
        dgamma, total = _channel_gradients(dy, x, dx, axis, *own)
        dbeta = total if with_kernel else dbeta
    elif x.size and wanted:
        frozen = pooled and not training
        own_gamma = scale, offset, groups, frozen, wanted, dtype
        dgamma, total = _modulated(dy, x, dx, axis, (means, rstds), *own_gamma)
        dbeta = total if with_kernel else dbeta
    return SpadeGradients(
        dx if out is None else out,
        dgamma.reshape(gamma_shape) if dgamma is not None and "gamma" in needed else None,
        dbeta.reshape(beta_shape) if dbeta is not None and "beta" in needed else None,
    )


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}: expected a tuple of integers, got {type(value).__name__}")
    return tuple(_arguments.integer(name, n) for n in value)


def _needed(need: Any) -> frozenset[str]:
    try:
        names = (need,) if isinstance(need, str) else tuple(need)
    except TypeError:
        raise TypeError(f"need: expected names out of {ALL}, got {type(need).__name__}") from None
    return frozenset(_arguments.choice("need", name, ALL) for name in names)


def _sum_of(dy: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Sum `dy` over the axes along which `shape` is 1; an array of its own if there are none."""
    with np.errstate(all="ignore"):
        if shape == dy.shape:
            return dy.astype(dtype)
        values = dy if dy.dtype == dtype else dy.astype(dtype)
        return _modulation.broadcast_sum(values, shape).astype(dtype)


def _channel_gradients(
    dy: Array,
    x: Array,
    dx: Array | None,
    axis: int,
    mean: Array,
    rstd: Array,
    weight: Array,
    groups: int,
    training: bool,
    wanted: frozenset[str],
) -> tuple[Array | None, Array | None]:
    """Batch or group norm's gradients, with a weight for each channel, or for each channel of each sample."""
    names = {"x": "x", "gamma": "weight", "beta": "bias"}
    options: dict[str, Any] = {"axis": axis, "need": tuple(names[name] for name in wanted)}
    if groups == 0:
        return batch_norm_backward(dy, x, mean, rstd, weight, training=training, out=dx, **options)[1:]
    batch, channels = x.shape[0], x.shape[axis]
    mean, rstd = mean.reshape(batch, groups), rstd.reshape(batch, groups)
    if weight.size == channels:
        return group_norm_backward(dy, x, mean, rstd, groups, weight, out=dx, **options)[1:]
    if axis == 1 and all(a is None or a.flags.c_contiguous for a in (dy, x, dx)):
        # Samples side by side are one sample with more channels.
        shape = (1, batch * channels, *x.shape[2:])
        dy, x, dx = dy.reshape(shape), x.reshape(shape), None if dx is None else dx.reshape(shape)
        mean, rstd = mean.reshape(1, -1), rstd.reshape(1, -1)
        return group_norm_backward(dy, x, mean, rstd, batch * groups, weight, out=dx, **options)[1:]
    weight = weight.reshape(batch, channels)
    gradients = []
    for n in range(batch):
        one = slice(n, n + 1)
        target = None if dx is None else dx[one]
        gradients.append(
            group_norm_backward(
                dy[one], x[one], mean[one], rstd[one], groups, weight[n], out=target, **options
            )
        )
    return _stacked([g.weight for g in gradients]), _stacked([g.bias for g in gradients])


def _stacked(arrays: list[Array | None]) -> Array | None:
    given = [array for array in arrays if array is not None]
    return np.stack(given) if given else None


def _modulated(
    dy: Array,
    x: Array,
    dx: Array | None,
    axis: int,
    statistics: tuple[Array, Array],
    gamma: Array,
    offset: float,
    groups: int,
    frozen: bool,
    wanted: frozenset[str],
    dtype: np.dtype[Any],
) -> tuple[Array | None, Array | None]:
    """With a gamma for each element: write dx, and return the gradients of gamma and of a beta like `x`."""
    pooled, per_group = groups == 0, x.shape[axis] // groups if groups else 1
    form = _layouts.channel_form(x, axis, pooled)
    arrays = _modulation.Modulations((gamma,), x, form, dtype)
    means, rstds = (v if pooled else v.reshape(-1, groups) for v in statistics)
    shapes = {"gamma": gamma.shape, "beta": x.shape}
    products = {name: _Products(shapes[name], x, form, dtype) for name in wanted if name != "x"}

    def kernel(dyt: Array, *rest: Any) -> None:
        *tiles, xt, dxt, samples, some = rest
        part = slice(some.start // per_group, some.stop // per_group)
        (scale,) = arrays.parts(tuple(tiles), samples, some)
        targets = {name: products[name].target(xt.shape, samples, some) for name in products}
        _backend.active.spade_backward(
            dyt,
            xt,
            _layouts.part(means, part if pooled else (samples, part)),
            _layouts.part(rstds, part if pooled else (samples, part)),
            scale,
            offset,
            0 if pooled else part.stop - part.start,
            not frozen,
            form.channels_last,
            dxt,
            targets.get("gamma"),
            targets.get("beta"),
        )
        for name, target in targets.items():
            products[name].add(target, samples, some)

    together: Literal["channels", "samples", "elements"] = "samples"
    if pooled:
        together = "elements" if frozen else "channels"
    _layouts.run_channels((dy, *arrays.whole, x), dx, form, dtype, kernel, together, per_group)
    dgamma, dbeta = (products[name].gradient() if name in products else None for name in shapes)
    return dgamma, dbeta


class _Products:
    """A gradient from its terms, tile by tile, as they are or summed in float64."""

    def __init__(
        self, shape: tuple[int, ...], x: Array, form: _layouts.ChannelForm, dtype: np.dtype[Any]
    ) -> None:
        self.form, self.dtype, self.shape = form, dtype, shape
        view = _modulation.spread(np.broadcast_to(dtype.type(0), shape), x, form)
        self.view_shape, self.summed = view.shape, shape != x.shape
        size = form.shape(view)
        self.values = np.zeros(size) if self.summed else _backend.empty(size, dtype)

    def _place(self, samples: slice, channels: slice) -> Array:
        return self.values[_modulation.place(self.form, samples, channels, self.values.shape)]

    def target(self, shape: tuple[int, ...], samples: slice, channels: slice) -> Array:
        """Return where a tile's terms go: into the result, if they are contiguous in it."""
        place = self._place(samples, channels)
        return place if not self.summed and place.flags.c_contiguous else np.empty(shape, self.dtype)

    def add(self, terms: Array, samples: slice, channels: slice) -> None:
        place = self._place(samples, channels)
        with np.errstate(all="ignore"):
            if self.summed:
                place += _modulation.broadcast_sum(terms, place.shape)
            elif not np.may_share_memory(place, terms):
                place[...] = terms

    def gradient(self) -> Array:
        """Return the sums with the axes of `x`; what was written out along an axis is summed there."""
        view = self.values.reshape(self.view_shape)
        view = (view[0] if self.form.pooled else view).transpose(np.argsort(self.form.order))
        if not self.summed:
            return view
        with np.errstate(all="ignore"):
            return _modulation.broadcast_sum(view, self.shape).astype(self.dtype)
