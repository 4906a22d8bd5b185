"""Gradients of batch norm over several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cnorm import _backend, _layouts, _ranks
from cnorm._gradients import Gradients, ParameterSums
from cnorm.ops.batch_norm_backward import batch_norm_backward, check_gradient_call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from cnorm._ranks import Communicator

Array = NDArray[Any]

_SUMS = 8  # numbers of a channel, see the backend protocol


def sync_batch_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    comm: Communicator | None,
    training: bool = True,
    axis: int = 1,
    need: Iterable[str] | None = None,
    out: Array | None = None,
) -> Gradients:
    """Gradients of `sync_batch_norm` with respect to its input, weight and bias.

    With ``xhat = (x - mean) * rstd``, where averages are over the values of a channel on all ranks, and sums
    over those of this rank::

        dx = rstd * weight * (dy - average(dy) - xhat * average(dy * xhat))    in training
        dx = rstd * weight * dy                                                with running statistics
        dweight = sum(dy * xhat)
        dbias = sum(dy)

    So `dx` is the gradient of the sum of all ranks' losses, and the gradients of the parameters are this
    rank's share of it, as in PyTorch: data-parallel training adds up (or averages) those of all parameters
    over the ranks afterwards, ``comm.Allreduce`` for one, and the norm's along with them.

    Parameters
    ----------
    dy : array of float16, bfloat16, float32 or float64, shape of `x`
        The gradient of the losses with respect to this rank's result. Its memory layout need not be that of
        `x`.
    x : array of float16, bfloat16, float32 or float64, shape (batch, channels, ...)
        What was normalised on this rank, in any memory layout and byte order; the batch may be empty.
        Channels may be another axis, see `axis`.
    mean, rstd : array of any floating dtype, shape (channels,)
        As `sync_batch_norm` returned them, the same on all ranks. What the rounding of the mean left in
        `xhat` is removed in training; running statistics are used as given.
    weight : array of any floating dtype, shape (channels,), optional
        By default 1.
    comm : mpi4py communicator, or None
        As in `sync_batch_norm`. None is `batch_norm_backward`.
    training : bool
        Whether `x` was normalised by the statistics of the ranks' values; else by running ones, which takes
        no communication.
    axis : int
        The channel axis. The batch axis is the first of the others.
    need : iterable of {"x", "weight", "bias"}, or one of them, optional
        Which gradients to compute. By default that of `x`, and with a weight the parameters' too.
    out : array, optional
        Where to write the gradient of `x`: of the shape and dtype of `x`, and either `dy` itself or memory of
        its own.

    Returns
    -------
    Gradients
        Named tuple ``(x, weight, bias)``, None where not needed. ``x`` has the shape, dtype and memory order
        of the argument `x`; it is `out` if that was given. ``weight`` and ``bias`` have shape (channels,) and
        the dtype computed in: float64 for float64, else float32; they are 0 for an empty batch. In training,
        a channel with a non-finite value on any rank gives NaN on all, but one in `dy` alone leaves the other
        ranks' own sums as they are.

    Raises
    ------
    TypeError
        If a dtype is not floating, something is not an array, `need` holds no strings, `axis` is no integer,
        `out` has another dtype than `x`, or `comm` lacks a method.
    ValueError
        If `dy`, a statistic or the weight has another shape, `axis` is not an axis of `x`, `need` has an
        unknown name, or `out` is read-only, has another shape, overlaps an input other than `dy` itself, or
        is given where the gradient of `x` is not needed; in training, on every rank, if the ranks' channels
        or dtypes differ.

    See Also
    --------
    sync_batch_norm : What is said there of collective calls holds here too.

    Notes
    -----
    One ``Allgather`` of 32 KiB in training, whatever is needed, and of more than 512 channels a second one,
    of 64 bytes for each of the others. The ranks' sums are added in rank order on each rank, whatever the
    order in which MPI would add.

    References
    ----------
    S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift", 2015, arXiv:1502.03167.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> class Alone:
    ...     def Get_size(self):
    ...         return 1
    ...
    ...     def Allgather(self, sendbuf, recvbuf):
    ...         recvbuf[0] = sendbuf
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> y, mean, rstd = cnorm.sync_batch_norm(x, training=True, comm=Alone(), return_stats=True)
    >>> dy = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.float32)
    >>> weight = np.array([1, 100], np.float32)
    >>> grads = cnorm.sync_batch_norm_backward(dy, x, mean, rstd, weight, comm=Alone())
    >>> grads.x.round(3)
    array([[ 0.268,  1.789],
           [-0.358, -0.894],
           [-0.089, -3.578],
           [ 0.179,  2.683]], dtype=float32)
    >>> grads.weight.round(3)
    array([-1.342,  1.342], dtype=float32)
    """
    if comm is not None:
        _ranks.communicator(comm)
    if comm is None or not training:
        return batch_norm_backward(
            dy, x, mean, rstd, weight, training=training, axis=axis, need=need, out=out
        )
    result: Gradients | None = _backend.fast_sync_batch_norm_backward(
        dy, x, mean, rstd, weight, comm, axis, need, out
    )
    if result is not None:
        return result

    c = check_gradient_call(dy, x, mean, rstd, weight, axis, need, out)
    parameters = ParameterSums(c.needed, (c.channels,), c.dtype)
    form = _layouts.channel_form(c.x, c.axis, pooled=True)
    own = np.zeros((_SUMS, c.channels))

    def sum_channels(dyt: Array, xt: Array, _out: None, _: slice, some: slice) -> None:
        part = np.empty((_SUMS, some.stop - some.start))
        _backend.active.sync_batch_norm_backward_sums(
            dyt, xt, c.mean[some], c.rstd[some], form.channels_last, part
        )
        own[:, some] = part

    if c.x.size:
        _layouts.run_channels((c.dy, c.x), None, form, c.dtype, sum_channels, "channels")
    count = c.x.size // c.channels if c.channels else 0
    counts, sums = _ranks.gather(comm, _ranks.BACKWARD, count, own, c.dtype)

    def write_channels(dyt: Array, xt: Array, dxt: Array | None, _: slice, some: slice) -> None:
        with parameters.part(some) as (dweight, dbias):
            _backend.active.sync_batch_norm_backward_apply(
                dyt,
                xt,
                c.mean[some],
                c.rstd[some],
                _layouts.part(c.weight, some),
                np.ascontiguousarray(own[:, some]),
                counts,
                np.ascontiguousarray(sums[:, :, some]),
                form.channels_last,
                dxt,
                dweight,
                dbias,
            )

    if c.x.size and c.needed:
        _layouts.run_channels((c.dy, c.x), c.dx, form, c.dtype, write_channels, "channels")
    return parameters.gradients(c.dx if out is None else out)
