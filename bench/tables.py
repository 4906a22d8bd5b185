"""The README's speed section, in Markdown, from a run's results."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from bench.cases import BACKWARD, FORWARD, OTHERS
from bench.machine import MIB
from bench.peers import CNORM, CNORM_OUT, PEERS, PYTORCH

Record = dict[str, Any]

CHARTS = {FORWARD: "chart.svg", BACKWARD: "chart_backward.svg", OTHERS: "chart_others.svg"}
"""The charts' files in bench/, by part."""

RATIOS = "Ratios are the peer's time over cnorm's: above 1, cnorm takes less."
FRACTION = "the fraction is of this machine's copy bandwidth at the same size, measured in the same rounds."
EXPLANATION = {
    FORWARD: (
        f"{RATIOS} NumPy and PyTorch allocate their results and are compared with cnorm's call without "
        "`out=`; ONNX Runtime has its buffers bound and is compared with `out=`. GB/s is useful traffic (2S: "
        f"x read once, y written once) with `out=`; {FRACTION}"
    ),
    BACKWARD: (
        "Every call returns dx, dweight and dbias (RMS norm: dx and dweight) from the statistics of the "
        f"forward. {RATIOS} PyTorch is `torch.ops.aten.native_*_backward`, without autograd; (*) where it "
        "has no kernel for CPUs, the formula composed of its eager ops. Peers allocate their results and are "
        "compared with cnorm's call without `out=`. GB/s is useful traffic with `out=` (3S: x and dy read "
        "and dx written once; 5S: x and dy read twice, where those of a row, group or channel do not fit in "
        f"the cache); {FRACTION}"
    ),
    OTHERS: (
        f"{RATIOS} PyTorch runs its own function where it has one, and (*) for the other ops what its users "
        "compose of its ops; gradients of a composition are autograd's, through a graph recorded beforehand. "
        "Peers allocate their results and are compared with cnorm's call without `out=`. GB/s is useful "
        f"traffic, in which each array of the call moves once; {FRACTION}"
    ),
}


def section(results: dict[str, Any], part: str) -> str:
    """Return one part's section: summary, losses, limits, and every case."""
    cases: list[Record] = results["cases"]
    picture = f"bench/{CHARTS[part]}"
    parts = [
        f"{conditions(results['machine'])} {EXPLANATION[part]}",
        f"![Each peer's time over cnorm's, and the fraction of copy bandwidth]({picture})",
        summary(cases),
        own_kernels(cases),
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
        f"{machine['backend']} backend, {machine['isa']}."
    )


def summary(cases: list[Record]) -> str:
    """Geometric means by op."""
    peers = present(cases)
    rows = [
        ["op", "cases", "over the best peer", "least", "below 1", *(f"over {peer}" for peer in peers)],
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
                *(peer_mean(members, peer) for peer in peers),
            ]
        )
    return markdown(rows)


def own_kernels(cases: list[Record]) -> str:
    """The mean over PyTorch without the cases in which it has no kernel of its own."""
    own = [case for case in cases if PYTORCH in case["ratios"] and not composed(case, PYTORCH)]
    if len(own) in (0, len(cases)):
        return ""
    return f"Over PyTorch's own kernels alone, {len(own)} cases: {peer_mean(own, PYTORCH)}."


def losses(cases: list[Record]) -> str:
    """Every case in which a peer takes less time, by name."""
    lost = sorted((case for case in cases if best(case) < 1), key=best)
    if not lost:
        return f"In none of the {len(cases)} cases does a peer take less time than cnorm."
    named = "; ".join(
        f"{title(case)} ({case['best_peer']}{mark([case], case['best_peer'])}, {best(case):.2f})"
        for case in lost
    )
    return f"Cases in which a peer takes less time than cnorm, {len(lost)} of {len(cases)}: {named}."


def beyond_cache(cases: list[Record]) -> str:
    """Fractions of the copy bandwidth where only memory counts."""
    rows = [["beyond the cache", "x, MB", "traffic", "GB/s", "copy, GB/s", "fraction"]]
    for case in cases:
        if case["beyond_cache"]:
            name = f"{case['family']}: {case['name'].removesuffix(', beyond the cache')}"
            size, copy = f"{case['nbytes'] / 1e6:.0f}", f"{case['copy_gb_per_second']:.1f}"
            speed, fraction = f"{case['gb_per_second']:.1f}", f"**{case['fraction_of_copy']:.2f}**"
            rows.append([name, size, f"{case['passes']}S", speed, copy, fraction])
    return markdown(rows) if len(rows) > 1 else ""


def small_calls(cases: list[Record]) -> str:
    """What a call costs by itself, and what leaving out `out=` costs."""
    sentences = []
    for case in cases:
        if case["op"] == "layer_norm" and case["shape"] == [1, 768]:
            ours, peer = case["seconds"][CNORM], case["seconds"].get(PYTORCH)
            versus = f", {ours / peer:.2f} of PyTorch's {duration(peer)}" if peer else ""
            sentences.append(f"`{case['family']}` of (1, 768) takes {duration(ours)}{versus}.")
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
    peers = present(cases)
    rows = [["case", "shape", "cnorm", "cnorm, `out=`", "traffic", "GB/s", "of copy", *peers]]
    for case in cases:
        fraction = case["fraction_of_copy"]
        rows.append(
            [
                title(case),
                "x".join(map(str, case["shape"])),
                duration(case["seconds"][CNORM]),
                duration(case["seconds"][CNORM_OUT]),
                f"{case['passes']}S",
                f"{case['gb_per_second']:.1f}",
                "" if fraction is None else f"{fraction:.2f}",
                *(peer_mean([case], peer) for peer in peers),
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
    ran = [case for case in cases if peer in case["ratios"]]
    return f"{geometric_mean(case['ratios'][peer] for case in ran):.2f}{mark(ran, peer)}" if ran else ""


def present(cases: list[Record]) -> list[str]:
    """The peers that ran any of the cases, in order."""
    return [peer for peer in PEERS if any(peer in case["ratios"] for case in cases)]


def composed(case: Record, peer: str) -> bool:
    """Whether the peer has no kernel of its own for the case, and its ops were put together instead."""
    return peer == PYTORCH and bool(case["composed"])


def mark(cases: list[Record], peer: str) -> str:
    """An asterisk if the peer's figure is of composed ops, in any of the cases."""
    return " (*)" if any(composed(case, peer) for case in cases) else ""


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
