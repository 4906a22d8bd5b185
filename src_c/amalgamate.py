"""Writes the library as one file: ``python3 amalgamate.py FOLDER`` puts cnorm.c and cnorm.h there.

Both dtypes, the baseline level. The sources are taken as they are but for two things. A file that is
compiled once for each dtype comes once for each, and the names it gives to types, functions, variables,
constants and macros get the dtype behind them, or where two files use one name, file and dtype. The library's
own macros, CN_..., are undefined where their dtype ends.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent
DTYPES = ("f32", "f64")

PREAMBLE = """\
/* cnorm {version} in one file, made by amalgamate.py from the library's sources, for any C11 compiler:
 *
 *     cc -O3 -c cnorm.c
 *
 * -fopenmp gives it threads, -fopenmp-simd alone wider vectors. Its kernels are those of the baseline level;
 * -march=native or its like makes them use what the processor has. The bits of the results stay the same.
 *
 * Copyright the cnorm developers. SPDX-License-Identifier: BSD-3-Clause
 */
#if defined(__FAST_MATH__)
#error cnorm needs arithmetic as it is written: compile this file without -ffast-math
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-math-errno", "no-trapping-math")
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#endif
"""

COMMENT = r"/\*.*?\*/|//[^\n]*"
STRING = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
PASTED = r"\bCN(?:_API|_DTYPE_NAME)?\(\w+"  # the argument becomes a part of a name
TOKEN = re.compile(rf"({COMMENT}|{STRING}|{PASTED})|((?:\.|->)?)\b([A-Za-z_]\w*)", re.S)
INCLUDE = re.compile(r'^#include "(.*)"\n', re.M)
DEFINE = re.compile(r"^#\s*define (\w+)", re.M)
GUARD = re.compile(r"#ifndef (\w+)\n#define \1\n(.*)#endif\n", re.S)


class Source:
    """A file of the library: what it includes and defines, and its text without guard and local includes."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.path = path
        self.title = path.relative_to(ROOT).as_posix()
        self.includes = [(path.parent / name).resolve() for name in local_includes(path, text)]
        self.text = GUARD.sub(r"\2", INCLUDE.sub("", text))
        self.macros = set(DEFINE.findall(self.text))
        self.names = file_scope_names(self.text) | {
            name for name in self.macros if not name.startswith("CN_")
        }


def local_includes(path: Path, text: str) -> list[str]:
    """Return what `text` includes of the library, relative to `path` or else to the library's root."""
    return [n if (path.parent / n).exists() else str(ROOT / n) for n in INCLUDE.findall(text)]


def without_bodies(code: str) -> str:
    """Return `code` with what is between braces left out, but for the members of enumerations."""
    result: list[str] = []
    depth, kept = 0, False
    for part in re.split(r"([{};])", code):
        if part == "{":
            if depth == 0 and re.search(r"\benum\b[\s\w]*$", "".join(result).rpartition(";")[2]):
                kept = True
            depth += 1
        elif part == "}":
            depth -= 1
            result.append("" if kept else "{}")
            if depth == 0:
                kept = False
        elif depth == 0 or kept:
            result.append(part.replace("\n", " ") if not kept or depth == 0 else f" {part},")
    return "".join(result)


def file_scope_names(text: str) -> set[str]:
    """Return the names that `text` declares outside of any function, without those of the whole library."""
    code = re.sub(rf"{COMMENT}|{STRING}", " ", text, flags=re.S)
    code = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.M)
    code = re.sub(r"__attribute__\(\(.*?\)\)", "", code)
    names: set[str] = set()
    for declaration in re.split(r";|(?<=\))\s*\{\}", without_bodies(code)):
        names |= declared_names(declaration)
    return {name for name in names if not name.startswith(("cn_", "cnorm_", "CN_", "CNORM_"))}


