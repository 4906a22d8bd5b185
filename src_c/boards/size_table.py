"""Code size and stack of every public function on Cortex-M, as the tables of README.md.

    python size_table.py            prints them
    python size_table.py --write    puts them into README.md
    python size_table.py --check    fails where layer_norm or rms_norm is over its limit, or a forward pass
                                    of the level small computes in double

Each function is linked alone, with --gc-sections, from objects compiled for size. The stack is the deepest
path of the compiler's call graph, in which a call through a pointer may go to any function of the library
that is never called by name.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent
CROSS = "arm-none-eabi-"
CPUS = {
    "M3": "-mcpu=cortex-m3 -mfloat-abi=soft",
    "M4F": "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
}
FLAGS = (
    "-std=c11 -Os -mthumb -ffreestanding -ffp-contract=off -fno-math-errno -fno-trapping-math"
    " -ffunction-sections -fdata-sections -fcallgraph-info=su -DCN_REAL=f32 -DCN_ONE_LEVEL=1"
)
CODE_LIMIT, STACK_LIMIT = 1536, 512
DOUBLE_ARITHMETIC = r"__aeabi_d(add|sub|mul|div)|__aeabi_f2d"
LIMITED = ("layer_norm_forward", "rms_norm_forward")

FUNCTIONS = (
    "layer_norm_forward_f32", "rms_norm_forward_f32", "group_norm_forward_f32", "instance_norm_forward_f32",
    "batch_norm_forward_f32", "batch_norm_inference_f32", "layer_norm_backward_f32", "rms_norm_backward_f32",
    "group_norm_backward_f32", "instance_norm_backward_f32", "batch_norm_backward_f32", "layer_norm_s8",
    "rms_norm_s8",
)  # fmt: skip


@dataclass(frozen=True)
class Build:
    """The library's objects for one CPU and level."""

    cpu: str
    level: str
    folder: Path

    def compile(self) -> None:
        for source in self.sources():
            target = self.folder / f"{source.parent.name}-{source.stem}.o"
            run(f"{CROSS}gcc {CPUS[self.cpu]} {FLAGS} -DCN_ISA={self.level} -c {source} -o {target}")

    def sources(self) -> list[Path]:
        small = sorted(LIBRARY.glob("small/*.c")) if self.level == "small" else []
        taken = {path.name for path in small} | {"table.c"}
        kernels = [path for path in sorted(LIBRARY.glob("kernels/*.c")) if path.name not in taken]
        plain = [LIBRARY / name for name in ("parallel.c", "cpu.c")]
        return [
            *small,
            *kernels,
            *plain,
            *sorted(LIBRARY.glob("api/*.c")),
            *sorted(LIBRARY.glob("fixed/*.c")),
        ]

    def objects(self) -> list[Path]:
        return sorted(self.folder.glob("*.o"))


@dataclass(frozen=True)
class Size:
    """Bytes of code (kernel, the checks before it, the compiler's and C libraries) and stack."""

    kernel: int
    checks: int
    runtime: int
    stack: int
    external: tuple[str, ...]


def run(command: str) -> str:
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


@cache
def symbols(path: Path) -> dict[str, int]:
    """Sizes of the symbols that are code or constants."""
    sizes = {}
    for line in run(f"{CROSS}nm -S -t d {path}").splitlines():
        match = re.fullmatch(r"\d+ (\d+) [TtRr] (\S+)", line)
        if match:
            sizes[match[2]] = int(match[1])
    return sizes


def text_bytes(elf: Path) -> int:
    return int(run(f"{CROSS}size {elf}").splitlines()[1].split()[0])


def measure(build: Build, function: str) -> Size:
    name = f"cnorm_{function}"
    elf = build.folder / f"{function}.elf"
    objects = " ".join(map(str, build.objects()))
    flags = f"{CPUS[build.cpu]} -mthumb -nostartfiles -Wl,--gc-sections -Wl,-e,{name}"
    run(f"{CROSS}gcc {flags} {objects} -lm -o {elf}")
    linked = dict(symbols(elf))
    kernel = checks = 0
    for path in build.objects():
        own = sum(linked.pop(symbol) for symbol in symbols(path) if symbol in linked)
        if path.name.startswith(("small-", "kernels-", "fixed-")):
            kernel += own
        else:
            checks += own
    graph, names = call_graph(build.folder), set(linked_names(elf))
    runtime = text_bytes(elf) - kernel - checks
    external = external_calls(graph, name, names)
    return Size(kernel, checks, runtime, deepest(graph, name, names), external)


def linked_names(elf: Path) -> Iterable[str]:
    """Names of functions; those of static ones, which several files may have, after their file's name."""
    file = ""
    for line in run(f"{CROSS}nm -a -p {elf}").splitlines():
        *_, kind, name = line.split()
        if kind == "a" and name.endswith(".c"):
            file = name
        yield f"{file}:{name}" if kind in "tr" else name


