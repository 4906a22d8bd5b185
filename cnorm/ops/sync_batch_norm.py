"""Batch norm over several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from cnorm import _backend, _layouts, _ranks, _running
from cnorm.ops.batch_norm import Call, batch_norm, check_call

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cnorm._ranks import Communicator

Array = NDArray[Any]

_MOMENTS = 5  # numbers of a channel, see the backend protocol


@overload
def sync_batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    comm: Communicator | None,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[False] = False,
) -> Array: ...
@overload
def sync_batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    comm: Communicator | None,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: Literal[True],
) -> tuple[Array, Array, Array]: ...
def sync_batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    comm: Communicator | None,
    axis: int = 1,
    unbiased: bool = True,
    out: Array | None = None,
    return_stats: bool = False,
) -> Array | tuple[Array, Array, Array]:
    """Batch norm whose statistics are those of all processes' (ranks') samples together.

    Each rank has a part of the batch, and calls this function with it. In training, mean and biased variance
    are over the values of all ranks, and each normalises its own::

        y = (x - mean) / sqrt(var + eps) * weight + bias

    Without `training` the running statistics are used, which takes no communication.

    Parameters
    ----------
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        This rank's part of the batch, in any memory layout and byte order. Ranks may have batches of
        different sizes, or empty ones; all must have the same number of channels, and compute in one dtype.
        Channels may be another axis, see `axis`.
    running_mean, running_var : array of any floating dtype, shape (channels,), optional
        As in `batch_norm`. In training they are updated in place with the statistics of all ranks: where
        they had the same bits on all ranks, they still have.
    weight, bias : array of any floating dtype, shape (channels,), optional
        By default 1 and 0.
    training : bool
        Whether to normalise by the statistics of the ranks' values; else by the running ones.
    momentum : float
        Weight of the new value in the running statistics: 0 leaves them, 1 replaces them.
    eps : float
        At least 0. Added to the variance, inside the square root.
    comm : mpi4py communicator, or None
        Or anything with mpi4py's ``Get_size`` and ``Allgather`` on NumPy buffers. None: the ranks are this
        process alone, which is `batch_norm`.
    axis : int
        The channel axis. The batch axis is the first of the others.
    unbiased : bool
        Whether the variance that goes into `running_var` is divided by n - 1 instead of n, where n is the
        number of values of a channel on all ranks. `y` always uses the latter.
    out : array, optional
        Where to write the result: of the shape and dtype of `x`, and either `x` itself or memory of its own.
    return_stats : bool
        Return ``mean`` and ``rstd = 1 / sqrt(var + eps)`` too.

    Returns
    -------
    y : array
        Of the shape, dtype and memory order of `x`; `out` if that was given. A channel that is constant over
        all ranks gives exactly `bias`; one with a non-finite value on any rank is NaN on all.
    mean, rstd : array, shape (channels,)
        Only with `return_stats`: those `x` was normalised by, with the same bits on all ranks. Their dtype is
        the one computed in: float64 for float64, else float32. Both are 0 in training where all batches are
        empty.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `out` has another dtype than `x`, or `comm`
        lacks a method.
    ValueError
        As in `batch_norm`. In training, on every rank, if all ranks together have one value per channel, or
        if their channels or dtypes differ. No running statistic has changed then.

    See Also
    --------
    batch_norm : The same over one process.
    sync_batch_norm_backward : Its gradients.

    Notes
    -----
    A call in training is collective, one ``Allgather`` of 32 KiB, and of more than 819 channels a second one,
    of 40 bytes for each of the others: all ranks of `comm` have to make it, with the same `eps`. A rank that
    raises before the communication, as for arguments that are wrong on this rank alone, or that is gone,
    leaves the others waiting in MPI, as in any collective call. A program should end then on all ranks, which
    ``python -m mpi4py`` or ``comm.Abort()`` see to.

    The ranks' counts, means and sums of squares are merged in rank order on each rank. So statistics do not
    depend on the order in which MPI would add, and they are as accurate as those of one process.

    References
    ----------
    S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015, arXiv:1502.03167.
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for Computing the Sample Variance", The American
    Statistician 37, 1983.

    Examples
    --------
    In a program that is started by ``mpiexec -n 4 python ...``, `comm` is ``mpi4py.MPI.COMM_WORLD``. One
    process in place of a communicator:

    >>> import numpy as np
    >>> import cnorm
    >>> class Alone:
    ...     def Get_size(self):
    ...         return 1
    ...
    ...     def Allgather(self, sendbuf, recvbuf):
    ...         recvbuf[0] = sendbuf
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> cnorm.sync_batch_norm(x, training=True, comm=Alone()).round(3)
    array([[-1.342, -1.342],
           [-0.447, -0.447],
           [ 0.447,  0.447],
           [ 1.342,  1.342]], dtype=float32)
    """
    if comm is not None:
        _ranks.communicator(comm)
    if comm is None or not training:
        rest: Any = {"axis": axis, "unbiased": unbiased, "out": out, "return_stats": return_stats}
        alone: Array | tuple[Array, Array, Array] = batch_norm(
            x, running_mean, running_var, weight, bias, training, momentum, eps, **rest
        )
        return alone
    result: Array | tuple[Array, Array, Array] | None = _backend.fast_sync_batch_norm(
        x, running_mean, running_var, weight, bias, momentum, eps, comm, axis, unbiased, out, return_stats
    )
    if result is not None:
        return result
    call = check_call(x, running_mean, running_var, weight, bias, True, momentum, eps, axis, out)
    mean, rstd, _ = normalize_over_ranks(call, comm, bool(unbiased))
    y = call.y if out is None else out
    return (y, mean, rstd) if return_stats else y


class Statistics(NamedTuple):
    """Those of the ranks' values, and how many of these a channel has."""

    mean: Array
    rstd: Array
    values: int


