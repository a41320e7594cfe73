"""Promises: limits for measured numbers. Nothing is measured here.

They are about starts, launches, idle runs, live views, bound work, busy schedulers and decisions of `bench`.
"""

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.bench.comparing import make_median_interval
from ompbind.cpuset import count
from ompbind.record import Record

WallTimes = Mapping[tuple[str, int], Sequence[float | None]]
"""Wall times by launcher and number of ranks: a time per round, None if it was not measured."""

LAUNCHER_LIMITS = {"openmpi": 1.0, "srun": 0.65, "hwloc": 0.2, "torchrun": 0.2}
"""Wall time of 64 ranks at most, relative to other launchers."""

FEW, SOME, MANY = 1, 64, 256
"""Numbers of ranks in promises."""

HYDRA_LIMIT = 1.2
"""Wall time of 256 ranks at most, relative to MPICH's hydra.

It took less than 1.0 on some machines and 1.06 to 1.13 on another, where Python needs 80 ms to import click.
"""

FURTHER_LIMIT = 1.6
"""Wall time of each further rank at most, relative to a loop in C: 1.2 to 1.5, depending on the machine."""

UNOPTIMIZED = 1.15
"""The factor of limits for a Python that was built without optimization, compared with programs in C."""

ERROR = 0.01
"""The probability at most that a confidence interval does not contain the true value."""

HAND_TUNED = ("openmpi", "torchrun", "taskset")
"""Variants that are tuned by hand. Ranks of ompbind must be as fast as in each of them."""

MIN_THROUGHPUT = 0.98
"""Minimum throughput of ompbind's ranks, relative to another variant."""


class Promise(Record):
    """A number that must be at most `limit`.

    `measured` is the result, None if it could not be measured. `low` is the lower end of its confidence
    interval, None if there is no interval.
    """

    text: str
    limit: float
    measured: float | None
    unit: str = "x"
    low: float | None = None

    @property
    def missed(self) -> bool:
        """Return whether the result is above the limit, and so is the lower end of the interval if any."""
        return self.above and (self.low is None or self.low > self.limit)

    @property
    def above(self) -> bool:
        """Return whether it was measured and is above the limit."""
        return self.measured is not None and self.measured > self.limit


def median_ratio(over: Sequence[float | None], under: Sequence[float | None]) -> float | None:
    """Return the median ratio over the rounds that have both numbers; None if there are no such rounds."""
    ratios = pair_ratios(over, under)
    return statistics.median(ratios) if ratios else None


def pair_ratios(over: Sequence[float | None], under: Sequence[float | None]) -> list[float]:
    """Return the ratio of each round that has both numbers."""
    pairs = zip(over, under, strict=False)
    return [a / b for a, b in pairs if a is not None and b is not None]


def further_rank_times(walls: WallTimes, name: str) -> list[float | None]:
    """Return the time of each rank after the first, per round, in seconds."""
    few, many = walls.get((name, FEW), ()), walls.get((name, MANY), ())
    pairs = zip(few, many, strict=False)
    return [None if None in (a, b) else (b - a) / (MANY - FEW) for a, b in pairs]  # type: ignore[operator]


IMPORT_CLICK = 'python -c "import click"'
"""The command that starts are compared with: a Python that imports a library for command lines."""

STARTUP_LIMITS = {"--version": 1.25, "run": 2.1, "run, ompbind.toml": 2.3, "exec": 1.65}
"""How long starts may take at most, relative to IMPORT_CLICK. --version took 1.07 to 1.20 on one machine."""

JOB_LIMIT = 1.6
"""How long a job of hydra with 32 ranks of `exec` may take at most, relative to 32 of IMPORT_CLICK.

It took 1.38 to 1.53 on several days, with the Python of Debian and another one; the same version differs that
much from day to day.
"""

IN_JOB = "{}, 32 ranks of hydra"
"""The name of such a job, with the name of the command."""


def make_startup_promises(walls: Mapping[str, Sequence[float]]) -> Iterator[Promise]:
    """Yield the promises about the wall times of starts, by name; a time per round."""
    for name, limit in STARTUP_LIMITS.items():
        pair = (walls.get(name, ()), walls.get(IMPORT_CLICK, ()))
        yield _pair_promise(f"{name}, of import click's", limit, *pair)
    pair = (walls.get(IN_JOB.format("exec"), ()), walls.get(IN_JOB.format(IMPORT_CLICK), ()))
    yield _pair_promise(f"{IN_JOB.format('exec')}, of import click's", JOB_LIMIT, *pair)


def _pair_promise(
    text: str, limit: float, over: Sequence[float | None], under: Sequence[float | None]
) -> Promise:
    """Return the promise about the median ratio within rounds."""
    ratios = pair_ratios(over, under)
    median = statistics.median(ratios) if ratios else None
    return Promise(text=text, limit=limit, measured=median, low=_find_low(ratios))


def _find_low(numbers: Sequence[float]) -> float:
    """Return the lower end of the confidence interval of the median; 0 with too few rounds."""
    interval = make_median_interval(numbers, ERROR)
    return interval[0] if interval else 0.0


