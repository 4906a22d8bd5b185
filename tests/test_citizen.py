"""N6: nothing of the process changes but what was asked for; threads, forks and errors at any moment."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cnorm
from calls import FUNCTIONS, Call, Function
from layouts import contiguous, reversed_last, steps
from placement import digest
from processes import answer
from traps import TRAPS

each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)

#: How the errors of mistaken calls begin.
MISTAKE = "^(eps|need): expected "

#: Small, and large enough for a parallel region.
SIZES = ((15, 9), (60, 4099))

ON_LINUX = sys.platform == "linux"


# Inputs -----------------------------------------------------------------------------------------------------


@each_function
def test_inputs_keep_their_bytes(function: Function, dtype: Any, level: str) -> None:
    for trap in (TRAPS[2], TRAPS[-1]):
        for rows, elements in SIZES:
            call = function.call(trap(rows, elements, dtype), trap.eps)
            before = [v.tobytes() for v in call.inputs]
            for v in call.inputs:
                v.flags.writeable = False
            call.results(out=np.empty_like(call.x))
            assert [v.tobytes() for v in call.inputs] == before


# The floating-point environment -----------------------------------------------------------------------------


def _behaviour() -> list[bool]:
    """What arithmetic of this thread does: subnormals in and out, and the direction of rounding."""
    smallest, one, half = float("5e-324"), float("1"), float.fromhex("0x1p-53")
    products = np.array([5e-324, 1e-310]) * np.array([1.0, 1.0])
    narrow = np.array([1e-45], np.float32) * np.float32(1)
    return [
        smallest * one != 0,
        float("2.5e-308") * float("0.5") != 0,
        bool((products != 0).all()),
        bool(narrow[0] != 0),
        one + half == one,
        one + 1.5 * half > one,
        -one - half == -one,
        one / 3 == float.fromhex("0x1.5555555555555p-2"),
    ]


class _Environment(ctypes.Structure):
    """glibc's fenv_t on x86-64: the x87 state, then MXCSR."""

    _fields_ = (("control", ctypes.c_uint16), ("rest", ctypes.c_uint8 * 26), ("mxcsr", ctypes.c_uint32))


HAS_FENV = ON_LINUX and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
EXCEPTION_FLAGS = 0x3F  # sticky flags, which every arithmetic operation may raise


def _control_bits() -> tuple[int, int]:
    environment = _Environment()
    assert ctypes.CDLL("libm.so.6").fegetenv(ctypes.byref(environment)) == 0
    return environment.control, environment.mxcsr & ~EXCEPTION_FLAGS


@each_function
def test_subnormals_and_rounding_work_as_before(function: Function, dtype: Any, level: str) -> None:
    assert all(_behaviour())
    for trap in TRAPS[::5]:
        for rows, elements in SIZES:
            call = function.call(trap(rows, elements, dtype), trap.eps)
            call.results()
    with pytest.raises(ValueError, match=MISTAKE):
        call.mistaken()
    assert all(_behaviour())


@pytest.mark.skipif(not HAS_FENV, reason="reads glibc's fenv_t of x86-64")
@each_function
def test_no_control_bit_changes(function: Function, dtype: Any, level: str) -> None:
    before = _control_bits()
    for trap in TRAPS[::5]:
        for rows, elements in SIZES:
            function.call(trap(rows, elements, dtype), trap.eps).results()
            assert _control_bits() == before


@pytest.mark.skipif(not HAS_FENV, reason="sets x86-64's rounding and flush modes")
def test_a_foreign_environment_is_left_as_it_is() -> None:
    """A host program that rounds upwards and flushes subnormals still does so after a call."""
    code = f"""
        import ctypes, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import numpy as np
        import cnorm
        from test_citizen import _Environment, _control_bits
        libm = ctypes.CDLL("libm.so.6")
        x = np.linspace(-1, 1, 60 * 4099, dtype=np.float32).reshape(60, 4099)
        y, mean, rstd = cnorm.layer_norm(x, return_stats=True)
        environment = _Environment()
        libm.fegetenv(ctypes.byref(environment))
        environment.mxcsr |= 0x8040 | 0x4000  # flush to zero, denormals are zero, round upwards
        libm.fesetenv(ctypes.byref(environment))
        before = _control_bits()
        for op in (cnorm.layer_norm, cnorm.rms_norm):
            op(x)
            op(x[:1, :9])
        for some in (slice(60), slice(1)):
            cnorm.layer_norm_backward(y[some], x[some], mean[some], rstd[some], need=("x", "weight"))
            cnorm.rms_norm_backward(y[some], x[some], rstd[some])
        assert _control_bits() == before, (_control_bits(), before)
        print("passed")
    """
    assert answer(code) == "passed"