def normalize_over_ranks(call: Call, comm: Communicator, unbiased: bool) -> Statistics:
    """Do a checked call in training: write y and the running statistics."""
    form = _layouts.channel_form(call.x, call.axis, pooled=True)
    moments = _moments(call, form)
    counts, every = _ranks.gather(comm, _ranks.FORWARD, call.values, moments, call.dtype)
    values = int(counts.sum())
    mean, rstd = np.zeros((2, call.channels), call.dtype)
    if values == 0:
        return Statistics(mean, rstd, values)

    merged = np.empty_like(moments)
    running = call.running if call.momentum else None
    running_mean, running_var = (None, None) if running is None else _running.compact(running, call.dtype)
    _backend.active.sync_batch_norm_merge(
        counts,
        every,
        call.eps,
        merged,
        mean,
        rstd,
        running_mean,
        running_var,
        call.momentum,
        unbiased,
    )
    if running is not None and running_mean is not None and running_var is not None:
        _running.store(running, (running_mean, running_var))

    def kernel(xt: Array, yt: Array, _: slice, some: slice) -> None:
        part = merged if some == slice(0, call.channels) else merged[:, some].copy()
        weight, bias = _layouts.part(call.weight, some), _layouts.part(call.bias, some)
        _backend.active.sync_batch_norm_apply(xt, part, weight, bias, form.channels_last, yt)

    if call.x.size:
        _layouts.run_channels((call.x,), call.y, form, call.dtype, kernel, "elements")
    return Statistics(mean, rstd, values)


def _moments(call: Call, form: _layouts.ChannelForm) -> Array:
    """Return the moments (5, channels) of this rank."""
    moments = np.zeros((_MOMENTS, call.channels))

    def kernel(xt: Array, _out: None, _: slice, some: slice) -> None:
        part = moments if some == slice(0, call.channels) else np.empty_like(moments[:, some])
        _backend.active.sync_batch_norm_moments(xt, call.eps, form.channels_last, part)
        if part is not moments:
            moments[:, some] = part

    if call.x.size:
        _layouts.run_channels((call.x,), None, form, call.dtype, kernel, "channels")
    return moments
