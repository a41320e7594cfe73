"""What is promised of launches, quiet runs and bound work, and whether numbers keep it: no clock."""

import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.record import Record

Walls = Mapping[tuple[str, int], Sequence[float | None]]
"""Wall times by launcher and number of ranks, one for each round; None where there is none."""

FASTER = ("openmpi", "srun", "hwloc", "torchrun")
"""Launchers that are to take longer than ompbind, at 64 ranks."""

FEW, SOME, MANY = 1, 64, 256
"""Numbers of ranks that promises are about."""


CONFIDENCE = 0.99
"""How sure it is that a median lies in the interval that is told of it."""

BY_HAND = ("openmpi", "torchrun", "taskset")
"""Ways to start two ranks that are tuned by hand; ompbind's ranks are to work as fast as in each of them."""

THROUGHPUT = 0.98
"""The least that the throughput of ompbind's ranks is of another's."""


class Promise(Record):
    """Something measured that is to be at most `limit`; `measured` is None where it could not be.

    Where `low` is given, chance explains that as much was measured if it is only so little.
    """

    text: str
    limit: float
    measured: float | None
    unit: str = "x"
    low: float | None = None

    @property
    def missed(self) -> bool:
        """Tell whether it was measured and is too much, by more than chance explains."""
        return self.above and (self.low is None or self.low > self.limit)

    @property
    def above(self) -> bool:
        """Tell whether it was measured and is more than the limit."""
        return self.measured is not None and self.measured > self.limit


def median_ratio(over: Sequence[float | None], under: Sequence[float | None]) -> float | None:
    """Return the median ratio over the rounds that have both numbers; None without any."""
    ratios = pair_ratios(over, under)
    return statistics.median(ratios) if ratios else None


def pair_ratios(over: Sequence[float | None], under: Sequence[float | None]) -> list[float]:
    """Return the ratio within each round that has both numbers."""
    pairs = zip(over, under, strict=False)
    return [a / b for a, b in pairs if a is not None and b is not None]


def median_interval(numbers: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return between which numbers the median of endless rounds would be; 0 and infinity for too few rounds.

    Each round is as likely above that median as below it, whatever else they follow, so the number of those
    below is binomial: as many are cut off at both ends as leaves this confidence.
    """
    cut, beyond, count = 0, 1.0, len(numbers)
    while 2 * beyond <= (1 - confidence) * 2**count:
        cut += 1
        beyond += math.comb(count, cut)
    return (sorted(numbers)[cut - 1], sorted(numbers)[-cut]) if cut else (0.0, math.inf)


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


def judge_effect(times: Mapping[tuple[str, str], Sequence[float | None]]) -> Iterator[Promise]:
    """Yield what is promised of work in ranks that ompbind binds, from times by work and way to start it.

    There is one against each way by hand, and none against the fastest of them, which among equals is the one
    that was lucky. Against ranks that nobody binds it is the same.
    """
    for work in dict.fromkeys(work for work, _ in times):
        for other in (*BY_HAND, "default"):
            ratios = pair_ratios(times.get((work, "ompbind"), ()), times.get((work, other), ()))
            yield Promise(
                text=f"{work}, time, of {other}'s",
                limit=1 / THROUGHPUT,
                measured=statistics.median(ratios) if ratios else None,
                low=median_interval(ratios)[0],
            )


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
    limit = f"at most {round(promise.limit, 3):g} {promise.unit}".rstrip()
    if promise.measured is None:
        return f"{'-':7} {promise.text:36} {'not measured':>12}  ({limit})"
    word = "MISSED" if promise.missed else "unsure" if promise.above else "ok"
    number = f"{round(promise.measured, 3):g} {promise.unit}".rstrip()
    return f"{word:7} {promise.text:36} {number:>12}  ({limit})"


def tell_promises(promises: Iterable[Promise]) -> int:
    """Print every promise; return the exit code: 1 if one that was measured is missed."""
    promises = list(promises)
    print("\nPromises")
    for promise in promises:
        print(render_promise(promise))
    return int(any(promise.missed for promise in promises))
