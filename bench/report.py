"""Run the benchmarks, or read a saved run, and write the README's tables and the charts.

python -m bench                     run everything, then write README.md's tables and bench/chart*.svg
python -m bench --only others       one part of it: forward, backward or others; its table and chart
python -m bench --from run.json     write them from a saved run
python -m bench --quick             a smoke run: a few cases, everything checked, nothing written
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cases import BACKWARD, FORWARD, OTHERS, PARTS
from bench.cases_others import ALL_CASES
from bench.chart import draw
from bench.tables import CHARTS, section, title

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
RUNS = ROOT / ".benchmarks"
# In README.md: <!-- bench:begin --> and :end
MARKS = {FORWARD: "bench", BACKWARD: "bench-backward", OTHERS: "bench-others"}
BUSY = 0.3  # load average above which other processes disturb the measurement
MISLEADING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # they make OpenBLAS run kernels for another CPU


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run of under a minute; writes nothing")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", choices=PARTS, help="one part of the benchmark, its table and its chart")
    which.add_argument("--from", dest="saved", type=Path, help="a saved run to report, instead of a new one")
    parser.add_argument(
        "--json", type=Path, help="where to save the run (.benchmarks/latest.json; with --only, its name)"
    )
    arguments = parser.parse_args(argv)
    options = [] if arguments.only is None else [f"--only={arguments.only}"]
    if arguments.quick:
        with tempfile.TemporaryDirectory() as directory:
            saved = Path(directory) / "quick.json"
            status = run(saved, "--quick", *options)
            if status == 0:
                write_charts(load(saved), Path(directory))
                print("\n\n".join(sections(load(saved)).values()))
            return status
    saved = arguments.saved or arguments.json or RUNS / f"{arguments.only or 'latest'}.json"
    if arguments.saved is None and (status := run(saved, *options)) != 0:
        return status
    return publish(load(saved))


def run(saved: Path, *options: str) -> int:
    """Run pytest over the benchmarks in a process of its own, save the results, return its exit status."""
    saved.parent.mkdir(parents=True, exist_ok=True)
    if hasattr(os, "getloadavg") and (busy := os.getloadavg()[0]) > BUSY:
        print(f"The machine is busy (load {busy:.1f}): the times below will be off.", file=sys.stderr)
    environment = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    command = [sys.executable, "-m", "pytest", str(BENCH), "-q", f"--benchmark-json={saved}", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def load(saved: Path) -> dict[str, Any]:
    """Return ``{"machine": ..., "cases": [...]}`` from what pytest-benchmark saved."""
    data = json.loads(saved.read_text())
    return {
        "machine": data["machine_info"]["cnorm"],
        "cases": [benchmark["extra_info"] for benchmark in data["benchmarks"]],
    }


def by_part(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of each part that was run."""
    parts = {
        part: results | {"cases": [case for case in results["cases"] if case["part"] == part]}
        for part in PARTS
    }
    return {part: run for part, run in parts.items() if run["cases"]}


def sections(results: dict[str, Any]) -> dict[str, str]:
    """Return the README's text for each part that was run."""
    return {part: section(run, part) for part, run in by_part(results).items()}


def write_charts(results: dict[str, Any], directory: Path) -> None:
    """Draw a chart for each part that was run."""
    for part, run in by_part(results).items():
        draw(run, part, directory / CHARTS[part])


def publish(results: dict[str, Any]) -> int:
    """Write the README's tables and the charts; refuse what would mislead."""
    texts = sections(results)
    print("\n\n".join(texts.values()))
    for case in results["cases"]:
        if case["disturbed"]:
            who = ", ".join(case["disturbed"])
            print(f"Disturbed by another process: {title(case)} ({who})", file=sys.stderr)
    wanted = sum(case.part in texts for case in ALL_CASES)
    if len(results["cases"]) < wanted or results["machine"]["backend"] != "native":
        print("\nNothing written: these are not the native backend's full results.", file=sys.stderr)
        return 1
    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for part, text in texts.items():
        begin, end = (f"<!-- {MARKS[part]}:{edge} -->" for edge in ("begin", "end"))
        before, begins, rest = page.partition(begin)
        _, ends, after = rest.partition(end)
        if not (begins and ends):
            print(f"\nNothing written: README.md has no {begin} ... {end}.", file=sys.stderr)
            return 1
        page = f"{before}{begin}\n{text}\n{end}{after}"
    write_charts(results, BENCH)
    readme.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
