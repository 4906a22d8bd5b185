"""The layer of batch norm over several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cnorm import _ranks
from cnorm.layers import _checks
from cnorm.layers.batch_norm import BatchNorm
from cnorm.ops.batch_norm import check_call
from cnorm.ops.sync_batch_norm import normalize_over_ranks
from cnorm.ops.sync_batch_norm_backward import sync_batch_norm_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cnorm._gradients import Gradients
    from cnorm._ranks import Communicator

Array = NDArray[Any]


class SyncBatchNorm(BatchNorm):
    """Batch norm over the samples of all processes (ranks): `x` of shape (batch, channels, ...) on each.

    In training, `cnorm.sync_batch_norm` with the statistics of the ranks' values, whose running average is
    kept, the same on all ranks; after `eval`, with that average and without communication.

    Parameters
    ----------
    num_features : int
        The number of channels.
    eps : float
        At least 0. Added to the variance, inside the square root.
    momentum : float, optional
        Weight of a new batch in the running statistics. None: they are the average over all batches so far.
    affine : bool
        Whether there are a weight, at first 1, and a bias.
    track_running_stats : bool
        Whether there are running statistics. Otherwise those of this rank's batch are used after `eval`.
    comm : mpi4py communicator, optional
        Or anything with mpi4py's ``Get_size`` and ``Allgather`` on NumPy buffers. None: this process alone,
        as `BatchNorm1d` and its like.
    dtype : dtype, optional
        That of the parameters: float16, bfloat16, float32 or float64; by default float32. Running statistics
        have it too, but are float32 for 16 bits.
    bias : bool
        Whether an affine layer has a bias, at first 0.
    axis : int
        The channel axis; -1 for arrays with channels last.

    Attributes
    ----------
    weight, bias : array, shape (channels,), or None
        The parameters.
    running_mean, running_var : array, shape (channels,), or None
        The running statistics, at first 0 and 1. A call that fails, or of batches that are all empty, leaves
        them alone.
    num_batches_tracked : array of int64, shape (), or None
        How many batches they have seen.

    See Also
    --------
    cnorm.sync_batch_norm : The function, its formula and its errors, and what collective calls ask for.
    cnorm.sync_batch_norm_backward : The gradients; those of the parameters are this rank's share.

    Notes
    -----
    Calls in training, and their `backward`, are collective: all ranks make them, in the same order, also
    with an empty batch. Arguments, names and defaults are those of ``torch.nn.SyncBatchNorm``, with `comm`
    for its process group.

    Examples
    --------
    >>> import numpy as np
    >>> import cnorm
    >>> layer = cnorm.SyncBatchNorm(2)  # comm=mpi4py.MPI.COMM_WORLD in a program of several processes
    >>> x = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    >>> layer(x).round(3)
    array([[-1.342, -1.342],
           [-0.447, -0.447],
           [ 0.447,  0.447],
           [ 1.342,  1.342]], dtype=float32)
    >>> dx = layer.backward(np.eye(4, 2, dtype=np.float32))
    >>> layer.grads["bias"]
    array([1., 1.], dtype=float32)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        comm: Communicator | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
        axis: int = 1,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, dtype, bias=bias, axis=axis
        )
        self.comm = None if comm is None else _ranks.communicator(comm)

    def _forward(self, x: Array) -> tuple[Array, Callable[[Any], Gradients]]:
        axis, weight, need, comm = self.axis, self.weight, self._needed(), self.comm
        _checks.channels(x, axis, self.num_features, first=0)
        if comm is None or not self.training:
            return self._alone(x)
        running, momentum = self._updated(), self._weight_of_new()
        call = check_call(x, *running, weight, self.bias, True, momentum, self.eps, axis, None)
        mean, rstd, count = normalize_over_ranks(call, comm, unbiased=True)
        if self.num_batches_tracked is not None and count:
            self.num_batches_tracked += 1

        def gradients(dy: Any) -> Gradients:
            return sync_batch_norm_backward(dy, x, mean, rstd, weight, comm=comm, axis=axis, need=need)

        return call.y, gradients