def declared_names(declaration: str) -> set[str]:
    """Return the names of the function, the type or the variables of one declaration at file scope."""
    if re.match(r"\s*(?:typedef\s+)?enum\b[^(]*$", declaration):
        members = re.sub(r"=[^,]*", "", declaration.rstrip())
        found = re.findall(r"\benum\s+(\w+)|([A-Za-z_]\w*)\s*(?:,|$)", members)
        return {tag or member for tag, member in found}
    if declaration.lstrip().startswith("typedef") and declaration.rstrip()[-1:].isidentifier():
        return {declaration.split()[-1]}
    head = declaration.partition("=")[0]
    function = re.search(r"(\w+)\s*\((?:\*\s*(\w+))?", head)
    if function:
        return {function[2] or function[1]} - {"CN", "CN_API", "CN_DTYPE_NAME"}
    names = set(re.findall(r"\b(?:struct|union|enum)\s+(\w+)", head)) if "{}" in head else set()
    return names | set(re.findall(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:,|=|$)", head.rstrip()))


class Library:
    """All sources, and who gives which name."""

    def __init__(self) -> None:
        folders = (ROOT, ROOT / "kernels", ROOT / "api", ROOT / "fixed")
        found = sorted(path for folder in folders for path in folder.glob("*.[ch]"))
        self.sources = {path: Source(path) for path in found}
        ours = [p for p in found if self.of_a_dtype(p)]
        given = Counter(name for p in ours for name in self.sources[p].names)
        self.unique = {name for name, files in given.items() if files == 1}

    def closure(self, path: Path) -> list[Path]:
        """Return `path` and what it includes, each file after what it includes itself."""
        order: list[Path] = []
        for included in self.sources[path].includes:
            order += [p for p in self.closure(included) if p not in order]
        return [*order, path]

    def of_a_dtype(self, path: Path) -> bool:
        """Tell whether `path` is compiled once for each dtype."""
        return ROOT / "dtype.h" in self.closure(path)

    def ordered(self, suffix: str, of_a_dtype: bool) -> list[Path]:
        """Return the files of a suffix and kind, each after what it includes."""
        order: list[Path] = []
        for path in self.sources:
            order += [p for p in self.closure(path) if p not in order]
        return [p for p in order if p.suffix == suffix and self.of_a_dtype(p) == of_a_dtype]

    def renamed(self, path: Path, dtype: str) -> str:
        """Return the text of `path` with the names that files of a dtype give replaced."""
        owners = {name: owner for owner in self.closure(path) for name in self.sources[owner].names}

        def replace(match: re.Match[str]) -> str:
            verbatim, access, name = match.groups()
            if verbatim:
                return verbatim
            if name in self.unique:
                return f"{access}{name}_{dtype}"
            if name in owners and not access:
                return f"{name}_{owners[name].stem}_{dtype}"
            return access + name

        return TOKEN.sub(replace, self.sources[path].text)

    def shared(self) -> str:
        """Return the files that know of no dtype, headers first."""
        headers = [path for path in self.ordered(".h", False) if path.name != "cnorm.h"]
        parts = [self.titled(path, self.sources[path].text) for path in headers]
        for path in self.ordered(".c", False):
            parts += [self.titled(path, self.sources[path].text), undefine(self.sources[path].macros)]
        return "\n".join(parts)

    def in_dtype(self, dtype: str) -> str:
        """Return the files that are compiled for each dtype, in this one."""
        parts = [f"#define CN_REAL {dtype}\n#define CN_ISA base\n"]
        macros = {"CN_REAL", "CN_ISA"}
        for path in [*self.ordered(".h", True), *self.ordered(".c", True)]:
            macros |= self.sources[path].macros - self.sources[path].names
            parts.append(self.titled(path, self.renamed(path, dtype), dtype))
        return "\n".join([*parts, undefine(macros)])

    def titled(self, path: Path, text: str, dtype: str = "") -> str:
        """Return `text` under the name of the file that it is from."""
        return f"/* ---- {self.sources[path].title}{', ' * bool(dtype)}{dtype} ---- */\n{text}"


def undefine(macros: set[str]) -> str:
    """Return lines that take `macros` back."""
    return "".join(f"#undef {name}\n" for name in sorted(macros))


def main(folder: Path) -> None:
    """Write both files into `folder`."""
    library = Library()
    header = (ROOT / "cnorm.h").read_text()
    version = re.search(r'CNORM_VERSION "(.*)"', header)
    preamble = PREAMBLE.format(version=version and version[1])
    parts = [preamble + '#include "cnorm.h"\n', library.shared(), *map(library.in_dtype, DTYPES)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cnorm.h").write_text(header)
    (folder / "cnorm.c").write_text("\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
