"""Small programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run(
    code: str, *, check: bool = True, timeout: float = 120, prefix: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code, with ``environment`` added to this process's; a hang is a failure."""
    result = subprocess.run(
        [*prefix, sys.executable, "-P", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | environment,
    )
    if check:
        assert result.returncode == 0, result.stderr
    return result


def answer(code: str, **options: object) -> str:
    """What the code prints."""
    return run(code, **options).stdout.strip()  # type: ignore[arg-type]
