"""Batch norm over several ranks, forward: as one process on the concatenation, the same bits on each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cnorm
import oracle
import ranks
from conftest import NATIVE, THREAD_COUNTS

Array = NDArray[Any]

UNITS = 6.0

#: Batches of the ranks: unequal, some empty, one sample each.
BATCHES = ([3, 5], [4, 0, 2], [0, 1, 6, 2], [1, 1, 1, 1], [7])
SHAPES = [(5,), (3, 4), (2, 3, 70), (2, 1), (1, 33, 40)]

#: Mean, spread, eps.
TRAPS = {
    "normal": (0.0, 1.0, 1e-5),
    "far mean": (1e4, 1.0, 1e-5),
    "constant": (0.1, 0.0, 1e-5),
    "constant, no eps": (1e7, 0.0, 0.0),
    "large": (0.0, 1e30, 1e-5),
    "small": (0.0, 1e-30, 0.0),
    "subnormal": (0.0, 1e-41, 0.0),
}


def draw(counts: list[int], shape: tuple[int, ...], dtype: Any, trap: str = "normal") -> tuple[Array, float]:
    """The samples of all ranks, and eps; a rank's samples have a mean of their own within the spread."""
    mean, spread, eps = TRAPS[trap]
    rng = np.random.default_rng([sum(counts), *shape])
    moved = np.repeat(np.arange(len(counts)), counts).reshape(-1, *(1 for _ in shape))
    return (mean + spread * (moved + rng.standard_normal((sum(counts), *shape)))).astype(dtype), eps


def parameters(channels: int, dtype: Any) -> Array:
    return np.random.default_rng(channels).uniform(-3, 3, (2, channels)).astype(dtype)


def run(parts: list[Array], weight: Any, bias: Any, eps: float, **options: Any) -> list[Any]:
    return ranks.on_ranks(
        len(parts),
        lambda comm: cnorm.sync_batch_norm(
            parts[comm.rank],
            None,
            None,
            weight,
            bias,
            True,
            eps=eps,
            comm=comm,
            return_stats=True,
            **options,
        ),
    )


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_as_one_process_on_the_concatenation(
    trap: str, shape: tuple[int, ...], last: bool, dtype: Any
) -> None:
    for counts in BATCHES:
        x, eps = draw(counts, shape, dtype, trap)
        weight, bias = parameters(shape[0], dtype)
        exact = oracle.batch_norm(x, weight, bias, eps)
        parts = ranks.split(x, counts)
        axis = x.ndim - 1 if last else 1
        results = run(
            [np.ascontiguousarray(np.moveaxis(p, 1, axis)) for p in parts], weight, bias, eps, axis=axis
        )
        y = np.concatenate([np.moveaxis(result[0], axis, 1) for result in results])
        assert oracle.worst_units(y, exact) <= UNITS, counts
        if TRAPS[trap][1] == 0:
            assert (y == bias.reshape(-1, *(1 for _ in shape[1:]))).all()
        for mean, rstd in (result[1:] for result in results):
            assert mean.tobytes() == results[0][1].tobytes()
            assert rstd.tobytes() == results[0][2].tobytes()
        scale = np.maximum(abs(exact.mean), np.sqrt(exact.var)).reshape(-1)
        u = oracle.unit(dtype)
        tiny = float(np.finfo(dtype).smallest_subnormal)
        assert (abs(results[0][1] - exact.mean.reshape(-1)) <= 4 * u * scale + tiny).all()
        with np.errstate(over="ignore"):
            rstd = exact.rstd.reshape(-1).astype(dtype)
        np.testing.assert_allclose(results[0][2], rstd, rtol=4 * u)


def test_running_statistics(dtype: Any) -> None:
    for unbiased in (True, False):
        for counts in BATCHES:
            x, eps = draw(counts, (3, 4), dtype, "far mean")
            parts = ranks.split(x, counts)
            kept = [(np.full(3, 2, dtype), np.full(3, 5, dtype)) for _ in counts]

            def call(comm: Any) -> None:
                cnorm.sync_batch_norm(
                    parts[comm.rank],  # noqa: B023
                    *kept[comm.rank],  # noqa: B023
                    training=True,
                    momentum=0.3,
                    comm=comm,
                    unbiased=unbiased,  # noqa: B023
                )

            ranks.on_ranks(len(counts), call)
            exact = oracle.batch_norm(x, eps=eps)
            n = x.size // 3
            factor = n / oracle.Long(n - 1) if unbiased else 1
            wanted = (0.7 * 2 + 0.3 * exact.mean, 0.7 * 5 + 0.3 * exact.var * factor)
            for pair in kept:
                for ours, first, right in zip(pair, kept[0], wanted, strict=True):
                    assert ours.tobytes() == first.tobytes()
                    np.testing.assert_allclose(
                        ours, right.reshape(-1).astype(dtype), rtol=4 * oracle.unit(dtype)
                    )


