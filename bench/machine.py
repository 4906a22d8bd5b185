"""What the benchmarks need to know about the machine: its last-level cache, its memory, its names."""

import functools
import importlib
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

import cnorm

MIB = 1 << 20


@functools.cache
def llc_bytes() -> int:
    """Size of the last-level cache; 32 MiB where the operating system does not say."""
    sizes = [0]
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        sizes.append(int(index.read_text().strip().removesuffix("K")) * 1024)
    return max(sizes) or 32 * MIB


@functools.cache
def memory_bytes() -> int:
    """Memory this process may use: the machine's, or the container's limit where that is smaller."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        memory = 8 << 30
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        memory = min(memory, int(limit.read_text()))
    return memory


def beyond_cache_bytes() -> int:
    """Size of an array that cannot stay in the cache: twice the last level.

    A case holds eight to eleven arrays of this size at its peak (NumPy's temporaries), so a twelfth of the
    memory is the cap.
    """
    return min(2 * llc_bytes(), memory_bytes() // 12)


def optional(module: str) -> Any:
    """Import `module`, or return None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def cpu_name() -> str:
    """Model name of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def describe() -> dict[str, object]:
    """Everything a reader needs to judge the numbers, as JSON values."""
    versions = {"cnorm": cnorm.__version__, "numpy": np.__version__}
    for name in ("torch", "onnxruntime"):
        module = optional(name)
        if module is not None:
            versions[name] = module.__version__
    return {
        "cpu": cpu_name(),
        "threads": cnorm.get_num_threads(),
        "backend": cnorm.backend,
        "isa": cnorm.isa(),
        "llc_bytes": llc_bytes(),
        "beyond_cache_bytes": beyond_cache_bytes(),
        "versions": versions,
    }