@each_function
def test_numpys_error_handling_sees_nothing(function: Function, dtype: Any) -> None:
    """Overflow, underflow or division inside is nobody's business, even where NumPy is told to raise."""
    state = np.geterr()
    for trap in TRAPS:
        rows = trap(15, 9, dtype)
        calls = [function.call(rows, trap.eps, layout) for layout in (contiguous, reversed_last)]
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            for call in calls:
                call.results()
    assert np.geterr() == state


def test_sixteen_bit_overflow_warns_nobody() -> None:
    x = np.array([[-1, 1, 5]], np.float16)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        weight = np.full(3, 1e6, np.float32)
        y, mean, rstd = cnorm.layer_norm(x, 3, weight, return_stats=True)
        gradients = cnorm.layer_norm_backward(x[:, ::-1], x, mean, rstd, weight)
    assert np.isinf(y).any()
    assert np.isinf(gradients.x).any()


# Threads ----------------------------------------------------------------------------------------------------


@each_function
def test_sixteen_python_threads_at_once(function: Function) -> None:
    """Different inputs and sizes in each, large ones among them, while the thread setting changes."""
    calls: list[Call] = []
    for i in range(16):
        rows, elements = ((15, 9), (15, 255), (60, 4099), (5, 20_001))[i % 4]
        calls.append(function.call(TRAPS[2](rows, elements + i, np.float32 if i % 3 else np.float64)))
    wanted = [digest(call.results()) for call in calls]
    start = threading.Barrier(16)

    def work(i: int) -> set[str]:
        start.wait()
        seen = set()
        for repeat in range(12):
            if i == 0:
                cnorm.set_num_threads(1 + repeat % 4)
            seen.add(digest(calls[i].results()))
        return seen

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(16)))
    assert results == [{w} for w in wanted]


@each_function
def test_one_input_read_by_many_threads(function: Function, dtype: Any) -> None:
    call = function.call(TRAPS[0](60, 4099, dtype))
    wanted = digest(call.results())
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: digest(call.results()), range(32))) == {wanted}