def test_all_ranks_empty(dtype: Any) -> None:
    kept = [(np.full(3, 2, dtype), np.full(3, 5, dtype)) for _ in range(3)]

    def call(comm: Any) -> Any:
        x = np.empty((0, 3, 4), dtype)
        return cnorm.sync_batch_norm(x, *kept[comm.rank], training=True, comm=comm, return_stats=True)

    for y, mean, rstd in ranks.on_ranks(3, call):
        assert y.shape == (0, 3, 4)
        assert not mean.any()
        assert not rstd.any()
    for mean, var in kept:
        assert (mean == 2).all()
        assert (var == 5).all()


def test_no_channels(dtype: Any) -> None:
    results = run([np.empty((2, 0), dtype), np.empty((0, 0), dtype)], None, None, 1e-5)
    assert [result[0].shape for result in results] == [(2, 0), (0, 0)]


def test_one_value_a_channel_is_an_error_on_every_rank(dtype: Any) -> None:
    kept = [(np.full(3, 2, dtype), np.full(3, 5, dtype)) for _ in range(3)]

    def call(comm: Any) -> Any:
        x = np.ones((int(comm.rank == 1), 3), dtype)
        return cnorm.sync_batch_norm(x, *kept[comm.rank], training=True, comm=comm)

    results, _ = ranks.outcomes(3, call)
    for result in results:
        assert isinstance(result, ValueError)
        assert "more than one value per channel over all ranks" in str(result)
    assert all((mean == 2).all() and (var == 5).all() for mean, var in kept)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_value_is_the_channel_s_own_on_all_ranks(value: float, dtype: Any) -> None:
    x, eps = draw([3, 5], (4, 6), dtype)
    clean = run(ranks.split(x, [3, 5]), None, None, eps)
    x[4, 2, 1] = value
    for result, before in zip(run(ranks.split(x, [3, 5]), None, None, eps), clean, strict=True):
        for ours, right in zip(result, before, strict=True):
            ours, right = (np.moveaxis(a, 1, 0) if a.ndim > 1 else a for a in (ours, right))
            assert np.isnan(ours[2]).all()
            assert np.delete(ours, 2, 0).tobytes() == np.delete(right, 2, 0).tobytes()


@pytest.mark.parametrize("values", [(1e25, -1e25), (1.5e38, -1.5e38), (0.0, 1.5e38)])
def test_ranks_that_are_constant_and_far_apart(values: tuple[float, float], dtype: Any) -> None:
    if dtype == np.float64:
        values = (values[0] * 1e270, values[1] * 1e270) if abs(values[0]) > 1e30 else values
    parts = [np.full((2, 3), value, dtype) for value in values]
    exact = oracle.batch_norm(np.concatenate(parts), eps=1e-5)
    y = np.concatenate([result[0] for result in run(parts, None, None, 1e-5)])
    assert oracle.worst_units(y, exact) <= UNITS


@pytest.mark.skipif(not NATIVE, reason="the NumPy backend has one level and one thread")
@pytest.mark.parametrize("shape", [(5, 3, 70), (3, 50000), (600,), (4, 65, 66)])
@pytest.mark.parametrize("last", [False, True])
def test_same_bits_on_every_level_and_number_of_threads(
    shape: tuple[int, ...], last: bool, dtype: Any
) -> None:
    x, eps = draw([3, 6], shape, dtype, "far mean")
    parts = ranks.split(np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x, [3, 6])
    weight, bias = parameters(shape[0], dtype)
    seen = set()
    for level in cnorm.isa_levels():
        cnorm.set_isa(level)
        for threads in THREAD_COUNTS:
            cnorm.set_num_threads(threads)
            results = run(parts, weight, bias, eps, axis=-1 if last else 1)
            seen.add(b"".join(a.tobytes() for result in results for a in result))
    assert len(seen) == 1


