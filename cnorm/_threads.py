"""How many threads the kernels use.

The number is one setting for the process. Its default is the smallest of ``OMP_NUM_THREADS``, the CPUs this
process may run on and the CPU quota of its control groups; results do not depend on it.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cnorm import _backend, _threadpoolctl

_MAX_THREADS = 2**31 - 1  # a C int


def _quota(folder: str) -> float:
    """CPUs' worth of time that the control group in `folder` grants; infinite without a limit."""
    try:
        with open(f"{folder}/cpu.max") as file:  # version 2: "quota period" or "max period"
            words = file.read().split()
    except OSError:
        try:
            with open(f"{folder}/cpu.cfs_quota_us") as file:  # version 1: -1 is no limit
                words = file.read().split()
            with open(f"{folder}/cpu.cfs_period_us") as file:
                words += file.read().split()
        except OSError:
            return math.inf
    try:
        quota, period = words
        cpus = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):
        return math.inf
    return cpus if cpus > 0 else math.inf


def _cgroup_cpus(membership: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """Smallest CPU quota of the control groups this process is in, and of those above them.

    Inside a container the membership file may name paths of the host, which do not exist below `root`; the
    container's own group is then `root` itself, the last step of every walk upwards.
    """
    try:
        with open(membership) as file:
            lines = file.read().splitlines()
    except OSError:
        return math.inf
    cpus = math.inf
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mount = root
        elif "cpu" in controllers.split(","):
            mount = f"{root}/{controllers}"
        else:
            continue
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            cpus = min(cpus, _quota("/".join([mount, *parts[:depth]])))
    return cpus


def _default_num_threads() -> int:
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    quota = _cgroup_cpus()
    if quota < cpus:
        cpus = math.ceil(quota)
    first = (
        os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    )  # "4,2" has a number per nesting level
    if first.isdecimal() and int(first) > 0:
        cpus = min(cpus, int(first))
    return max(1, cpus)


def get_num_threads() -> int:
    """Return the number of threads that large calls may use.

    Returns
    -------
    int
        At least 1, and always 1 where the kernels were built without OpenMP. A forked child uses one thread
        whatever this number says.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.get_num_threads() >= 1
    True
    """
    return _num_threads if _native is None else int(_native.get_num_threads())


def set_num_threads(n: int) -> None:
    """Set the number of threads that large calls may use, for the whole process.

    Parameters
    ----------
    n : int
        At least 1. Small calls use one thread all the same. Results do not depend on it, to the last bit.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is less than 1 or does not fit a C int.

    Examples
    --------
    >>> import cnorm
    >>> before = cnorm.get_num_threads()
    >>> cnorm.set_num_threads(1)
    >>> cnorm.get_num_threads()
    1
    >>> cnorm.set_num_threads(before)
    """
    global _num_threads
    if isinstance(n, bool):
        raise TypeError("the number of threads must be an integer, not bool")
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"the number of threads must be an integer, not {type(n).__name__}") from None
    if not 1 <= count <= _MAX_THREADS:
        raise ValueError(f"the number of threads must be between 1 and {_MAX_THREADS}, not {count}")
    if _native is None:
        _num_threads = count
    else:
        _native.set_num_threads(count)


@contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Use `n` threads inside a ``with`` block and the former number after it.

    Parameters
    ----------
    n : int
        At least 1, as for `set_num_threads`. The setting is the process's: other Python threads see it too.

    Examples
    --------
    >>> import cnorm
    >>> with cnorm.num_threads(1):
    ...     cnorm.get_num_threads()
    1
    """
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


_native = _backend.native
_num_threads = _default_num_threads()
if _native is not None:
    _native.set_num_threads(_num_threads)
    _threadpoolctl.register()
