"""Run the benchmarks, or read a saved run, and write the README's table and the chart.

python -m bench                     run everything, then write README.md's table and bench/chart.svg
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

from bench.cases import CASES
from bench.chart import draw
from bench.tables import section, title

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
CHART = BENCH / "chart.svg"
SAVED = ROOT / ".benchmarks" / "latest.json"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
BUSY = 0.3  # load average above which other processes disturb the measurement
MISLEADING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # they make OpenBLAS run kernels for another CPU


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run of under a minute; writes nothing")
    parser.add_argument("--from", dest="saved", type=Path, help="a saved run to report, instead of a new one")
    parser.add_argument(
        "--json", type=Path, default=SAVED, help="where to save the run (.benchmarks/latest.json)"
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        with tempfile.TemporaryDirectory() as directory:
            saved = Path(directory) / "quick.json"
            status = run(saved, "--quick")
            if status == 0:
                print(section(load(saved)))
                draw(load(saved), Path(directory) / "chart.svg")
            return status
    saved = arguments.saved or arguments.json
    if arguments.saved is None and (status := run(saved)) != 0:
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


def publish(results: dict[str, Any]) -> int:
    """Write the README's table and the chart; refuse what would mislead."""
    text = section(results)
    print(text)
    for case in results["cases"]:
        if case["disturbed"]:
            who = ", ".join(case["disturbed"])
            print(f"Disturbed by another process: {title(case)} ({who})", file=sys.stderr)
    if len(results["cases"]) < len(CASES) or results["machine"]["backend"] != "native":
        print("\nNothing written: these are not the native backend's full results.", file=sys.stderr)
        return 1
    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8") if readme.exists() else ""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        print(f"\nNothing written: README.md has no {BEGIN} ... {END}.", file=sys.stderr)
        return 1
    draw(results, CHART)
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