@pytest.mark.parametrize("kind", [np.float16, oracle.BFLOAT16])
def test_sixteen_bits(kind: Any) -> None:
    x, eps = draw([3, 5], (4, 6), kind, "normal")
    weight, bias = parameters(4, np.float32)
    exact = oracle.batch_norm(x, weight, bias, eps)
    results = run(ranks.split(x, [3, 5]), weight, bias, eps)
    y = np.concatenate([result[0] for result in results])
    low, high = oracle.rounded_range(exact, kind, UNITS)
    assert y.dtype == kind
    assert results[0][1].dtype == np.float32
    assert ((low <= y.astype(oracle.Long)) & (y.astype(oracle.Long) <= high)).all()


def test_layouts(dtype: Any) -> None:
    """Strided, byte-swapped, unaligned and reversed arrays: as contiguous ones, and left alone."""
    x, eps = draw([4, 5], (3, 6), dtype)
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(dtype).reshape(x.shape)
    unaligned[:] = x
    others = [
        np.repeat(x, 2, axis=2)[:, :, ::2],
        x.astype(np.dtype(dtype).newbyteorder(">")),
        unaligned,
        np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1],
        np.asfortranarray(x),
    ]
    wanted = np.concatenate([r[0] for r in run(ranks.split(x, [4, 5]), None, None, eps)])
    exact = oracle.batch_norm(x, eps=eps)
    for other in others:
        before = other.copy()
        y = np.concatenate([r[0] for r in run([other[:4], other[4:]], None, None, eps)])
        assert oracle.worst_units(y.astype(dtype), exact) <= UNITS
        np.testing.assert_allclose(y.astype(dtype), wanted, rtol=0, atol=12 * oracle.unit(dtype) * 4)
        assert (other == before).all()


def test_out(dtype: Any) -> None:
    x, eps = draw([3, 5], (4, 6), dtype)
    parts = ranks.split(x, [3, 5])
    wanted = run(parts, None, None, eps)
    targets = [np.empty((5, 4, 12), dtype)[:3, :, ::2], parts[1]]

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm(parts[comm.rank], training=True, comm=comm, out=targets[comm.rank])

    for rank, y in enumerate(ranks.on_ranks(2, call)):
        assert y is targets[rank]
        np.testing.assert_allclose(y, wanted[rank][0], rtol=0, atol=12 * oracle.unit(dtype) * 4)


def test_without_communicator_or_training_it_is_batch_norm(dtype: Any) -> None:
    x, _ = draw([6], (4, 6), dtype)
    weight, bias = parameters(4, dtype)
    running = np.full(4, 0.5, dtype), np.full(4, 2, dtype)
    again = running[0].copy(), running[1].copy()
    ours = cnorm.sync_batch_norm(x, *running, weight, bias, True, comm=None, return_stats=True)
    right = cnorm.batch_norm(x, *again, weight, bias, True, return_stats=True)
    assert [a.tobytes() for a in (*ours, *running)] == [a.tobytes() for a in (*right, *again)]

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm(x, *running, weight, bias, comm=comm)

    results, world = ranks.outcomes(2, call)
    right = cnorm.batch_norm(x, *running, weight, bias)
    assert all(y.tobytes() == right.tobytes() for y in results)
    assert world.exchanges == 0


@pytest.mark.parametrize(("channels", "exchanges"), [(3, 1), (819, 1), (820, 2), (3000, 2)])
def test_one_exchange_or_of_many_channels_two(channels: int, exchanges: int, dtype: Any) -> None:
    x, eps = draw([2, 3], (channels,), dtype)
    parts = ranks.split(x, [2, 3])

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm(parts[comm.rank], training=True, eps=eps, comm=comm)

    results, world = ranks.outcomes(2, call)
    assert world.exchanges == exchanges
    assert oracle.worst_units(np.concatenate(results), oracle.batch_norm(x, eps=eps)) <= UNITS


