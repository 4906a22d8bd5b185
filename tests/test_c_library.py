"""The C library without Python: its one-file form, header, symbols and examples; what can be left out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cnorm

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src_c"
EXAMPLES = ROOT / "examples" / "c"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="symbols and sections are looked up in ELF files"),
    pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("nm"), reason="no gcc and binutils"),
]

# What the library takes from the C library and its libm.
LIBC = set("memcpy memset memmove memcmp strcmp".split())
LIBM = set("sqrt sqrtf frexp ldexp ilogb ilogbf logb scalbn floor ceil nearbyint fabs fabsf exp2".split())
STRICT = "-Wall -Wextra -Werror".split()
SMALL = "CC=gcc CFLAGS=-O0 OPENMP=0 LEVELS= DTYPES=f32".split()
LINKER = {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}

# cnorm.h names these under "State".
STATE = {"chosen_threads", "forked", "in_use", "known"}


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command that must succeed and keep silent on standard error; return its output."""
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def symbols(file: Path, kinds: str) -> set[str]:
    """Names in `file` of the kinds that nm has these letters for, without what compilers append to them."""
    lines = [line.split() for line in run("nm", file).splitlines()]
    return {line[-1].partition(".")[0] for line in lines if len(line) >= 2 and line[-2] in kinds}


