"""Gradients of batch norm over several ranks, and its layer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cnorm
import gradient_oracle
import oracle
import ranks
from conftest import NATIVE, THREAD_COUNTS
from peer import tensor, torch
from test_sync_batch_norm import BATCHES, SHAPES, TRAPS, draw, parameters

Array = NDArray[Any]

UNITS = 16.0
EVERYTHING = ("x", "weight", "bias")


def upstream(x: Array, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng([7, x.size]).standard_normal(x.shape)).astype(x.dtype)


def run(
    dys: list[Array], xs: list[Array], weight: Any, eps: float, axis: int = 1, **options: Any
) -> list[Any]:
    """Forward for the statistics, then backward, on each rank."""

    def call(comm: Any) -> Any:
        x = xs[comm.rank]
        _, mean, rstd = cnorm.sync_batch_norm(
            x, training=True, eps=eps, comm=comm, axis=axis, return_stats=True
        )
        return cnorm.sync_batch_norm_backward(
            dys[comm.rank], x, mean, rstd, weight, comm=comm, axis=axis, **({"need": EVERYTHING} | options)
        )

    return ranks.on_ranks(len(xs), call)


def parameter_units(grads: list[Any], dys: list[Array], xhats: list[Array], dtype: Any) -> float:
    """The error of each rank's own sums, in units of the array's largest, or what its terms add up to."""
    worst = 0.0
    axes = (0, *range(2, dys[0].ndim))
    for rank, (dy, xhat) in enumerate(zip(dys, xhats, strict=True)):
        for ours, terms in ((grads[rank].weight, dy * xhat), (grads[rank].bias, dy.astype(oracle.Long))):
            exact, chance = terms.sum(axes), np.sqrt(np.square(terms).sum(axes))
            scale = max(abs(exact).max(initial=0), chance.max(initial=0) / 2)
            error = abs(ours - exact).max(initial=0)
            worst = max(worst, float(error / (oracle.unit(dtype) * scale)) if error else 0.0)
    return worst


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_as_one_process_on_the_concatenation(
    trap: str, shape: tuple[int, ...], last: bool, dtype: Any
) -> None:
    for counts in BATCHES:
        x, eps = draw(counts, shape, dtype, trap)
        dy, weight = upstream(x), parameters(shape[0], dtype)[0]
        exact = gradient_oracle.batch_norm(dy, x, weight, eps)
        xhats = ranks.split(oracle.batch_norm(x, eps=eps).xhat, counts)
        axis = x.ndim - 1 if last else 1
        dys, xs = (
            [np.ascontiguousarray(np.moveaxis(p, 1, axis)) for p in ranks.split(a, counts)] for a in (dy, x)
        )
        grads = run(dys, xs, weight, eps, axis)
        dx = np.concatenate([np.moveaxis(g.x, axis, 1) for g in grads])
        assert gradient_oracle.units(dx, exact.x) <= UNITS, counts
        assert parameter_units(grads, ranks.split(dy, counts), xhats, dtype) <= UNITS, counts
        if TRAPS[trap][1] == 0:
            assert not any(g.weight.any() for g in grads)
        empty = [g for g, n in zip(grads, counts, strict=True) if n == 0]
        assert not any(g.x.size or g.weight.any() or g.bias.any() for g in empty)


@pytest.mark.parametrize(
    "scales", [(1e30, 1e30), (1e-36, 1e-36), (1e30, 1e-20), (1e-44, 1e-44), (0.0, 1e-40)]
)
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_any_size(scales: tuple[float, float], last: bool, dtype: Any) -> None:
    """Also such that differ from rank to rank."""
    if dtype == np.float64:
        scales = tuple(np.power(s, 7.0) if s > 1e-36 else s * 1e-270 for s in scales)
    x, eps = draw([4, 5], (3, 11), dtype)
    dys = [upstream(part, s) for part, s in zip(ranks.split(x, [4, 5]), scales, strict=True)]
    dy, weight = np.concatenate(dys), parameters(3, dtype)[0]
    exact = gradient_oracle.batch_norm(dy, x, weight, eps)
    axis = 2 if last else 1
    arranged = [
        [np.ascontiguousarray(np.moveaxis(p, 1, axis)) for p in some]
        for some in (dys, ranks.split(x, [4, 5]))
    ]
    grads = run(*arranged, weight, eps, axis)
    dx = np.concatenate([np.moveaxis(g.x, axis, 1) for g in grads])
    assert gradient_oracle.units(dx, exact.x) <= UNITS


@pytest.mark.peers
@pytest.mark.parametrize("with_weight", [True, False])
def test_as_autograd_on_the_concatenation(with_weight: bool) -> None:
    counts = [3, 0, 5]
    x, eps = draw(counts, (4, 6), np.float64)
    dy, weight = upstream(x), parameters(4, np.float64)[0] if with_weight else None
    xt, wt = tensor(x).requires_grad_(), tensor(weight)
    if with_weight:
        wt.requires_grad_()
    y = torch().nn.functional.batch_norm(xt, None, None, wt, None, True, 0.1, eps)
    y.backward(tensor(dy))
    grads = run(ranks.split(dy, counts), ranks.split(x, counts), weight, eps)
    dx = np.concatenate([g.x for g in grads])
    np.testing.assert_allclose(dx, xt.grad.numpy(), rtol=0, atol=1e-13)
    if with_weight:
        np.testing.assert_allclose(sum(g.weight for g in grads), wt.grad.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(sum(g.bias for g in grads), dy.sum((0, 2)), rtol=0, atol=1e-12)


@pytest.mark.skipif(not NATIVE, reason="the NumPy backend has one level and one thread")
@pytest.mark.parametrize("shape", [(5, 3, 70), (3, 50000), (600,), (4, 65, 66)])
@pytest.mark.parametrize("last", [False, True])
def test_same_bits_on_every_level_and_number_of_threads(
    shape: tuple[int, ...], last: bool, dtype: Any
) -> None:
    x, eps = draw([3, 6], shape, dtype, "far mean")
    dy, weight = upstream(x), parameters(shape[0], dtype)[0]
    axis = -1 if last else 1
    dys, xs = (
        [np.ascontiguousarray(np.moveaxis(p, 1, axis)) for p in ranks.split(a, [3, 6])] for a in (dy, x)
    )
    seen = set()
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            cnorm.set_num_threads(threads)
            grads = run(dys, xs, weight, eps, axis)
            seen.add(b"".join(a.tobytes() for g in grads for a in g))
    assert len(seen) == 1


@pytest.mark.parametrize("where", ["x", "dy"])
def test_a_nan_is_the_channel_s_own_on_all_ranks(where: str, dtype: Any) -> None:
    x, eps = draw([3, 5], (4, 6), dtype)
    dy = upstream(x)
    clean = run(ranks.split(dy, [3, 5]), ranks.split(x, [3, 5]), None, eps)
    (x if where == "x" else dy)[4, 2, 1] = np.nan
    found = run(ranks.split(dy, [3, 5]), ranks.split(x, [3, 5]), None, eps)
    for rank, (ours, right) in enumerate(zip(found, clean, strict=True)):
        assert np.isnan(ours.x[:, 2]).all()
        assert np.isnan(ours.weight[2]) == (where == "x" or rank == 1)  # sums over this rank's dy
        assert np.delete(ours.x, 2, 1).tobytes() == np.delete(right.x, 2, 1).tobytes()
        assert np.delete(ours.weight, 2).tobytes() == np.delete(right.weight, 2).tobytes()


def test_need_and_out(dtype: Any) -> None:
    x, eps = draw([3, 5], (4, 6), dtype)
    dy, weight = upstream(x), parameters(4, dtype)[0]
    xs, dys = ranks.split(x, [3, 5]), ranks.split(dy, [3, 5])
    everything = run(dys, xs, weight, eps)
    for name in EVERYTHING:
        for grads, right in zip(run(dys, xs, weight, eps, need=name), everything, strict=True):
            for field in EVERYTHING:
                ours = getattr(grads, field)
                assert (ours is None) if field != name else ours.tobytes() == getattr(right, field).tobytes()
    statistics = cnorm.batch_norm(x, training=True, return_stats=True)[1:]
    grads = ranks.on_ranks(
        2,
        lambda comm: cnorm.sync_batch_norm_backward(
            dys[comm.rank], xs[comm.rank], *statistics, weight, comm=comm, out=dys[comm.rank]
        ),
    )
    for rank in range(2):
        assert grads[rank].x is dys[rank]
        np.testing.assert_allclose(
            dys[rank],
            everything[rank].x,
            rtol=0,
            atol=64 * oracle.unit(dtype) * abs(everything[rank].x).max(),
        )


@pytest.mark.parametrize("kind", [np.float16, oracle.BFLOAT16])
def test_sixteen_bits_and_strides(kind: Any) -> None:
    x, eps = draw([3, 5], (4, 6), kind)
    dy, weight = upstream(x), parameters(4, np.float32)[0]
    exact = gradient_oracle.batch_norm(dy, x, weight, eps)
    xs, dys = ([np.repeat(p, 2, 2)[:, :, ::2] for p in ranks.split(a, [3, 5])] for a in (x, dy))
    dx = np.concatenate([g.x for g in run(dys, xs, weight, eps)])
    low, high = gradient_oracle.rounded_range(exact.x, kind, UNITS)
    assert dx.dtype == kind
    assert ((low <= dx.astype(oracle.Long)) & (dx.astype(oracle.Long) <= high)).all()


def test_without_communicator_or_training_it_is_that_of_batch_norm(dtype: Any) -> None:
    x, _ = draw([6], (4, 6), dtype)
    dy, weight = upstream(x), parameters(4, dtype)[0]
    statistics = cnorm.batch_norm(x, training=True, return_stats=True)[1:]
    right = cnorm.batch_norm_backward(dy, x, *statistics, weight)
    ours = cnorm.sync_batch_norm_backward(dy, x, *statistics, weight, comm=None)
    assert [a.tobytes() for a in ours] == [a.tobytes() for a in right]
    right = cnorm.batch_norm_backward(dy, x, *statistics, weight, training=False)

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm_backward(dy, x, *statistics, weight, comm=comm, training=False)

    results, world = ranks.outcomes(2, call)
    assert all(a.tobytes() == b.tobytes() for g in results for a, b in zip(g, right, strict=True))
    assert world.exchanges == 0


@pytest.mark.parametrize(("channels", "exchanges"), [(3, 1), (512, 1), (513, 2), (3000, 2)])
def test_one_exchange_or_of_many_channels_two(channels: int, exchanges: int, dtype: Any) -> None:
    x, eps = draw([2, 3], (channels,), dtype)
    dy = upstream(x)
    xs, dys = ranks.split(x, [2, 3]), ranks.split(dy, [2, 3])
    statistics = cnorm.batch_norm(x, training=True, eps=eps, return_stats=True)[1:]

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm_backward(dys[comm.rank], xs[comm.rank], *statistics, comm=comm)

    results, world = ranks.outcomes(2, call)
    assert world.exchanges == exchanges
    dx = np.concatenate([grads.x for grads in results])
    assert gradient_oracle.units(dx, gradient_oracle.batch_norm(dy, x, None, eps).x) <= UNITS


def test_a_mismatch_is_an_error_on_every_rank() -> None:
    def mismatch(comm: Any) -> Any:
        n = 3 - comm.rank
        return cnorm.sync_batch_norm_backward(
            np.ones((2, n)), np.ones((2, n)), np.zeros(n), np.ones(n), comm=comm
        )

    for result in ranks.outcomes(2, mismatch)[0]:
        with pytest.raises(ValueError, match="x: expected the same number of channels"):
            raise result


BAD = [
    ({"comm": "world"}, TypeError, "comm: expected an mpi4py communicator"),
    ({"dy": np.ones((2, 4))}, ValueError, "dy: expected shape"),
    ({"mean": np.ones(4)}, ValueError, "mean: expected shape"),
    ({"rstd": np.ones(3, int)}, TypeError, "rstd: expected a floating dtype"),
    ({"weight": np.ones(2)}, ValueError, "weight: expected shape"),
    ({"axis": 5}, ValueError, "axis"),
    ({"need": ("y",)}, ValueError, "need"),
    ({"need": 3}, TypeError, "need"),
    ({"need": "weight", "out": np.ones((2, 3))}, ValueError, "out: expected None"),
]


@pytest.mark.parametrize(("change", "kind", "wording"), BAD)
def test_bad_arguments_raise_before_any_exchange(
    change: dict[str, Any], kind: type[Exception], wording: str
) -> None:
    arguments = {"dy": np.eye(2, 3), "x": np.eye(2, 3), "mean": np.zeros(3), "rstd": np.ones(3)}

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm_backward(**({"comm": comm} | arguments | change))

    results, world = ranks.outcomes(1, call)
    with pytest.raises(kind, match=wording):
        raise results[0]
    assert world.exchanges == 0


def test_an_output_that_overlaps_raises_before_any_exchange(dtype: Any) -> None:
    memory = np.arange(60, dtype=dtype)
    dy, x = memory[:12].reshape(4, 3), memory[12:24].reshape(4, 3)
    statistics = memory[24:27], memory[27:30]
    for start in (6, 12, 20, 25, 28):

        def call(comm: Any) -> Any:
            out = memory[start : start + 12].reshape(4, 3)  # noqa: B023
            return cnorm.sync_batch_norm_backward(dy, x, *statistics, comm=comm, out=out)

        (result,), world = ranks.outcomes(1, call)
        assert isinstance(result, ValueError), start
        assert world.exchanges == 0
    assert (memory == np.arange(60)).all()


@pytest.mark.peers
@pytest.mark.parametrize("momentum", [0.1, None])
def test_layer_as_torch_over_several_steps(momentum: float | None) -> None:
    """The layers of three ranks, one of them empty at first, beside PyTorch's of the concatenation."""
    theirs = torch().nn.BatchNorm1d(4, momentum=momentum, dtype=torch().float64)
    world = ranks.World(3)
    layers = [
        cnorm.SyncBatchNorm(4, momentum=momentum, comm=ranks.Communicator(world, r), dtype=np.float64)
        for r in range(3)
    ]
    with torch().no_grad():
        theirs.weight.copy_(torch().linspace(0.5, 2, 4))
    for layer in layers:
        layer.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    for counts in ([3, 0, 5], [1, 1, 1], [0, 4, 2]):
        x, _ = draw(counts, (4, 6), np.float64)
        dy, xt = upstream(x), tensor(x).requires_grad_()
        theirs.zero_grad()
        right = theirs(xt)
        right.backward(tensor(dy))
        xs, dys = ranks.split(x, counts), ranks.split(dy, counts)

        def step(comm: Any) -> Any:
            layer = layers[comm.rank]
            layer.zero_grad()
            return layer(xs[comm.rank]), layer.backward(dys[comm.rank])  # noqa: B023

        results = ranks.on_ranks(3, step)
        y, dx = (np.concatenate([result[i] for result in results]) for i in range(2))
        np.testing.assert_allclose(y, right.detach().numpy(), rtol=0, atol=1e-13)
        np.testing.assert_allclose(dx, xt.grad.numpy(), rtol=0, atol=1e-13)
        dweight = sum(layer.grads["weight"] for layer in layers)
        np.testing.assert_allclose(dweight, theirs.weight.grad.numpy(), rtol=0, atol=1e-12)
    for layer in layers:
        for name, value in theirs.state_dict().items():
            np.testing.assert_allclose(layer.state_dict()[name], value.numpy(), rtol=1e-14)
    theirs.load_state_dict({name: tensor(value) for name, value in layers[0].state_dict().items()})
    x, _ = draw([2], (4, 6), np.float64)
    y = layers[1].eval()(x)
    np.testing.assert_allclose(y, theirs.eval()(tensor(x)).detach().numpy(), rtol=0, atol=1e-13)


