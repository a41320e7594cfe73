"""What is promised of a launch and of a quiet run, and whether numbers keep it: no clock, no process."""

import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.record import Record

Walls = Mapping[tuple[str, int], Sequence[float | None]]
"""Wall times by launcher and number of ranks, one for each round; None where there is none."""

FASTER = ("openmpi", "srun", "hwloc", "torchrun")
"""Launchers that are to take longer than ompbind, at 64 ranks."""

FEW, SOME, MANY = 1, 64, 256
"""Numbers of ranks that promises are about."""


class Promise(Record):
    """Something measured that is to be at most `limit`; `measured` is None where it could not be."""

    text: str
    limit: float
    measured: float | None
    unit: str = "x"

    @property
    def missed(self) -> bool:
        """Tell whether it was measured and is too much."""
        return self.measured is not None and self.measured > self.limit


def median_ratio(over: Sequence[float | None], under: Sequence[float | None]) -> float | None:
    """Return the median ratio over the rounds that have both numbers; None without any."""
    pairs = [(a, b) for a, b in zip(over, under, strict=False) if a is not None and b is not None]
    return statistics.median(a / b for a, b in pairs) if pairs else None


def each_further(walls: Walls, name: str) -> list[float | None]:
    """Return what each rank after the first takes, in every round, in seconds."""
    few, many = walls.get((name, FEW), ()), walls.get((name, MANY), ())
    pairs = zip(few, many, strict=False)
    return [None if None in (a, b) else (b - a) / (MANY - FEW) for a, b in pairs]  # type: ignore[operator]


def judge_launch(walls: Walls) -> list[Promise]:
    """Return what is promised of launches, with the median ratio of each over the rounds."""

    def ratio(other: str, ranks: int) -> float | None:
        return median_ratio(walls.get(("ompbind", ranks), ()), walls.get((other, ranks), ()))

    further = median_ratio(each_further(walls, "ompbind"), each_further(walls, "floor"))
    return [
        *(_launch_promise(SOME, other, 0.7, ratio) for other in FASTER),
        _launch_promise(SOME, "hydra", 1.5, ratio),
        Promise(text="each further rank, of floor's", limit=1.6, measured=further),
        _launch_promise(MANY, "hydra", 1.0, ratio),
    ]


def _launch_promise(
    ranks: int, other: str, limit: float, ratio: Callable[[str, int], float | None]
) -> Promise:
    text = f"{ranks} ranks, wall time, of {other}'s"
    return Promise(text=text, limit=limit, measured=ratio(other, ranks))


class Quiet(Record):
    """ompbind's own processes while ranks run: bytes of memory, and what they did in a while.

    `largest` is the resident memory of the largest, `rss` and `pss` are sums; `switches` counts how often
    one was given a CPU, `ticks` is the CPU time of all in the kernel's units.
    """

    ranks: int
    processes: int
    largest: int
    rss: int
    pss: int
    switches: int
    ticks: int


def judge_quiet(measured: Sequence[Quiet]) -> list[Promise]:
    """Return what is promised of quiet runs; with 64 and 256 ranks also of each further one."""
    by_ranks = {one.ranks: one for one in measured}
    further = None
    if SOME in by_ranks and MANY in by_ranks:
        further = (by_ranks[MANY].rss - by_ranks[SOME].rss) / (MANY - SOME) / 1e3
    return [
        Promise(
            text="largest process, resident", limit=25, unit="MB", measured=_most(measured, "largest", 1e6)
        ),
        Promise(text="resident memory, each further rank", limit=40, unit="KB", measured=further),
        Promise(text="wake-ups", limit=0, unit="", measured=_most(measured, "switches", 1)),
        Promise(text="ticks of CPU time", limit=0, unit="", measured=_most(measured, "ticks", 1)),
    ]


def _most(measured: Sequence[Quiet], field: str, unit: float) -> float | None:
    return max((getattr(one, field) / unit for one in measured), default=None)


def render_promise(promise: Promise) -> str:
    """Return the one line on a promise."""
    limit = f"at most {promise.limit:g} {promise.unit}".rstrip()
    if promise.measured is None:
        return f"{'-':7} {promise.text:36} {'not measured':>12}  ({limit})"
    word = "MISSED" if promise.missed else "ok"
    number = f"{round(promise.measured, 3):g} {promise.unit}".rstrip()
    return f"{word:7} {promise.text:36} {number:>12}  ({limit})"


def tell_promises(promises: Iterable[Promise]) -> int:
    """Print every promise; return the exit code: 1 if one that was measured is missed."""
    promises = list(promises)
    print("\nPromises")
    for promise in promises:
        print(render_promise(promise))
    return int(any(promise.missed for promise in promises))