def writable(file: Path) -> set[str]:
    """Names of what `file` has in sections that stay writable after relocation."""
    rows = [line.split("|") for line in run("nm", "--format=sysv", file).splitlines()]
    sections = {row[0].strip().partition(".")[0]: row[-1].strip() for row in rows if len(row) == 7}
    return {n for n, s in sections.items() if re.match(r"\.t?bss|\.t?data(?!\.rel\.ro)|\*COM\*", s)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of cnorm.c, cnorm.h and cnorm.o, compiled without a warning."""
    folder = tmp_path_factory.mktemp("amalgamation")
    run(sys.executable, SOURCES / "amalgamate.py", folder)
    run("gcc", "-O1", *STRICT, "-c", "cnorm.c", cwd=folder)
    return folder


def declared() -> set[str]:
    header = re.sub(r"/\*.*?\*/", "", (SOURCES / "cnorm.h").read_text(), flags=re.S)
    return set(re.findall(r"(cnorm_\w+)\(", header))


@pytest.mark.parametrize(
    "command", ["gcc -x c -std=c99", "gcc -x c -std=c11", "g++ -x c++ -std=c++11", "g++ -x c++ -std=c++20"]
)
def test_header_stands_alone_in_c_and_cpp(command: str, tmp_path: Path) -> None:
    words = command.split()
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]}")
    source = tmp_path / "user"
    source.write_text('#include "cnorm.h"\nint main(void) { return cnorm_set_num_threads(1); }\n')
    run(*words, "-pedantic-errors", *STRICT, "-fsyntax-only", "-I", SOURCES, source)


def test_header_and_library_have_the_same_functions(library: Path) -> None:
    assert {name for name in symbols(library / "cnorm.o", "T") if name.startswith("cnorm_")} == declared()


def test_version_is_that_of_the_package() -> None:
    assert f'#define CNORM_VERSION "{cnorm.__version__}"' in (SOURCES / "cnorm.h").read_text()


def test_library_needs_little(library: Path) -> None:
    """No allocation, no stdio, nothing of the operating system."""
    assert symbols(library / "cnorm.o", "U") <= LIBC | LIBM | LINKER


def test_library_keeps_only_the_state_that_is_documented(library: Path) -> None:
    assert writable(library / "cnorm.o") <= STATE


def test_one_file_refuses_fast_math(library: Path) -> None:
    command = ["gcc", "-ffast-math", "-fsyntax-only", "cnorm.c"]
    result = subprocess.run(command, cwd=library, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "-ffast-math" in result.stderr


def test_example_of_a_file_gives_the_bits_of_python(library: Path, tmp_path: Path) -> None:
    program = tmp_path / "normalise_file"
    run(
        "gcc",
        *STRICT,
        "-I",
        library,
        EXAMPLES / "normalise_file.c",
        library / "cnorm.o",
        "-lm",
        "-o",
        program,
    )
    x = np.random.default_rng(5).normal(1e3, 2, (37, 129)).astype(np.float32)
    x.tofile(tmp_path / "x.f32")
    run(program, 129, tmp_path / "x.f32", tmp_path / "y.f32")
    y = np.fromfile(tmp_path / "y.f32", np.float32).reshape(x.shape)
    if cnorm.backend == "native":
        np.testing.assert_array_equal(y, cnorm.layer_norm(x, 129))
    np.testing.assert_allclose(y, cnorm.layer_norm(x, 129), rtol=0, atol=2e-6)
    for words in ([], ["0", "x.f32", "y.f32"], ["128", "x.f32", "y.f32"], ["129", "none.f32", "y.f32"]):
        assert (
            subprocess.run([program, *words], cwd=tmp_path, capture_output=True, check=False).returncode == 1
        )


def test_bare_metal_example(library: Path, tmp_path: Path) -> None:
    """Compiled here as for a board, freestanding; its status is its result."""
    run(
        "gcc",
        "-ffreestanding",
        *STRICT,
        "-I",
        library,
        EXAMPLES / "bare_metal.c",
        library / "cnorm.o",
        "-lm",
        "-o",
        tmp_path / "bare_metal",
    )
    run(tmp_path / "bare_metal")


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_cpp_example(library: Path, tmp_path: Path) -> None:
    run(
        "g++",
        "-std=c++11",
        "-pedantic-errors",
        *STRICT,
        "-I",
        library,
        EXAMPLES / "training_step.cpp",
        library / "cnorm.o",
        "-lm",
        "-o",
        tmp_path / "step",
    )
    assert "sum of dx" in run(tmp_path / "step")


def op_of(name: str) -> str:
    """The op that a kernel's name belongs to: a file of api/, the longest that the name begins with."""
    ops = [path.stem for path in (SOURCES / "api").glob("*.c")]
    return max((op for op in ops if f"{name}_".startswith(f"{op}_")), key=len)


def test_every_table_entry_can_be_left_out() -> None:
    guard = None
    for line in (SOURCES / "kernels" / "table.c").read_text().splitlines():
        if line.startswith("#ifndef CN_WITHOUT_"):
            guard = line.removeprefix("#ifndef CN_WITHOUT_")
        elif line.startswith("#endif"):
            guard = None
        elif entry := re.match(r"    \.(\w+) = ", line):
            assert guard == op_of(entry[1]), f"{entry[1]} is not within CN_WITHOUT_{op_of(entry[1])}"


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_a_library_of_one_op(tmp_path: Path) -> None:
    """It has the functions of that op and those of no op, and is linked to nothing else."""
    run("make", "-C", SOURCES, *SMALL, "OPS=rms_norm", f"BUILD={tmp_path}")
    ops = {path.stem for path in (SOURCES / "api").glob("*.c")}
    of_an_op = re.compile(f"cnorm_({'|'.join(ops)})_")
    general = {name for name in declared() if not of_an_op.match(name) and "_s8" not in name}
    library = tmp_path / "libcnorm.a"
    public = {name for name in symbols(library, "T") if name.startswith("cnorm_") and "_s8" not in name}
    assert public - general == {"cnorm_rms_norm_forward_f32", "cnorm_rms_norm_forward_workspace_f32"}
    assert general <= public
    assert symbols(library, "U") - symbols(library, "TDRB") <= LIBC | LIBM | LINKER


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_install_with_make(tmp_path: Path) -> None:
    """What pkg-config tells compiles and links a program. Of one op, for speed."""
    run(
        "make",
        "install",
        "-C",
        SOURCES,
        *SMALL,
        "OPS=layer_norm",
        f"BUILD={tmp_path}/build",
        f"PREFIX={tmp_path}",
    )
    package = (tmp_path / "lib" / "pkgconfig" / "cnorm.pc").read_text()
    assert f"Version: {cnorm.__version__}" in package
    words = [word for line in re.findall(r"^(?:Cflags|Libs): (.*)", package, re.M) for word in line.split()]
    flags = [
        re.sub(r"\$\{(\w+)\}", lambda m: f"{tmp_path}/{m[1].removesuffix('dir')}", word) for word in words
    ]
    run("gcc", EXAMPLES / "bare_metal.c", *flags, "-o", tmp_path / "program")
    run(tmp_path / "program")