def make_launch_promises(walls: WallTimes, *, optimized: bool = True) -> list[Promise]:
    """Return the promises about launches, with median ratios over the rounds.

    `optimized` is whether Python was built with optimization, as distributions build it. Only few rounds
    measure the slower launchers, too few for an interval; the limit is far from their ratio.
    """

    def find_walls(name: str, ranks: int) -> Sequence[float | None]:
        return walls.get((name, ranks), ())

    def describe(ranks: int, other: str) -> str:
        return f"{count(ranks, 'rank')}, wall time, of {other}'s"

    factor = 1 if optimized else UNOPTIMIZED
    ours = find_walls("ompbind", SOME)
    further = [further_rank_times(walls, name) for name in ("ompbind", "floor")]
    return [
        *(
            Promise(
                text=describe(SOME, other), limit=limit, measured=median_ratio(ours, find_walls(other, SOME))
            )
            for other, limit in LAUNCHER_LIMITS.items()
        ),
        _pair_promise(
            describe(MANY, "hydra"),
            HYDRA_LIMIT * factor,
            find_walls("ompbind", MANY),
            find_walls("hydra", MANY),
        ),
        _pair_promise("each further rank, of floor's", FURTHER_LIMIT * factor, *further),
    ]


def make_effect_promises(times: Mapping[tuple[str, str], Sequence[float | None]]) -> Iterator[Promise]:
    """Yield the promises about work in bound ranks. Keys of `times` are (work, variant).

    There is a promise against each variant tuned by hand, and against the variant without binding. There is
    none against the fastest variant: among equal variants, the fastest is fastest by chance.
    """
    for work in dict.fromkeys(work for work, _ in times):
        for other in (*HAND_TUNED, "default"):
            pair = (times.get((work, "ompbind"), ()), times.get((work, other), ()))
            yield _pair_promise(f"{work}, time, of {other}'s", 1 / MIN_THROUGHPUT, *pair)


SCHEDULER_LIMIT = 1.05
"""Time of OpenMP work beside a busy scheduler at most, relative to each of vLLM's own layouts."""

VLLM_LAYOUTS = ("vllm-gomp", "vllm-omp")
"""vLLM's own layouts: with libgomp preloaded, and without a preloaded OpenMP runtime."""


def make_scheduler_promises(times: Mapping[str, Sequence[float | None]]) -> Iterator[Promise]:
    """Yield the promises about OpenMP work beside a busy scheduler. Keys of `times` are layouts."""
    for layout in VLLM_LAYOUTS:
        pair = (times.get("ompbind", ()), times.get(layout, ()))
        yield _pair_promise(f"time, of {layout}'s", SCHEDULER_LIMIT, *pair)


MAX_MISTAKES = 5
"""Percent of simulated sessions in which a decision may be wrong."""


def make_decision_promises(mistakes: Mapping[str, tuple[int, int]]) -> Iterator[Promise]:
    """Yield the promises about decisions; values of `mistakes` are wrong decisions and all decisions."""
    for text, (wrong, total) in mistakes.items():
        yield Promise(
            text=text,
            limit=MAX_MISTAKES,
            unit="%",
            measured=100 * wrong / total if total else None,
            low=100 * find_least_rate(wrong, total) if total else None,
        )


def find_least_rate(found: int, total: int) -> float:
    """Return the lower end of the confidence interval of a rate (Wilson's score interval)."""
    score = statistics.NormalDist().inv_cdf(1 - ERROR / 2)
    rate, share = found / total, score**2 / total
    return (rate + share / 2 - math.sqrt(share * rate * (1 - rate) + share**2 / 4)) / (1 + share)


BENCH_LIMIT_MS = 2.0
"""Milliseconds that a run of bench may take longer than `ompbind run` for the same command."""


class BenchUsage(Record):
    """What many runs leave in the process of bench.

    `grown` are bytes of resident memory. `left` counts descriptors, children and files, after the runs more
    than before.
    """

    runs: int
    grown: int
    left: int


def make_bench_promises(walls: Mapping[str, Sequence[float]], usage: BenchUsage) -> list[Promise]:
    """Return the promises about the runs of bench, from wall times by name: a time per round, in seconds."""
    pairs = zip(walls["bench"], walls["ompbind run"], strict=True)
    overheads = [1000 * (bench - run) for bench, run in pairs]
    grown = usage.grown / 1e6 * 1000 / usage.runs
    return [
        Promise(
            text="a run of bench, beyond ompbind run",
            limit=BENCH_LIMIT_MS,
            unit="ms",
            measured=statistics.median(overheads),
            low=_find_low(overheads),
        ),
        Promise(text="memory of bench, 1,000 runs", limit=30, unit="MB", measured=grown),
        Promise(text="descriptors, children, files left", limit=0, unit="", measured=usage.left),
    ]


class IdleUsage(Record):
    """Memory and activity of ompbind's own processes while ranks run.

    `largest` is the resident memory of the largest process; `rss` and `pss` are the sums of resident and
    proportional memory, in bytes. `switches` is the number of context switches, `ticks` the CPU time in ticks
    of the kernel, both during the measurement.
    """

    ranks: int
    processes: int
    largest: int
    rss: int
    pss: int
    switches: int
    ticks: int


