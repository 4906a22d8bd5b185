"""The thread setting: its default, its limits, its scope, and threadpoolctl's view of it."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import cnorm
from processes import answer, run

COUNT = "import cnorm; print(cnorm.get_num_threads())"


@pytest.mark.skipif(sys.platform != "linux" or cnorm.backend != "native", reason="of gcc's OpenMP on Linux")
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
    ids=str,
)
def test_threads_spin_for_a_short_time_unless_told_otherwise(
    chosen: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(variable, raising=False)
    code = "import os; before = dict(os.environ); import cnorm; assert dict(os.environ) == before"
    shown = run(code, OMP_DISPLAY_ENV="VERBOSE", **chosen).stderr
    if "GOMP_" not in shown:
        pytest.skip("another OpenMP library than gcc's, or none")
    assert f"GOMP_SPINCOUNT = '{expected}'" in shown


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="CPUs are not chosen here")
def test_no_thread_loses_a_cpu() -> None:
    code = """
        import os
        import numpy as np
        import cnorm
        cpus = os.sched_getaffinity(0)
        cnorm.set_num_threads(4)
        x = np.ones((512, 1024), np.float32)
        for _ in range(300):
            cnorm.layer_norm(x, 1024)
        for thread in map(int, os.listdir("/proc/self/task")):
            assert os.sched_getaffinity(thread) == cpus, thread
    """
    run(code)


def test_set_and_get() -> None:
    for n in (1, 2, 3, 7, 64, 1000, np.int64(5)):
        cnorm.set_num_threads(n)
        assert cnorm.get_num_threads() == n
        assert type(cnorm.get_num_threads()) is int


@pytest.mark.parametrize("n", [0, -1, 2**31, 2**70])
def test_numbers_that_are_no_thread_count(n: int) -> None:
    before = cnorm.get_num_threads()
    with pytest.raises(ValueError, match="threads"):
        cnorm.set_num_threads(n)
    assert cnorm.get_num_threads() == before


@pytest.mark.parametrize("n", [2.0, "2", None, True, [2]], ids=repr)
def test_things_that_are_no_number(n: object) -> None:
    before = cnorm.get_num_threads()
    with pytest.raises(TypeError, match="threads"):
        cnorm.set_num_threads(n)  # type: ignore[arg-type]
    assert cnorm.get_num_threads() == before


def test_the_context_manager_restores() -> None:
    cnorm.set_num_threads(3)
    with cnorm.num_threads(7):
        assert cnorm.get_num_threads() == 7
        with cnorm.num_threads(1):
            assert cnorm.get_num_threads() == 1
        assert cnorm.get_num_threads() == 7
    assert cnorm.get_num_threads() == 3


def _leave_by_an_error() -> None:
    with cnorm.num_threads(7):
        raise RuntimeError("on the way out")


def test_the_context_manager_restores_after_an_error() -> None:
    cnorm.set_num_threads(3)
    with pytest.raises(RuntimeError, match="on the way out"):
        _leave_by_an_error()
    assert cnorm.get_num_threads() == 3


@pytest.mark.parametrize("n", [0, -1])
def test_the_context_manager_refuses_before_it_changes_anything(n: int) -> None:
    cnorm.set_num_threads(3)
    with pytest.raises(ValueError, match="threads"), cnorm.num_threads(n):
        pass
    assert cnorm.get_num_threads() == 3


def test_the_setting_is_the_processs() -> None:
    cnorm.set_num_threads(5)
    seen: list[int] = []
    worker = threading.Thread(target=lambda: seen.append(cnorm.get_num_threads()))
    worker.start()
    worker.join()
    assert seen == [5]


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def test_the_default_is_at_most_the_cpus_this_process_may_use() -> None:
    environment = {"OMP_NUM_THREADS": ""}
    assert 1 <= int(answer(COUNT, **environment)) <= _cpus()


@pytest.mark.parametrize(
    ("value", "most"), [("1", 1), ("1,4", 1), ("0", None), ("-3", None), ("many", None), ("999", None)]
)
def test_omp_num_threads_is_a_limit(value: str, most: int | None) -> None:
    """A number limits; more than the CPUs, or nonsense, does not matter."""
    unlimited = int(answer(COUNT, OMP_NUM_THREADS=""))
    # libgomp itself writes a remark on stderr about nonsense
    assert int(answer(COUNT, OMP_NUM_THREADS=value)) == min(unlimited, most or unlimited)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_is_a_limit() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}}); {COUNT}"
    assert answer(code, OMP_NUM_THREADS="") == "1"


def test_container_quota_is_a_limit(tmp_path: object) -> None:
    """The functions that read the control group's files, on files of ours: version 2, version 1, no limit."""
    from pathlib import Path

    from cnorm import _threads

    root = Path(str(tmp_path))
    membership = root / "cgroup"
    inner = root / "fs" / "a" / "b"
    inner.mkdir(parents=True)
    membership.write_text("0::/a/b\n")
    quota = lambda: _threads._cgroup_cpus(str(membership), str(root / "fs"))  # noqa: E731
    assert quota() == float("inf")
    (inner / "cpu.max").write_text("max 100000\n")
    assert quota() == float("inf")
    (inner / "cpu.max").write_text("350000 100000\n")
    assert quota() == 3.5
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    assert quota() == 1.5, "the group above is narrower"
    old = root / "fs" / "cpu,cpuacct" / "c"
    old.mkdir(parents=True)
    membership.write_text("7:cpu,cpuacct:/c\n")
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert quota() == float("inf")
    (old / "cpu.cfs_quota_us").write_text("50000\n")
    assert quota() == 0.5


