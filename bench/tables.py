"""The README's speed section, in Markdown, from a run's results."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from bench.machine import MIB
from bench.peers import CNORM, CNORM_OUT, PEERS, PYTORCH

Record = dict[str, Any]

EXPLANATION = (
    "Ratios are the peer's time over cnorm's: above 1, cnorm takes less. NumPy and PyTorch allocate their "
    "results and are compared with cnorm's call without `out=`; ONNX Runtime has its buffers bound and is "
    "compared with `out=`. GB/s is useful traffic (x read once, y written once) with `out=`; the fraction is "
    "of this machine's copy bandwidth at the same size, measured in the same rounds."
)


def section(results: dict[str, Any]) -> str:
    """Return the whole section: summary, losses, limits, and every case."""
    cases: list[Record] = results["cases"]
    parts = [
        conditions(results["machine"]),
        "![Each peer's time over cnorm's, and the fraction of copy bandwidth](bench/chart.svg)",
        summary(cases),
        losses(cases),
        beyond_cache(cases),
        small_calls(cases),
        "<details><summary>Every case</summary>\n\n" + every_case(cases) + "\n\n</details>",
    ]
    return "\n\n".join(part for part in parts if part)


def conditions(machine: Record) -> str:
    """What ran where."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    return (
        f"{machine['cpu']}, {threads}, last-level cache {machine['llc_bytes'] // MIB} MiB; {versions}; "
        f"{machine['backend']} backend, {machine['isa']}. {EXPLANATION}"
    )


def summary(cases: list[Record]) -> str:
    """Geometric means by op."""
    rows = [
        ["op", "cases", "over the best peer", "least", "below 1", *(f"over {peer}" for peer in PEERS)],
    ]
    families = list(dict.fromkeys(case["family"] for case in cases))
    for family in [*families, None]:
        members = [case for case in cases if family in (case["family"], None)]
        least = min(members, key=best)
        rows.append(
            [
                f"**{family or 'all'}**",
                str(len(members)),
                f"**{geometric_mean(map(best, members)):.2f}**",
                f"{best(least):.2f} ({least['name'] if family else title(least)})",
                str(sum(best(case) < 1 for case in members)),
                *(peer_mean(members, peer) for peer in PEERS),
            ]
        )
    return markdown(rows)


def losses(cases: list[Record]) -> str:
    """Every case in which a peer takes less time, by name."""
    lost = sorted((case for case in cases if best(case) < 1), key=best)
    if not lost:
        return f"In none of the {len(cases)} cases does a peer take less time than cnorm."
    named = "; ".join(f"{title(case)} ({case['best_peer']}, {best(case):.2f})" for case in lost)
    return f"Cases in which a peer takes less time than cnorm, {len(lost)} of {len(cases)}: {named}."


def beyond_cache(cases: list[Record]) -> str:
    """Fractions of the copy bandwidth where only memory counts."""
    rows = [["beyond the cache", "x, MB", "GB/s", "copy, GB/s", "fraction"]]
    for case in cases:
        if case["beyond_cache"]:
            name = f"{case['family']}: {case['name'].removesuffix(', beyond the cache')}"
            size, copy = f"{case['nbytes'] / 1e6:.0f}", f"{case['copy_gb_per_second']:.1f}"
            rows.append(
                [name, size, f"{case['gb_per_second']:.1f}", copy, f"**{case['fraction_of_copy']:.2f}**"]
            )
    return markdown(rows) if len(rows) > 1 else ""


def small_calls(cases: list[Record]) -> str:
    """What a call costs by itself, and what leaving out `out=` costs."""
    sentences = []
    for case in cases:
        if case["op"] == "layer_norm" and case["shape"] == [1, 768]:
            ours, peer = case["seconds"][CNORM], case["seconds"].get(PYTORCH)
            versus = f", {ours / peer:.2f} of PyTorch's {duration(peer)}" if peer else ""
            sentences.append(f"`layer_norm` of (1, 768) takes {duration(ours)}{versus}.")
    large = [case for case in cases if case["nbytes"] >= MIB]
    if large:
        costs = [case["seconds"][CNORM] / case["seconds"][CNORM_OUT] for case in large]
        most = max(costs)
        sentences.append(
            f"From 1 MiB on, a call without `out=` takes {statistics.median(costs):.2f} times as long as one "
            f"with it (median; at most {most:.2f} times, {title(large[costs.index(most)])})."
        )
    return " ".join(sentences)


def every_case(cases: list[Record]) -> str:
    """One row per case."""
    rows = [["case", "shape", "cnorm", "cnorm, `out=`", "GB/s", "of copy", *PEERS]]
    for case in cases:
        ratios = [case["ratios"].get(peer) for peer in PEERS]
        fraction = case["fraction_of_copy"]
        rows.append(
            [
                title(case),
                "x".join(map(str, case["shape"])),
                duration(case["seconds"][CNORM]),
                duration(case["seconds"][CNORM_OUT]),
                f"{case['gb_per_second']:.1f}",
                "" if fraction is None else f"{fraction:.2f}",
                *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            ]
        )
    return markdown(rows)


def title(case: Record) -> str:
    """A case's full name."""
    return f"{case['family']}: {case['name']}"


def best(case: Record) -> float:
    """Ratio to the best peer."""
    return float(case["ratios"][case["best_peer"]])


def peer_mean(cases: list[Record], peer: str) -> str:
    """Geometric mean of the ratios to one peer, over the cases it ran."""
    ratios = [case["ratios"][peer] for case in cases if peer in case["ratios"]]
    return f"{geometric_mean(ratios):.2f}" if ratios else ""


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, values)))


def duration(seconds: float) -> str:
    """A time with three figures and the unit that suits it."""
    scale, unit = (1e6, "us") if seconds < 1e-3 else (1e3, "ms") if seconds < 1 else (1, "s")
    return f"{seconds * scale:.3g} {unit}"


def markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table: the first row is the header, the first column is left-aligned."""
    rule = ["---"] + ["--:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])
