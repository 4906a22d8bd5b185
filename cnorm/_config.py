"""What was built, and what this process uses of it."""

from __future__ import annotations

import operator
import os
import sys

from cnorm import _backend, _threads
from cnorm._version import __version__

_native = _backend.native


def isa_levels() -> tuple[str, ...]:
    """Return the instruction-set levels that were built and that this CPU runs, best first.

    Returns
    -------
    tuple of str
        Of ``"avx512"``, ``"avx2"`` and ``"base"`` on x86-64; of ``"sve"`` and ``"neon"`` on 64-bit ARM; of
        ``"rvv"`` and ``"base"`` on 64-bit RISC-V; else ``("base",)``.
        The NumPy backend has the one level ``"numpy"``.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.isa() in cnorm.isa_levels()
    True
    """
    return ("numpy",) if _native is None else tuple(_native.isa_levels())


def isa() -> str:
    """Return the instruction-set level in use.

    It is the first of `isa_levels`, unless the environment variable ``CNORM_ISA`` named another when cnorm
    was imported, or `set_isa` did since.

    Returns
    -------
    str
        One of `isa_levels`.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.isa() in cnorm.isa_levels()
    True
    """
    return "numpy" if _native is None else str(_native.isa())


def set_isa(name: str) -> None:
    """Choose the instruction-set level for the whole process. Results do not depend on it, to the last bit.

    Parameters
    ----------
    name : str
        One of `isa_levels`.

    Raises
    ------
    ValueError
        If the level is unknown, was not built or does not run on this CPU.
    TypeError
        If `name` is not a string.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.set_isa(cnorm.isa_levels()[0])
    >>> cnorm.set_isa("sse9")
    Traceback (most recent call last):
    ValueError: no level 'sse9' here; available: ...
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a level must be a string, not {type(name).__name__}")
    if name not in isa_levels():
        raise ValueError(f"no level {name!r} here; available: {', '.join(isa_levels())}")
    if _native is not None:
        _native.set_isa(name)


def cache_limit() -> int:
    """Return how many bytes of outputs' memory are kept for reuse at most.

    A large result that is no longer referenced leaves its memory to a later one: fresh memory costs more than
    the norm does. The default is the environment variable ``CNORM_CACHE_LIMIT``, or else a sixteenth of the
    machine's memory and at most 1 GiB. The NumPy backend keeps nothing.

    Returns
    -------
    int
        Bytes, 0 for none.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.cache_limit() >= 0
    True
    """
    return 0 if _native is None else int(_native.cache_limit())


def set_cache_limit(limit: int) -> None:
    """Set how many bytes of outputs' memory are kept for reuse at most, and free at once what is more.

    Parameters
    ----------
    limit : int
        Bytes; 0 switches the reuse off. Has no effect with the NumPy backend.

    Raises
    ------
    TypeError
        If `limit` is not an integer.
    ValueError
        If `limit` is negative or beyond the address space.

    Examples
    --------
    >>> import cnorm
    >>> before = cnorm.cache_limit()
    >>> cnorm.set_cache_limit(0)
    >>> cnorm.cache_limit()
    0
    >>> cnorm.set_cache_limit(before)
    """
    try:
        size = operator.index(limit)
    except TypeError:
        raise TypeError(f"the cache limit must be an integer, not {type(limit).__name__}") from None
    if not 0 <= size <= sys.maxsize:
        raise ValueError(f"the cache limit must be between 0 and {sys.maxsize} bytes, not {size}")
    if _native is not None:
        _native.set_cache_limit(size)


def show_config() -> None:
    """Print the version, the backend, and how the kernels were built and are used.

    The lines are: version; backend, with the reason when it is not the native one; the levels that were built
    and that this CPU runs, and the one in use; the number of threads; the compiler; whether OpenMP is there;
    how many bytes of released outputs are kept for reuse at most.

    Examples
    --------
    >>> import cnorm
    >>> cnorm.show_config()  # doctest: +ELLIPSIS
    cnorm ...
    backend: ...
    """
    reason = f" ({_backend.why_not_native})" if _backend.why_not_native else ""
    lines = {
        "backend": _backend.name + reason,
        "levels": f"{', '.join(isa_levels())}; in use: {isa()}",
        "threads": str(_threads.get_num_threads()),
    }
    if _native is not None:
        lines["compiler"] = _native.compiler()
        lines["OpenMP"] = "yes" if _native.openmp() else "no, one thread"
        lines["output cache"] = f"at most {cache_limit() / 2**20:.0f} MiB"
    print(f"cnorm {__version__}")
    for key, value in lines.items():
        print(f"{key}: {value}")


def _default_cache_limit() -> int:
    """Return a sixteenth of the machine's memory, at most 1 GiB."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not POSIX
        return 256 << 20
    return min(1 << 30, memory // 16)


def _obey_environment() -> None:
    """Apply CNORM_ISA and CNORM_CACHE_LIMIT; the NumPy backend has neither levels nor a cache."""
    if _native is None:
        return
    level = os.environ.get("CNORM_ISA")
    if level:
        if level not in isa_levels():
            raise ValueError(f"CNORM_ISA={level}: no such level here; available: {', '.join(isa_levels())}")
        _native.set_isa(level)
    limit = os.environ.get("CNORM_CACHE_LIMIT")
    if not limit:
        set_cache_limit(_default_cache_limit())
    elif limit.isdecimal():
        set_cache_limit(int(limit))
    else:
        raise ValueError(f"CNORM_CACHE_LIMIT={limit}: must be a number of bytes, 0 for no cache")


_obey_environment()
