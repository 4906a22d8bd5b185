"""Nothing but the objects of a level holds its instructions: other CPUs must be able to run the rest.

The disassembly of the installed extension is read together with its debugging information, which tells for
every address by which compiler flags it was made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cnorm
from processes import run

pytestmark = [
    pytest.mark.usefixtures("native"),
    pytest.mark.skipif(
        shutil.which("objdump") is None or shutil.which("readelf") is None, reason="needs GNU binutils"
    ),
    pytest.mark.skipif("avx2" not in cnorm.isa_levels(), reason="no level beyond the baseline here"),
]

#: Instructions of AVX and later begin with v; the general-purpose ones of that generation have names of their
#: own.
OTHER_V = {"verr", "verw", "vmcall", "vmmcall"}
GENERAL = re.compile(r"(andn|bextr|bls[ir]|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)[lq]?$")
EVEX_ONLY = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])\b")


@dataclass(frozen=True)
class Instruction:
    address: int
    function: str
    mnemonic: str
    text: str

    @property
    def is_avx(self) -> bool:
        return (self.mnemonic.startswith("v") and self.mnemonic not in OTHER_V) or bool(
            GENERAL.match(self.mnemonic)
        )


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def _extension() -> str:
    from cnorm.native import _cnorm

    return str(_cnorm.__file__)


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    found, function = [], ""
    for line in _output("objdump", "-d", "-M", "att", "--no-show-raw-insn", _extension()).splitlines():
        if header := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = header[1]
        elif body := re.match(r" *([0-9a-f]+):\t(\S+)(.*)$", line):
            found.append(Instruction(int(body[1], 16), function, body[2], body[3]))
    assert len(found) > 10_000
    return found


@dataclass(frozen=True)
class Unit:
    """A compilation unit: its source and the flags it was compiled with."""

    source: str
    flags: str

    @property
    def level(self) -> str:
        if "-mavx512f" in self.flags:
            return "avx512"
        return "avx2" if "-mavx2" in self.flags else "base"


def _units() -> Iterator[tuple[int, int, Unit]]:
    """Address ranges of the compilation units."""
    info = _output("readelf", "-W", "--debug-dump=info", "--dwarf-depth=1", _extension())
    units = {}
    for block in info.split("Compilation Unit @ offset ")[1:]:
        producer = re.search(r"DW_AT_producer .*?\): ((?:GNU|clang).*)", block)
        source = re.search(r"DW_AT_name .*?\): (\S+)", block)
        if producer and source:
            units[int(block.split(":", 1)[0], 16)] = Unit(source[1], producer[1])
    unit = None
    for line in _output("readelf", "--debug-dump=aranges", _extension()).splitlines():
        if offset := re.search(r"Offset into .debug_info: +(\S+)", line):
            unit = units[int(offset[1], 16)]
        elif (entry := re.match(r" +([0-9a-f]{8,}) ([0-9a-f]{8,})$", line)) and unit is not None:
            start, length = int(entry[1], 16), int(entry[2], 16)
            if length:
                yield start, start + length, unit


@pytest.fixture(scope="module")
def by_unit(instructions: list[Instruction]) -> dict[Unit | None, list[Instruction]]:
    """The instructions of each compilation unit; None has those of the C runtime, which no unit claims."""
    ranges = sorted(_units(), key=lambda r: r[0])
    if not ranges:
        message = "the extension was built without debugging information (or stripped)"
        if os.environ.get("CNORM_TEST_NATIVE") == "1":
            pytest.fail(message)
        pytest.skip(message)
    starts = [start for start, _, _ in ranges]
    result = defaultdict(list)
    for instruction in instructions:
        place = bisect_right(starts, instruction.address) - 1
        inside = place >= 0 and instruction.address < ranges[place][1]
        result[ranges[place][2] if inside else None].append(instruction)
    return result


def test_only_level_objects_hold_their_levels_instructions(
    by_unit: dict[Unit | None, list[Instruction]],
) -> None:
    for unit, body in by_unit.items():
        if unit is None or unit.level == "base":
            wrong = {i.function for i in body if i.is_avx}
            assert not wrong, unit
        elif unit.level == "avx2":
            wrong = {i.function for i in body if EVEX_ONLY.search(i.text)}
            assert not wrong, unit


def test_each_level_has_objects_for_each_kernel_and_uses_its_registers(
    by_unit: dict[Unit | None, list[Instruction]],
) -> None:
    """Otherwise the test above would hold because nothing was compiled for a level."""
    sources = defaultdict(set)
    registers = defaultdict(set)
    for unit, body in by_unit.items():
        if unit is not None and "kernels/" in unit.source:
            sources[unit.level].add(unit.source)
            registers[unit.level] |= {r for i in body for r in re.findall(r"%([xyz]mm)", i.text)}
    assert sources["base"] == sources["avx2"]
    assert len(sources["base"]) >= 5
    assert registers["base"] == {"xmm"}
    assert "ymm" in registers["avx2"]
    if "avx512" in cnorm.isa_levels():
        assert sources["base"] == sources["avx512"]
        assert "zmm" in registers["avx512"]


def test_units_outside_the_kernels_are_compiled_for_the_baseline(
    by_unit: dict[Unit | None, list[Instruction]],
) -> None:
    for unit in by_unit:
        if unit is not None and "kernels/" not in unit.source:
            assert not re.search(r"-m(avx|fma|bmi|f16c|sse[34]|arch=(?!x86-64\b))", unit.flags), unit
            assert "-ffast-math" not in unit.flags


def test_kernel_symbols_end_in_the_name_of_their_level(instructions: list[Instruction]) -> None:
    functions = {i.function for i in instructions}
    for op in ("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"):
        for dtype in ("f32", "f64"):
            for level in cnorm.isa_levels():
                assert any(re.search(rf"{op}\w*_{dtype}_{level}$", name) for name in functions), (
                    op,
                    dtype,
                    level,
                )


def test_fused_multiply_adds_are_only_where_they_are_asked_for(
    by_unit: dict[Unit | None, list[Instruction]],
) -> None:
    """Elsewhere they round once where the baseline rounds twice: the bits would differ between levels.

    They are asked for in products of float32 (fused.h) and in exact products of powers (power.h).
    """
    fused = {
        unit: {i.function for i in body if re.match(r"vf(n?m)(add|sub)", i.mnemonic)}
        for unit, body in by_unit.items()
    }
    found = {
        Path(unit.source).stem if unit else "": functions for unit, functions in fused.items() if functions
    }
    whitening = {"whiten_apply", "whiten_covariance"}
    assert whitening <= set(found)
    assert set(found) <= whitening | {
        "normalize",
        "normalize_backward",
        "weight_norm",
        "weight_norm_backward",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("cpu", "best"), [("Nehalem", "base"), ("Haswell", "avx2")])
def test_other_cpus_choose_their_level_and_give_the_same_bits(cpu: str, best: str) -> None:
    """Under emulation: an instruction that the CPU lacks ends the process."""
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        pytest.skip("needs qemu-x86_64, of qemu-user")
    code = """
        import hashlib
        import numpy as np
        import cnorm
        state = hashlib.sha256()
        for dtype in (np.float32, np.float64):
            x = np.linspace(-1, 1e4, 3 * 5 * 1031, dtype=dtype).reshape(3, 5, 1031)
            for y in (cnorm.layer_norm(x), cnorm.rms_norm(x), cnorm.group_norm(x, 5), cnorm.instance_norm(x),
                      cnorm.batch_norm(x, training=True), cnorm.batch_norm(x, axis=-1, training=True)):
                state.update(y.tobytes())
        print(state.hexdigest(), *cnorm.isa_levels())
    """
    here = run(code, CNORM_ISA="").stdout.split()
    there = run(code, prefix=(emulator, "-cpu", cpu), timeout=600, CNORM_ISA="").stdout.split()
    assert there[1] == best
    assert set(there[1:]) <= {"avx2", "base"}
    assert there[0] == here[0]