def make_quiet_promises(measured: Sequence[IdleUsage], verify_percent: float | None = None) -> list[Promise]:
    """Return the promises about idle runs. The memory of each further rank needs 64 and 256 ranks.

    `verify_percent` is the CPU time of a run with --verify, in percent of a CPU.
    """
    by_ranks = {usage.ranks: usage for usage in measured}
    further = None
    if SOME in by_ranks and MANY in by_ranks:
        further = (by_ranks[MANY].rss - by_ranks[SOME].rss) / (MANY - SOME) / 1e3
    return [
        Promise(
            text="largest process, resident",
            limit=25,
            unit="MB",
            measured=_find_maximum(measured, "largest", 1e6),
        ),
        Promise(text="resident memory, each further rank", limit=40, unit="KB", measured=further),
        Promise(text="wake-ups", limit=0, unit="", measured=_find_maximum(measured, "switches", 1)),
        Promise(text="ticks of CPU time", limit=0, unit="", measured=_find_maximum(measured, "ticks", 1)),
        Promise(text="CPU time with --verify, of a CPU", limit=0.1, unit="%", measured=verify_percent),
    ]


def _find_maximum(measured: Sequence[IdleUsage], field: str, unit: float) -> float | None:
    return max((getattr(usage, field) / unit for usage in measured), default=None)


HELD_CALL_LIMITS_US = {
    ("inside", "--hold"): 40.0,
    ("outside", "--hold"): 60.0,
    ("inside", "--hold=fixed"): 1.0,
    ("outside", "--hold=fixed"): 1.0,
}
"""How long a call that binds a thread may take at most. It took 26, 45, 0.4 and 0.4 us on one machine."""

HELD_LIMITS = {"getppid": 1.5, "region": 4.5, "start, 1": 1.15, "start, 64": 1.15}
"""Times with --hold at most, relative to those without. They were 1.1, 3.7, 1.05 and 1.00 on one machine."""


def make_hold_promises(
    times: Mapping[tuple[str, str], Sequence[float | None]], usages: Mapping[str, IdleUsage]
) -> Iterator[Promise]:
    """Yield the promises about --hold, from microseconds by what was measured and variant, one per round."""
    for (what, variant), limit in HELD_CALL_LIMITS_US.items():
        measured = [time_us for time_us in times.get((what, variant), ()) if time_us is not None]
        yield Promise(
            text=f"a call for CPUs {what}, {variant}",
            limit=limit,
            unit="us",
            measured=statistics.median(measured) if measured else None,
            low=_find_low(measured),
        )
    for what, limit in HELD_LIMITS.items():
        pair = (times.get((what, "--hold"), ()), times.get((what, "without"), ()))
        yield _pair_promise(f"{what}, --hold, of that without", limit, *pair)
    held, free = usages["--hold"], usages["without"]
    yield Promise(text="wake-ups, --hold", limit=0, unit="", measured=held.switches)
    yield Promise(text="ticks of CPU time, --hold", limit=0, unit="", measured=held.ticks)
    grown = (held.largest - free.largest) / 1e6
    yield Promise(text="largest process, more with --hold", limit=3, unit="MB", measured=grown)


LEAST_GAIN = 1.9
"""How much faster two runs of GROMACS on one CPU each must be with --hold. It was 2.0 on one machine."""


def make_gmx_promise(free: Sequence[float], held: Sequence[float]) -> Promise:
    """Return the promise about speeds without and with --hold, one of each per round."""
    return _pair_promise("time with --hold, of that without", 1 / LEAST_GAIN, free, held)


class WatchUsage(Record):
    """CPU time of `inspect --watch` in percent of a CPU, for ranks with so many threads each.

    `interval_s` is the time between two views.
    """

    ranks: int
    threads: int
    interval_s: float
    percent: float


WATCH_LIMIT = 1.0
"""CPU time of `inspect --watch` at its default interval at most, in percent of a CPU."""


def make_watch_promises(measured: Iterable[WatchUsage]) -> Iterator[Promise]:
    """Yield the promise about the CPU time of a live view, for each size of a run."""
    for usage in measured:
        text = f"{count(usage.ranks, 'rank')} of {count(usage.threads, 'thread')}, watched"
        yield Promise(text=text, limit=WATCH_LIMIT, unit="%", measured=usage.percent)


def render_promise(promise: Promise) -> str:
    """Return the line of a promise."""
    limit = f"at most {round(promise.limit, 3):g} {promise.unit}".rstrip()
    if promise.measured is None:
        return f"{'-':7} {promise.text:36} {'not measured':>12}  ({limit})"
    result = "MISSED" if promise.missed else "unsure" if promise.above else "ok"
    number = f"{round(promise.measured, 3):g} {promise.unit}".rstrip()
    return f"{result:7} {promise.text:36} {number:>12}  ({limit})"


def print_promises(promises: Iterable[Promise]) -> int:
    """Print all promises; return the exit code: 1 if a promise is missed."""
    promises = list(promises)
    print("\nPromises")
    for promise in promises:
        print(render_promise(promise))
    return int(any(promise.missed for promise in promises))
