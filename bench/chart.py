"""The chart: each peer's time over cnorm's for every case, and the fraction of copy bandwidth."""

import textwrap
from pathlib import Path
from typing import Any

from bench.cases import BACKWARD, FORWARD, OTHERS
from bench.machine import optional
from bench.peers import NUMPY, ONNXRUNTIME, PYTORCH
from bench.tables import geometric_mean, mark, present, title

PEER_COLORS = {NUMPY: "#767676", PYTORCH: "#d55e00", ONNXRUNTIME: "#0072b2"}
FAMILY_MARKERS = ("o", "s", "^", "v", "D", "P", "X")
FAMILY_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
ARRAYS = {
    FORWARD: ("x and y", 2),
    BACKWARD: ("x, dy and dx", 3),
    OTHERS: ("x and y", 2),
}  # that a call touches
TITLES = {FORWARD: "Forward", BACKWARD: "Backward", OTHERS: "Other norms"}
RED = "#c00000"
FOOTNOTE = {"x": 0.01, "ha": "left", "fontsize": 6, "color": RED}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "svg.fonttype": "path",
    "svg.hashsalt": "cnorm",  # the same run gives the same file
}


def draw(results: dict[str, Any], part: str, path: Path) -> None:
    """Write one part's chart to `path`, in the format its suffix names."""
    pyplot = optional("matplotlib.pyplot")
    if pyplot is None:
        raise SystemExit("the chart needs matplotlib: pip install matplotlib")
    cases = results["cases"]
    families = list(dict.fromkeys(case["family"] for case in cases))
    with pyplot.rc_context(STYLE):
        figure, (left, right) = pyplot.subplots(
            1, 2, figsize=(11, max(5.4, 0.5 * len(families))), width_ratios=(1.35, 1), layout="constrained"
        )
        figure.suptitle(TITLES[part], x=0.01, ha="left", fontsize=11, fontweight="bold")
        lost = draw_ratios(left, cases, families)
        draw_fractions(right, cases, families)
        draw_boundary(right, results["machine"]["llc_bytes"], *ARRAYS[part])
        if lost:
            figure.supxlabel(textwrap.fill("A peer takes less: " + "; ".join(lost), 240), **FOOTNOTE)
        figure.savefig(path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def draw_ratios(axes: Any, cases: list[dict[str, Any]], families: list[str]) -> list[str]:
    """One lane per op and peer: a dot per case, a bar at their mean; return the losses, numbered."""
    lost: list[str] = []
    peers = present(cases)
    for row, family in enumerate(families):
        for lane, peer in enumerate(peers):
            height = row + 0.24 * (lane - (len(peers) - 1) / 2)
            members = [case for case in cases if case["family"] == family and peer in case["ratios"]]
            if not members:
                continue
            color = PEER_COLORS[peer]
            ratios = [case["ratios"][peer] for case in members]
            axes.scatter(ratios, [height] * len(ratios), s=16, color=color, alpha=0.55, linewidths=0)
            axes.plot([geometric_mean(ratios)] * 2, [height - 0.1, height + 0.1], color=color, lw=2.5)
            for case, ratio in zip(members, ratios, strict=True):
                if ratio < 1:
                    lost.append(f"{len(lost) + 1} {title(case)} ({peer}{mark([case], peer)})")
                    number = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "fontsize": 6}
                    axes.annotate(str(len(lost)), (ratio, height), color=RED, **number)
                    axes.scatter([ratio], [height], s=30, facecolors="none", edgecolors=RED, zorder=3)
        axes.axhline(row + 0.5, color="#e0e0e0", lw=0.6)
    axes.axvline(1, color="black", lw=0.8)
    axes.set(xscale="log", title="Time of each peer / time of cnorm (dot: a case; bar: geometric mean)")
    axes.xaxis.set_major_locator(optional("matplotlib.ticker").LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.xaxis.set_minor_formatter("")
    lanes = ([case for case in cases if case["family"] == family] for family in families)
    names = [short(lane[0]) + mark(lane, PYTORCH) for lane in lanes]
    axes.set_yticks(range(len(families)), names)
    axes.set_ylim(len(families) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e0e0e0", lw=0.6)
    axes.set_axisbelow(True)
    for peer in peers:
        label = peer + (", (*) composed of its ops" if mark(cases, peer) else "")
        axes.scatter([], [], s=16, color=PEER_COLORS[peer], label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3, frameon=False)
    return lost


def draw_fractions(axes: Any, cases: list[dict[str, Any]], families: list[str]) -> None:
    """A dot per case of at least 1 MiB."""
    for number, family in enumerate(families):
        turn, at = divmod(number, len(FAMILY_COLORS))
        color, marker = FAMILY_COLORS[at], FAMILY_MARKERS[(at + turn) % len(FAMILY_MARKERS)]
        members = [
            case for case in cases if case["family"] == family and case["fraction_of_copy"] is not None
        ]
        if not members:
            continue
        sizes = [case["nbytes"] / 1e6 for case in members]
        fractions = [case["fraction_of_copy"] for case in members]
        axes.scatter(
            sizes,
            fractions,
            s=24,
            color=color,
            marker=marker,
            label=short(members[0]),
            alpha=0.8,
            linewidths=0,
        )
    axes.axhline(1, color="black", lw=0.8)
    axes.set(xscale="log", xlabel="size of x, MB", title="Useful traffic / copy bandwidth of this machine")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e0e0e0", lw=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False, fontsize=7.5)


def draw_boundary(axes: Any, cache: int, arrays: str, count: int) -> None:
    """A dashed line where a call's arrays together outgrow the cache."""
    boundary = cache / count / 1e6
    axes.axvline(boundary, color="#767676", lw=0.8, ls="--")
    axes.annotate(
        f"{arrays} outgrow\nthe cache ",
        (boundary, 0.02),
        xycoords=("data", "axes fraction"),
        ha="right",
        color="#767676",
        fontsize=7,
    )


def short(case: dict[str, Any]) -> str:
    """The name of the case's family, without the direction where the chart is titled by that."""
    family: str = case["family"]
    return family if case["part"] == OTHERS else family.replace("_backward", "")