def test_layer_alone_is_batch_norm(dtype: Any) -> None:
    x, _ = draw([6], (4, 6), dtype)
    ours, right = cnorm.SyncBatchNorm(4, dtype=dtype), cnorm.BatchNorm1d(4, dtype=dtype)
    assert ours(x).tobytes() == right(x).tobytes()
    assert ours.backward(x).tobytes() == right.backward(x).tobytes()
    assert ours.state_dict().keys() == right.state_dict().keys()
    assert repr(ours) == repr(right).replace("BatchNorm1d", "SyncBatchNorm")
    assert copy.deepcopy(ours).comm is None
    with pytest.raises(ValueError, match="x: expected 4 channels"):
        ours(np.ones((2, 3), dtype))
    with pytest.raises(TypeError, match="comm: expected"):
        cnorm.SyncBatchNorm(4, comm=1)


def test_layer_of_empty_batches_keeps_its_statistics() -> None:
    world = ranks.World(2)
    layers = [cnorm.SyncBatchNorm(3, comm=ranks.Communicator(world, r)) for r in range(2)]
    ranks.on_ranks(2, lambda comm: layers[comm.rank](np.empty((0, 3), np.float32)))
    assert all(layer.num_batches_tracked == 0 and (layer.running_var == 1).all() for layer in layers)
