"""Batch norm over processes that MPI starts: ``pip install mpi4py mpich``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from processes import run

#: mpiexec may lie beside an interpreter whose folder is not on the path.
MPIEXEC = shutil.which("mpiexec") or shutil.which("mpiexec", path=str(Path(sys.executable).parent))

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(
        MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="mpi4py or mpiexec is absent"
    ),
]

#: An error on one rank ends the job.
HEAD = """
    import hashlib, sys
    import numpy as np
    from mpi4py import MPI
    import cnorm

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()

    def abort(*error):
        sys.__excepthook__(*error)
        comm.Abort(1)

    sys.excepthook = abort

    def part(values):
        return np.split(values, np.cumsum(counts)[:-1])[rank]
"""

AS_ONE_PROCESS = """
    counts = [[5, 0, 2, 1], [0, 1, 6], [3, 4], [7]][4 - size]
    for dtype in (np.float32, np.float64):
        u = np.finfo(dtype).eps / 2
        rng = np.random.default_rng(0)
        x = (1e4 + rng.standard_normal((sum(counts), 33, 7))).astype(dtype)
        dy = rng.standard_normal(x.shape).astype(dtype)
        weight = rng.uniform(1, 3, 33).astype(dtype)
        running, alone = ((np.zeros(33, dtype), np.ones(33, dtype)) for _ in range(2))
        y, mean, rstd = cnorm.sync_batch_norm(
            part(x), *running, weight, training=True, comm=comm, return_stats=True)
        grads = cnorm.sync_batch_norm_backward(part(dy), part(x), mean, rstd, weight, comm=comm)
        right = cnorm.batch_norm(x, *alone, weight, training=True, return_stats=True)
        wanted = cnorm.batch_norm_backward(dy, x, *right[1:], weight)
        np.testing.assert_allclose(y, part(right[0]), rtol=0, atol=12 * u * 3 * 6)
        np.testing.assert_allclose(grads.x, part(wanted.x), rtol=0, atol=32 * u * abs(wanted.x).max())
        total = np.empty_like(grads.weight)
        comm.Allreduce(grads.weight, total)
        np.testing.assert_allclose(total, wanted.weight, rtol=0, atol=64 * u * abs(wanted.weight).max())
        for ours, theirs in zip((mean, rstd, *running), (*right[1:], *alone), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=8 * u)
        bits = hashlib.sha256(b"".join(a.tobytes() for a in (mean, rstd, *running))).hexdigest()
        assert comm.allgather(bits) == [bits] * size
"""

MISMATCH = """
    for channels in (3 + rank, 7000 * rank):
        try:
            cnorm.sync_batch_norm(np.ones((2, channels)), training=True, comm=comm)
        except ValueError as error:
            print(f"rank {rank}: {error}", flush=True)
"""

EMPTY = """
    running = np.full(3, 2.0), np.full(3, 5.0)
    y = cnorm.sync_batch_norm(np.empty((0, 3)), *running, training=True, comm=comm)
    assert y.shape == (0, 3) and (running[0] == 2).all() and (running[1] == 5).all()
    try:
        cnorm.sync_batch_norm(np.ones((int(rank == 0), 3)), *running, training=True, comm=comm)
    except ValueError as error:
        print(error, flush=True)
    assert (running[0] == 2).all() and (running[1] == 5).all()
"""

DEAD = """
    import os
    if rank == 1:
        os._exit(3)
    cnorm.sync_batch_norm(np.ones((2, 3)), training=True, comm=comm)
    print("went on", flush=True)
"""

RAISED = """
    channels = 3 if rank != 1 else 4
    cnorm.sync_batch_norm(np.ones((2, 3)), weight=np.ones(channels), training=True, comm=comm)
    print("went on", flush=True)
"""


def launch(size: int, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program on ``size`` ranks; one that hangs is a failure."""
    program = textwrap.dedent(HEAD) + textwrap.dedent(code)
    prefix = (str(MPIEXEC), "-n", str(size))
    return run(program, check=False, timeout=60, prefix=prefix, OMP_NUM_THREADS="1")


@pytest.mark.parametrize("size", [4, 3])
def test_as_one_process_on_the_concatenation(size: int) -> None:
    result = launch(size, AS_ONE_PROCESS)
    assert result.returncode == 0, result.stderr


def test_empty_batches_and_a_single_value() -> None:
    result = launch(3, EMPTY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("x: expected more than one value per channel over all ranks, got one") == 3


def test_a_mismatch_in_channels_is_an_error_on_every_rank() -> None:
    result = launch(3, MISMATCH)
    assert result.returncode == 0, result.stderr
    for rank in range(3):
        for got in ([3, 4, 5], [0, 7000, 14000]):
            wanted = f"rank {rank}: x: expected the same number of channels on all ranks, got {got} by rank"
            assert wanted in result.stdout


def run_example(size: int, *arguments: str) -> str:
    example = Path(__file__).parents[1] / "examples" / "sync_batch_norm.py"
    command = [str(MPIEXEC), "-n", str(size), sys.executable, str(example), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.models
@pytest.mark.parametrize("size", [1, 2])
def test_example_trains_as_one_process(size: int) -> None:
    for module in ("matplotlib", "safetensors", "sklearn", "threadpoolctl", "tqdm"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[examples]'")
    printed = run_example(size, "--epochs", "1")
    differences = re.findall(r"^largest difference .*: (\S+)$", printed, re.MULTILINE)
    assert len(differences) == 2
    assert all(float(difference) < 1e-10 for difference in differences)
    assert "the same between processes: 0.0e+00" in printed
    assert "Allgather: 168 calls, 8 a step" in printed
    assert "Allreduce: 21 calls, 1 a step" in printed


@pytest.mark.parametrize("code", [DEAD, RAISED], ids=["dead", "raised"])
def test_a_rank_that_fails_ends_the_job(code: str) -> None:
    """MPI ends it, given a program that aborts on an error, as ``python -m mpi4py`` has it too."""
    result = launch(3, code)
    assert result.returncode != 0
    assert result.stdout.count("went on") < 3