@each_function
def test_the_gil_is_released(function: Function) -> None:
    """Another thread runs in the middle of a long call, and not only before and after it."""
    call = function.call(np.resize(np.arange(1009, dtype=np.float32), (5, 1_000_003)), affine=False)
    out = np.empty_like(call.x)
    cnorm.set_num_threads(1)
    stamps: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            stamps.append(time.perf_counter())
            time.sleep(0.0002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        middles = 0
        for _ in range(20):  # one busy moment of the machine is no proof that the lock was held
            begin = time.perf_counter()
            call.results(out=out)
            end = time.perf_counter()
            fifth = (end - begin) / 5
            middles += sum(begin + fifth < stamp < end - fifth for stamp in stamps)
            if middles > 3:
                break
    finally:
        done.set()
        ticker.join()
    assert middles > 3


# Processes --------------------------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

FORK = """
    import hashlib, os, signal, sys, warnings
    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
    import numpy as np
    import cnorm
    cnorm.set_num_threads(4)
    x = np.linspace(-3, 1e4, 60 * 4099, dtype=np.float32).reshape(60, 4099)
    def digest():
        y, *rows = cnorm.layer_norm(x, return_stats=True)
        z, *channels = cnorm.batch_norm(x, training=True, return_stats=True)
        g = cnorm.group_norm(x.reshape(4, 15, 4099), 5)
        needed = {"need": ("x", "weight", "bias")}
        dy = cnorm.layer_norm_backward(y, x, *rows, **needed)
        dz = cnorm.batch_norm_backward(z, x, *channels, **needed)
        return hashlib.sha256(b"".join(a.tobytes() for a in (y, z, g, *dy, *dz))).hexdigest()
    wanted = digest()
    for generation in range(3):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # a hang ends the child
            ok = digest() == wanted
            grandchild = os.fork()
            if grandchild == 0:
                signal.alarm(60)
                os._exit(0 if digest() == wanted else 1)
            ok = ok and os.waitpid(grandchild, 0)[1] == 0
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0, "the child"
        assert digest() == wanted, "the parent afterwards"
    print("passed")
"""


@forks
def test_a_forked_child_computes_after_a_parallel_region() -> None:
    assert answer(FORK) == "passed"


@forks
def test_forks_beside_threads_that_are_inside_calls() -> None:
    """A lock that another thread holds at the moment of the fork stays locked for ever in the child."""
    code = """
        import os, signal, threading, warnings
        warnings.simplefilter("ignore")
        import numpy as np
        import cnorm
        cnorm.set_num_threads(2)
        x = np.ones((64, 2048), np.float32)  # its outputs are of the recycled size
        def work_once():
            y, rstd = cnorm.rms_norm(x, eps=0.0, return_stats=True)
            gradients = cnorm.rms_norm_backward(y, x, rstd, need=("x", "weight"))
            return (y == 1).all() and (gradients.x == 0).all() and (gradients.weight == 64).all()
        stop = False
        def work():
            while not stop:
                work_once()
        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(60):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(30)
                    os._exit(0 if work_once() and work_once() else 1)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            stop = True
            for worker in workers:
                worker.join()
        print("passed")
    """
    assert answer(code) == "passed"


@forks
def test_sixteen_processes_at_once() -> None:
    code = """
        import multiprocessing, warnings
        warnings.simplefilter("ignore")
        import numpy as np
        import cnorm
        x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
        def work(_):
            return b"".join(cnorm.layer_norm(x).tobytes() for _ in range(100))
        if __name__ == "__main__":
            cnorm.layer_norm(np.ones((1024, 1024), np.float32))
            with multiprocessing.get_context("fork").Pool(16) as pool:
                results = pool.map(work, range(16), chunksize=1)
            assert set(results) == {work(0)}
            print("passed")
    """
    assert answer(code) == "passed"


@pytest.mark.peers
def test_beside_pytorch_in_one_process() -> None:
    """Two OpenMP users, and NumPy's BLAS: all still right, and cnorm's limit is cnorm's."""
    pytest.importorskip("torch")
    code = """
        import numpy as np
        import torch
        import cnorm
        x = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
        wanted = cnorm.layer_norm(x).tobytes()
        threads = torch.get_num_threads()
        for n in (1, 2, 3):
            cnorm.set_num_threads(n)
            torch.nn.functional.layer_norm(torch.from_numpy(x), (1024,))
            x @ x.T
            assert cnorm.layer_norm(x).tobytes() == wanted
        assert torch.get_num_threads() == threads
        print("passed")
    """
    assert answer(code) == "passed"


# Memory -----------------------------------------------------------------------------------------------------


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@each_function
def test_ten_thousand_calls_leak_nothing(function: Function) -> None:
    """Neither blocks of Python's allocator (one object a call would be 10,000) nor memory of the system's."""
    call, strided = (function.call(TRAPS[0](15, 9, np.float32), layout=way) for way in (contiguous, steps))
    out = np.empty_like(call.x)

    def calls(times: int) -> None:
        for i in range(times):
            call.results()
            call.results(out=out)
            if i % 10 == 0:
                strided.results()
                with pytest.raises(ValueError, match=MISTAKE):
                    call.mistaken()

    calls(300)
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), _resident() if ON_LINUX else 0
    calls(5000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 500
    if ON_LINUX:
        assert _resident() - resident < 2 << 20


@each_function
def test_arguments_keep_their_reference_counts(function: Function) -> None:
    call = function.call(TRAPS[0](15, 9, np.float32))
    out = np.empty_like(call.x)
    arrays = [out, *call.inputs]
    before = [sys.getrefcount(a) for a in arrays]
    for _ in range(100):
        call.results(out=out)
        with pytest.raises(ValueError, match=MISTAKE):
            call.mistaken(out=out)
    assert [sys.getrefcount(a) for a in arrays] == before


# Errors -----------------------------------------------------------------------------------------------------


def test_an_error_in_the_last_argument_leaves_running_statistics_and_out() -> None:
    """Everything else is right, and the mistake is found last."""
    x = TRAPS[0](15, 9, np.float32).reshape(3, 5, 9)
    mean, var = np.full(5, 3, np.float32), np.full(5, 2, np.float32)
    out = np.full((3, 5, 9), 7, np.float32)
    for change in ({"out": out[..., ::-1][..., :8]}, {"bias": np.ones(4, np.float32)}, {"momentum": np.nan}):
        with pytest.raises(ValueError, match=next(iter(change))):
            cnorm.batch_norm(x, mean, var, training=True, **{"out": out} | change)
        assert (out == 7).all()
        assert (mean == 3).all()
        assert (var == 2).all()
