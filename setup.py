"""Builds ``cnorm.native._cnorm``: a Cython module and C kernels, these compiled once per (dtype, ISA level).

Everything else is declared in pyproject.toml. Environment variables read here:

CNORM_REQUIRE_NATIVE=1   a failed native build is an error (default: install the pure-Python backend alone)
CC, CFLAGS, LDFLAGS      as usual, but flags that choose optimisation, an instruction set or LTO are dropped
                         from CFLAGS and from what the interpreter was built with: each level has its own
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from textwrap import shorten

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

Macros = list[tuple[str, str]]

DTYPES = ("f32", "f64")

# Levels of an architecture, baseline first; the baseline needs no flags, the others are probed for.
LEVELS = {
    "x86_64": ("base", "avx2", "avx512"),
    "amd64": ("base", "avx2", "avx512"),
    "aarch64": ("neon", "sve"),
    "arm64": ("neon",),
    "riscv64": ("base", "rvv"),
}

# Identical bits on every level need -ffp-contract=off and no fast-math. The -fno-* flags let sqrt and selects
# vectorise; code that looks at neither errno nor floating-point traps cannot tell.
FLAGS: dict[str, dict[str, list[str]]] = {
    "unix": {
        "plain": "-std=c11 -O2 -ffp-contract=off -fvisibility=hidden -fno-lto".split(),
        "kernel": "-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden"
        " -fopenmp-simd -fno-lto".split(),
        "openmp": ["-fopenmp"],
        "avx2": ["-mavx2", "-mfma"],
        "avx512": "-mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512".split(),
        "sve": ["-march=armv8.2-a+sve"],
        "rvv": ["-march=rv64gcv"],
    },
    # Visual Studio 2022 17.5 or later: C11's atomics. level.h forbids contractions there.
    "msvc": {
        "plain": "/std:c11 /experimental:c11atomics /O2 /fp:precise".split(),
        "kernel": "/std:c11 /O2 /fp:precise /openmp:experimental".split(),  # of which the simd pragmas
        "openmp": ["/openmp:experimental"],
        "avx2": ["/arch:AVX2"],
        "avx512": ["/arch:AVX512"],
    },
}

# Apple's clang compiles OpenMP when asked in this way and has no library of it: one that is installed is used
# (CPPFLAGS and LDFLAGS tell where), otherwise the build has one thread.
if sys.platform == "darwin":
    FLAGS["unix"]["openmp"] = ["-Xpreprocessor", "-fopenmp", "-lomp"]

# Dropped from the interpreter's flags and from CFLAGS. Linking with -ffast-math would be worst: it
# makes the process flush subnormal numbers from the moment the module is loaded.
FOREIGN_FLAG = re.compile(
    r"-(O|std=|ffp-"
    r"|m(arch=|tune=|cpu=|(no-)?(avx|sse|ssse|fma|f16c|bmi|prefer-vector|daz))"
    r"|f(no-)?(lto|fat-lto|use-linker-plugin|fast-math|unsafe-math|finite-math|associative-math|reciprocal-math"
    r"|math-errno|trapping-math|signed-zeros))"
)

X86_ONLY = "#if !defined(__x86_64__) && !defined(_M_X64)\n#error not x86-64\n#endif\n#include <immintrin.h>\n"
PROBES = {
    "avx2": X86_ONLY + "__m256i probe(__m256i a) { return _mm256_add_epi32(a, a); }\n",
    "avx512": X86_ONLY + "__m512d probe(__m512d a) { return _mm512_and_pd(a, a); }\n"
    "__m256i narrow(__m256i a) { return _mm256_mask_add_epi16(a, 1, a, a); }\n",
    "sve": "#ifndef __linux__\n#error not Linux\n#endif\n#include <arm_sve.h>\n"
    "svfloat32_t probe(svfloat32_t a) { return svadd_f32_x(svptrue_b32(), a, a); }\n",
    "rvv": "#if !defined(__linux__) || !defined(__riscv_v)\n#error no vectors on Linux\n#endif\nint probe;\n",
    "openmp": "#include <omp.h>\nint probe(void) { return omp_get_max_threads(); }\n",
}

NO_NATIVE = """
*******************************************************************************
cnorm: the C kernels could not be built: {error}
Installing the pure-Python backend alone: same functions and results, slower.
With a working C compiler, installing again gives the native one;
CNORM_REQUIRE_NATIVE=1 makes this an error.
*******************************************************************************"""


def paths(*patterns: str) -> list[str]:
    """Files matching the patterns, relative to this directory, in a fixed order."""
    return sorted(path.as_posix() for pattern in patterns for path in Path().glob(pattern))


class BuildKernels(build_ext):
    """``build_ext`` that adds the C library's objects to the extension, or does without the extension."""

    flags: dict[str, list[str]]
    force: bool

    def build_extension(self, ext: Extension) -> None:
        """Build `ext`; where that is impossible, warn and go on, or raise if it is required."""
        try:
            self.add_library(ext)
            super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError) as error:
            if not ext.optional:
                raise
            self.warn(NO_NATIVE.format(error=shorten(str(error), 60)))

    def add_library(self, ext: Extension) -> None:
        """Compile src_c in every variant and hand the objects to `ext`."""
        import numpy

        self.flags = FLAGS["msvc" if self.compiler.compiler_type == "msvc" else "unix"]
        for command in ("compiler_so", "linker_so"):
            if hasattr(self.compiler, command):
                words = [word for word in getattr(self.compiler, command) if not FOREIGN_FLAG.match(word)]
                self.compiler.set_executable(command, words)

        openmp = self.flags["openmp"] if self.probe("openmp", link=True) else []
        baseline, *others = LEVELS.get(platform.machine().lower(), ("base",))
        levels = [baseline, *(level for level in others if self.probe(level))]

        plain = self.flags["plain"]
        macros = [(f"CN_HAVE_{level}", "1") for level in levels]
        macros.append(("CN_VERSION", f'"{self.distribution.get_version()}"'))
        macros.append(("CN_COMPILER", f'"{self.compiler_name()}{", openmp" if openmp else ""}"'))

        jobs = [(source, "library", macros, plain + openmp) for source in paths("src_c/*.c")]
        for dtype in DTYPES:
            real = ("CN_REAL", dtype)
            jobs += [(source, dtype, [real], plain) for source in paths("src_c/api/*.c")]
            for level in levels:
                flags = self.flags["kernel"] + self.flags.get(level, [])
                variant = f"{dtype}-{level}"
                for source in paths("src_c/kernels/*.c"):
                    jobs.append((source, variant, [real, ("CN_ISA", level)], flags))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects, compiled = zip(*pool.map(lambda job: self.compile_one(*job), jobs), strict=True)
        self.force = self.force or any(compiled)  # the module's own date tells nothing of other flags

        ext.extra_objects = list(objects)
        ext.include_dirs = ["src_c", numpy.get_include()]
        ext.extra_compile_args = plain
        ext.extra_link_args = openmp

    def compile_one(self, source: str, variant: str, macros: Macros, flags: list[str]) -> tuple[str, bool]:
        """Compile one variant of `source` unless it is current; return the object and whether it is new."""
        folder = f"{self.build_temp}/{variant}"
        (target,) = self.compiler.object_filenames([source], output_dir=folder)
        command = repr((getattr(self.compiler, "compiler_so", ()), macros, flags))
        record = Path(f"{target}.command")
        if not self.force and is_current(record, command, [source, *paths("src_c/**/*.h")]):
            return target, False
        self.compiler.compile(
            [source], output_dir=folder, macros=macros, include_dirs=["src_c"], extra_postargs=flags
        )
        record.write_text(command)
        return target, True

    def probe(self, feature: str, link: bool = False) -> bool:
        """Whether the compiler accepts the flags and the intrinsics of `feature`."""
        folder = Path(self.build_temp, "probe")
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{feature}.c"
        source.write_text(PROBES[feature])
        flags = self.flags[feature]
        try:
            objects = self.compiler.compile([str(source)], output_dir=str(folder), extra_postargs=flags)
            if link:
                self.compiler.link_shared_object(objects, str(folder / feature), extra_postargs=flags)
        except CCompilerError:
            return False
        return True

    def compiler_name(self) -> str:
        """First line of ``cc --version``."""
        if self.compiler.compiler_type == "msvc":
            return "MSVC"
        command = [*takewhile(lambda word: not word.startswith("-"), self.compiler.compiler_so), "--version"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError as error:
            raise ExecError(str(error)) from error
        return answer.partition("\n")[0].replace('"', "") or command[0]


def is_current(record: Path, command: str, inputs: Sequence[str]) -> bool:
    """Whether `record` tells of the same command and is younger than all `inputs`."""
    if not record.exists() or record.read_text() != command:
        return False
    return record.stat().st_mtime > max(os.stat(path).st_mtime for path in inputs)


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[
        Extension(
            "cnorm.native._cnorm",
            sources=["cnorm/native/_cnorm.pyx"],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
            libraries=[] if os.name == "nt" else ["m"],
            depends=paths("src_c/**/*.[ch]", "cnorm/native/*.[hp]*", "setup.py"),
            optional=os.environ.get("CNORM_REQUIRE_NATIVE", "0") in ("", "0"),
        )
    ],
)