# threadpoolctl ----------------------------------------------------------------------------------------------

LIMIT = """
    import {first}, {second}
    before = cnorm.get_num_threads()
    own = [lib for lib in threadpoolctl.threadpool_info() if lib["internal_api"] == "cnorm"]
    assert len(own) == 1, threadpoolctl.threadpool_info()
    assert own[0]["num_threads"] == before
    assert own[0]["version"] == cnorm.__version__
    with threadpoolctl.threadpool_limits(1):
        assert cnorm.get_num_threads() == 1
    assert cnorm.get_num_threads() == before
    cnorm.set_num_threads(5)
    with threadpoolctl.threadpool_limits(3, user_api="openmp"):
        assert cnorm.get_num_threads() == 3
    assert cnorm.get_num_threads() == 5
    print("passed")
"""


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("order", [("cnorm", "threadpoolctl"), ("threadpoolctl", "cnorm")])
def test_threadpoolctl_lists_and_limits(order: tuple[str, str]) -> None:
    pytest.importorskip("threadpoolctl", minversion="3.2")
    assert answer(LIMIT.format(first=order[0], second=order[1])) == "passed"


def test_importing_cnorm_does_not_import_threadpoolctl() -> None:
    """Which takes longer than cnorm itself."""
    assert answer("import sys, cnorm; print('threadpoolctl' in sys.modules)") == "False"


LARGE = {
    "forward": "cnorm.layer_norm(x)",
    "backward": "cnorm.layer_norm_backward(x, x, x[:, :1], x[:, :1])",
}


@pytest.mark.usefixtures("native")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="counts threads in /proc")
@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
def test_small_work_starts_no_team_and_large_work_does(large: str) -> None:
    code = f"""
        import os
        import numpy as np
        import cnorm
        def threads():
            return len(os.listdir("/proc/self/task"))
        cnorm.set_num_threads(4)
        before = threads()
        x = np.ones((8, 64), np.float32)
        for _ in range(10):
            cnorm.layer_norm(x)
            cnorm.rms_norm(x)
            cnorm.group_norm(x, 4)
            cnorm.instance_norm(x[..., None].repeat(2, -1))
            cnorm.batch_norm(x, training=True)
            cnorm.layer_norm_backward(x, x, x[:, :1], x[:, :1])
            cnorm.rms_norm_backward(x, x, x[:, :1])
            cnorm.group_norm_backward(x, x, x[:, :4], x[:, :4], 4)
            cnorm.instance_norm_backward(x, x, x, x)
            cnorm.batch_norm_backward(x, x, x[0], x[0])
        small = threads() - before
        x = np.ones((4096, 4096), np.float32)
        {large}
        print(small, threads() - before)
    """
    small, large = answer(code, OPENBLAS_NUM_THREADS="1").split()
    assert small == "0"
    assert large == ("3" if "OpenMP: yes" in answer("import cnorm; cnorm.show_config()") else "0")


def test_one_thread_runs_in_the_calling_one() -> None:
    code = """
        import os
        import numpy as np
        import cnorm
        cnorm.set_num_threads(1)
        before = len(os.listdir("/proc/self/task"))
        x = np.ones((4096, 1024), np.float32)
        y, mean, rstd = cnorm.layer_norm(x, return_stats=True)
        cnorm.layer_norm_backward(y, x, mean, rstd, need=("x", "weight", "bias"))
        print(len(os.listdir("/proc/self/task")) - before)
    """
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("counts threads in /proc")
    result = run(code, OPENBLAS_NUM_THREADS="1")
    assert result.stdout.strip() == "0"
