"""How long the kernels' threads look out for more work before they sleep.

gcc's OpenMP lets them spin for some 15 ms, in which a core does nothing else. Whoever calls NumPy between two
norms has BLAS threads that want this core: on two cores, 1024 x 768 times 768 x 768 and a layer norm in turns
took twice as long for it. A fifth of a millisecond is enough for norms that follow each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPIN_COUNT = "5000"
VARIABLE = "GOMP_SPINCOUNT"
CHOICES = ("OMP_WAIT_POLICY", VARIABLE)  # of the user's, which hold


@contextmanager
def short_spin() -> Iterator[None]:
    """Have a gcc OpenMP library that is loaded inside spin shortly, unless the user has chosen.

    It reads the environment while it is loaded, and only then. One that is there already stays as it is.
    """
    if sys.platform != "linux" or any(choice in os.environ for choice in CHOICES):
        yield
        return
    os.environ[VARIABLE] = SPIN_COUNT
    try:
        yield
    finally:
        del os.environ[VARIABLE]