INDIRECT = "__indirect_call"

Graph = dict[str, tuple[int, list[str]]]


@cache
def call_graph(folder: Path) -> Graph:
    """Stack bytes and callees of each function; static ones bear their file's name there."""
    graph: Graph = {}
    for path in folder.glob("*.ci"):
        text = path.read_text()
        for title, size in re.findall(r'node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes', text):
            graph[title] = (int(size), [])
        for source, target in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', text):
            if source in graph:
                graph[source][1].append(target)
    return graph


def by_pointer(graph: Graph, linked: set[str]) -> list[str]:
    """Functions that are linked and that nobody calls by name."""
    named = {target for _, targets in graph.values() for target in targets}
    return [f for f in graph if f not in named and f.split("/")[-1] in linked and not f.startswith("cnorm_")]


def external_calls(graph: Graph, start: str, linked: set[str]) -> tuple[str, ...]:
    """What `start` needs from other libraries, but for the calls that single-precision arithmetic becomes."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += by_pointer(graph, linked) if name == INDIRECT else graph.get(name, (0, []))[1]
    names = seen - graph.keys() - {INDIRECT}
    return tuple(
        sorted(name for name in names if not re.fullmatch(r"__aeabi_(f(add|sub|mul|div|cmp.*)|u?i2f)", name))
    )


def deepest(graph: Graph, start: str, linked: set[str]) -> int:
    """Stack from `start` on; there is no recursion in the library, and pointers nest twice at most."""
    pointed_to = by_pointer(graph, linked)

    @cache
    def depth(name: str, nesting: int) -> int:
        if name == INDIRECT:
            return max((depth(f, nesting - 1) for f in pointed_to), default=0) if nesting else 0
        size, targets = graph.get(name, (0, []))
        return size + max((depth(target, nesting) for target in targets), default=0)

    return depth(start, 2)


def measure_all(level: str, functions: Iterable[str]) -> dict[tuple[str, str], Size]:
    sizes = {}
    for cpu in CPUS:
        with tempfile.TemporaryDirectory() as folder:
            build = Build(cpu, level, Path(folder))
            build.compile()
            for function in functions:
                sizes[cpu, function] = measure(build, function)
    return sizes


def table(sizes: dict[tuple[str, str], Size]) -> str:
    lines = [
        "| function | kernel | checks | libraries | stack | on M3: kernel | checks | libraries | stack |"
    ]
    lines.append("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for function in dict.fromkeys(function for _, function in sizes):
        cells = [f"`{function}`"]
        for cpu in ("M4F", "M3"):
            s = sizes[cpu, function]
            cells += map(str, (s.kernel, s.checks, s.runtime, s.stack))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def external(sizes: dict[tuple[str, str], Size]) -> str:
    sets: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for (cpu, function), s in sizes.items():
        sets.setdefault(s.external, {}).setdefault(cpu, []).append(f"`{function}`")
    lines = []
    for names, functions in sets.items():
        lists = {", ".join(f) for f in functions.values()}
        same = len(lists) == 1 and len(functions) == len(CPUS)
        who = lists.pop() if same else "; ".join(f"{cpu}: {', '.join(f)}" for cpu, f in functions.items())
        lines.append(f"- {', '.join(f'`{n}`' for n in names) or 'nothing'} ({who})")
    return "\n".join(lines)


def complaints(sizes: dict[tuple[str, str], Size]) -> list[str]:
    """Functions that are too large for the M4F, or forward passes with double arithmetic."""
    found = []
    for (cpu, function), s in sizes.items():
        if cpu == "M4F" and function.startswith(LIMITED) and (s.kernel > CODE_LIMIT or s.stack > STACK_LIMIT):
            found.append(f"{function} has {s.kernel} bytes of code and {s.stack} of stack")
        if "backward" not in function and any(re.match(DOUBLE_ARITHMETIC, name) for name in s.external):
            found.append(f"{function} on {cpu} computes in double")
    return found


def main() -> None:
    sizes = measure_all("small", FUNCTIONS)
    base = measure_all("base", [f for f in FUNCTIONS if f.startswith(LIMITED)])
    parts = {"sizes": table(sizes), "base": table(base), "external": external(sizes)}
    if "--write" in sys.argv:
        readme = HERE / "README.md"
        text = readme.read_text()
        for name, part in parts.items():
            begin, end = f"<!-- {name} -->\n", "<!-- end -->"
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}{part}\n{end}{rest.partition(end)[2]}"
        readme.write_text(text)
    else:
        print("\n\n".join(parts.values()))
    if "--check" in sys.argv and complaints(sizes):
        sys.exit("\n".join(complaints(sizes)))


if __name__ == "__main__":
    main()
