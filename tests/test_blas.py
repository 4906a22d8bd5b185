"""NumPy's BLAS has one thread while whitening factorises, and as many as before afterwards."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from cnorm import _blas

threadpoolctl = pytest.importorskip("threadpoolctl")


def threads() -> set[int]:
    return {library.get_num_threads() for library in _blas._libraries()}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    if not _blas._libraries():
        pytest.skip("no BLAS that threadpoolctl knows")
    with threadpoolctl.threadpool_limits(2, "blas"):
        yield


def test_one_thread_inside() -> None:
    seen = _blas.on_one_thread(lambda stack: threads())
    assert seen(np.eye(_blas.SMALL + 1)) == {1}
    assert threads() == {2}
    assert seen(np.eye(_blas.SMALL)) == {2}, "small matrices are not worth it"


def test_an_exception_gives_the_threads_back() -> None:
    def fails(stack: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _blas.on_one_thread(fails)(np.eye(_blas.SMALL + 1))
    assert threads() == {2}


def test_the_last_of_two_callers_gives_them_back() -> None:
    first = second = _blas._one_thread
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_from_inside_has_them_too() -> None:
    with _blas._one_thread:
        child = os.fork()
        if child == 0:
            os._exit(threads() != {2})
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