MISMATCHES = {
    "channels": (lambda rank: np.ones((2, 3 + rank)), "x: expected the same number of channels"),
    "many channels": (lambda rank: np.ones((2, 5 + 5000 * rank)), "x: expected the same number of channels"),
    "dtypes": (lambda rank: np.ones((2, 3), [np.float32, np.float64][rank % 2]), "x: expected one dtype"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_ranks_that_do_not_match_are_an_error_on_every_rank(name: str) -> None:
    make, wording = MISMATCHES[name]
    kept = [(np.full(make(rank).shape[1], 2.0), np.full(make(rank).shape[1], 5.0)) for rank in range(3)]

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm(make(comm.rank), *kept[comm.rank], training=True, comm=comm)

    results, _ = ranks.outcomes(3, call)
    for result in results:
        assert isinstance(result, ValueError), result
        with pytest.raises(ValueError, match=wording):
            raise result
    assert all((mean == 2).all() and (var == 5).all() for mean, var in kept)


def test_another_function_on_another_rank() -> None:
    x = np.ones((2, 3), np.float32)
    statistics = np.ones(3, np.float32), np.ones(3, np.float32)

    def call(comm: Any) -> Any:
        if comm.rank == 0:
            return cnorm.sync_batch_norm(x, training=True, comm=comm)
        return cnorm.sync_batch_norm_backward(x, x, *statistics, comm=comm)

    for result in ranks.outcomes(2, call)[0]:
        with pytest.raises(ValueError, match="comm: expected a call of the same function on all ranks"):
            raise result


def test_errors_of_the_communicator_pass_through() -> None:
    class Broken:
        def Get_size(self) -> int:
            return 2

        def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
            raise OSError("rank 1 is gone")

    running = np.zeros(3), np.ones(3)
    with pytest.raises(OSError, match="rank 1 is gone"):
        cnorm.sync_batch_norm(np.eye(3), *running, training=True, comm=Broken())
    assert (running[1] == 1).all()


BAD = [
    ({"comm": 3}, TypeError, "comm: expected an mpi4py communicator"),
    ({"x": np.ones((2, 3), int)}, TypeError, "x: expected dtype"),
    ({"x": np.ones(3)}, ValueError, "x: expected at least 2 axes"),
    ({"axis": 2}, ValueError, "axis: expected an axis of x"),
    ({"eps": -1.0}, ValueError, "eps: expected a number >= 0"),
    ({"eps": np.nan}, ValueError, "eps"),
    ({"momentum": np.inf}, ValueError, "momentum"),
    ({"weight": np.ones(4)}, ValueError, r"weight: expected shape \(3,\)"),
    ({"bias": np.ones(3, int)}, TypeError, "bias: expected a floating dtype"),
    ({"running_mean": np.zeros(3)}, ValueError, "running_var: expected an array"),
    ({"out": np.ones((2, 4))}, ValueError, "out: expected shape"),
    ({"out": np.ones((2, 3), np.float32)}, TypeError, "out: expected dtype"),
]


@pytest.mark.parametrize(("change", "kind", "wording"), BAD)
@pytest.mark.parametrize("training", [True, False])
def test_bad_arguments_raise_before_any_exchange(
    change: dict[str, Any], kind: type[Exception], wording: str, training: bool
) -> None:
    arguments: dict[str, Any] = {"x": np.eye(2, 3), "training": training}
    if not training and "running_mean" not in change:
        arguments |= {"running_mean": np.zeros(3), "running_var": np.ones(3)}

    def call(comm: Any) -> Any:
        return cnorm.sync_batch_norm(**({"comm": comm} | arguments | change))

    results, world = ranks.outcomes(1, call)
    with pytest.raises(kind, match=wording):
        raise results[0]
    assert world.exchanges == 0


def test_arguments_that_overlap_raise_before_any_exchange(dtype: Any) -> None:
    memory = np.arange(40, dtype=dtype)
    x = memory[:12].reshape(4, 3)
    overlapping = [
        {"out": memory[3:15].reshape(4, 3)},
        {"out": memory[12:24].reshape(4, 3), "weight": memory[20:23]},
        {"out": x, "bias": memory[2:5]},
        {"running_mean": memory[9:12], "running_var": memory[12:15]},
        {"running_mean": memory[12:15], "running_var": memory[14:17]},
        {"running_mean": memory[12:15], "running_var": memory[12:15]},
        {"running_mean": memory[12:15], "running_var": memory[16:19], "weight": memory[17:20]},
        {"running_mean": memory[12:15], "running_var": memory[15:18], "out": memory[17:29].reshape(4, 3)},
    ]
    for arguments in overlapping:

        def call(comm: Any) -> Any:
            return cnorm.sync_batch_norm(x, training=True, comm=comm, **arguments)  # noqa: B023

        (result,), world = ranks.outcomes(1, call)
        assert isinstance(result, ValueError), arguments
        assert world.exchanges == 0
    assert (memory == np.arange(40)).all()


def test_many_ranks(dtype: Any) -> None:
    """With means of their own, two spreads and more apart from that of all."""
    counts = [1 + rank % 3 for rank in range(16)]
    x, eps = draw(counts, (300,), dtype)
    results = run(ranks.split(x, counts), None, None, eps)
    y = np.concatenate([result[0] for result in results])
    assert oracle.worst_units(y, oracle.batch_norm(x, eps=eps)) <= UNITS
    assert len({result[1].tobytes() + result[2].tobytes() for result in results}) == 1
