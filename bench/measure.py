"""Interleaved measurement: every contestant in turn, round after round, in one process.

Whatever slows the machine down for a second then slows all of them down, and the median over the rounds is
fair.
"""

import random
import statistics
import threading
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Call = Callable[[], object]

FEWEST = 2  # rounds of a contestant, however slow it is
DISTURBED = 1.5  # median over best round
WARM = 0.05  # seconds
TRIALS = 4


@dataclass(frozen=True)
class Effort:
    """How long to measure: at most `rounds` rounds and about `seconds` per case, loops of `turn` seconds.

    A close call is measured `again` so many times at most.
    """

    rounds: int
    seconds: float
    turn: float
    again: int = 4


FULL = Effort(rounds=15, seconds=2.0, turn=0.006)
FULL_BACKWARD = Effort(rounds=15, seconds=1.5, turn=0.006)
FULL_OTHERS = Effort(rounds=15, seconds=1.0, turn=0.006, again=1)
QUICK = Effort(rounds=3, seconds=0.3, turn=0.001, again=0)


@dataclass(frozen=True)
class Timing:
    """Seconds per call in each round, and how many calls a round looped over."""

    seconds: list[float]
    loops: int

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.seconds)

    def joined(self, other: "Timing") -> "Timing":
        """Return the rounds of both."""
        return Timing(self.seconds + other.seconds, other.loops)

    @property
    def disturbed(self) -> bool:
        """Whether most rounds took far longer than the best one: another process had the core."""
        return self.median > DISTURBED * min(self.seconds)


def interleave(calls: Mapping[str, Call], effort: Effort) -> dict[str, Timing]:
    """Time the calls against each other.

    A contestant that has used up its share of the time stops after `FEWEST` rounds, so that a slow peer does
    not eat the rounds of the others. The order is drawn anew each round: nobody always follows the same one.
    """
    plans = {name: plan(call, effort.turn) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    order = list(calls)
    shuffle = random.Random(1).shuffle
    for _ in range(effort.rounds):
        shuffle(order)
        for name in order:
            if len(seconds[name]) < FEWEST or spent[name] < effort.seconds / len(calls):
                settle()
                start = time.perf_counter()
                seconds[name].append(turn(calls[name], *plans[name]))
                spent[name] += time.perf_counter() - start
    return {name: Timing(seconds[name], plans[name][0]) for name in calls}


def turn(call: Call, loops: int, warm: bool) -> float:
    """Wake the call's threads and caches, and return its seconds per call."""
    if warm:
        call()
    return timeit.Timer(call).timeit(loops) / loops


def plan(call: Call, seconds: float) -> tuple[int, bool]:
    """Return how many calls fill `seconds`, and whether a turn needs a call ahead of them.

    The first call ever sets things up and does not count, unless it is so slow that this does not matter. A
    call longer than `WARM` is its own warm-up. The best of a few times counts: a call that waits for a
    sleeping thread can take a hundred times as long, and would then be timed alone in every turn.
    """
    if timeit.Timer(call).timeit(1) > 10 * WARM:
        return 1, False
    loops = 1
    while (elapsed := min(timeit.Timer(call).repeat(TRIALS, loops))) < seconds / 2:
        loops = max(2 * loops, min(10 * loops, int(seconds / max(elapsed, 1e-9) * loops)))
    return max(1, round(seconds / elapsed * loops)), elapsed < WARM


def settle() -> None:
    """Sleep until no thread of this process is spinning.

    OpenMP runtimes and OpenBLAS keep their threads spinning after parallel work, for up to 120 milliseconds.
    With several of them in one process the spinning threads of one would be charged to the other.
    """
    for _ in range(100):
        time.sleep(0.002)
        if not others_are_running():
            return


def others_are_running() -> bool:
    """Whether a thread of this process other than the calling one has, or wants, a CPU; False if unknown."""
    own = threading.get_native_id()
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # the thread has ended
            continue
        if state == "R" and stat.parent.name != str(own):
            return True
    return False
