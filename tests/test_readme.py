"""The README's Python code runs as it stands, from its first block to its last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

README = Path(__file__).parents[1] / "README.md"


def test_the_code_runs() -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)
    y, norm = namespace["y"], namespace["norm"]
    assert np.isfinite(y).all()
    assert 0 < norm.bias.mean() <= 1, "the loss draws y to 1"
