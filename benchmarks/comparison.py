"""Compare the same work in ranks that are started in different ways: rounds, times, and the table of times.

effect.py and scheduler.py use it.
"""

import argparse
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.barrier import MAX_FOREIGN_SHARE, RANKS, Task, Timing, time_ranks
from benchmarks.launchers import Unavailable, compile_program
from benchmarks.promises import ERROR, pair_ratios
from benchmarks.timing import Failed, RunSettings, TimedOut
from benchmarks.variants import Variant
from ompbind.bench.comparing import make_median_interval
from ompbind.record import Record

SLOW_FACTOR = 3.0
SAMPLES = 3
MAX_DIVISOR = 20
SMALL_BYTES = 128 << 10

Key = tuple[str, str]
"""A kind of work, and a variant."""


class Work(Record):
    """A kind of work.

    `command` is the command of a rank, `probe_times` a small number of repetitions for the first run.
    `unit` is the unit of throughput, and `amount` the work of one repetition, in this unit without "/s".
    `ranks` is the number of ranks that do this work at the same time.
    """

    command: tuple[str, ...]
    probe_times: int
    unit: str
    amount: float = 1.0
    ranks: int = RANKS


class Repetitions(Record):
    """Repetitions of a key: `times` is the whole work; each of `samples` runs does `times / divisor`."""

    times: int
    divisor: int = 1
    samples: int = SAMPLES


def make_repetitions(times: int, slower: float) -> Repetitions:
    """Return the repetitions for a variant that takes `slower` times as long as planned."""
    if slower <= SLOW_FACTOR:
        return Repetitions(times=times)
    return Repetitions(
        times=times, divisor=min(times, MAX_DIVISOR, math.ceil(slower / SLOW_FACTOR)), samples=1
    )


def make_openmp(directory: Path, size: int) -> tuple[str, ...]:
    """Compile ranks.c and return its command for arrays of `size` bytes. Raises Unavailable."""
    return (compile_openmp("ranks.c", directory, "-O3"), str(size))


def compile_openmp(name: str, directory: Path, *options: str) -> str:
    """Compile a C file with OpenMP and return its path. Raises Unavailable."""
    try:
        program = compile_program(name, directory, *options, "-fopenmp")
    except subprocess.CalledProcessError as why:
        raise Unavailable("the C compiler has no OpenMP") from why
    if program is None:
        raise Unavailable("no C compiler found (cc, gcc, clang)")
    return program


def make_regions(directory: Path, ranks: int = RANKS) -> Work:
    """Return work in arrays that fit into the first caches."""
    command = make_openmp(directory, SMALL_BYTES)
    return Work(command=command, probe_times=100, unit="regions/s", ranks=ranks)


class Bench:
    """Results of one run of this benchmark.

    `repetitions` has an entry per key that is measured; a key that fails is removed. `times` has a time per
    round, None if there was no undisturbed time. `timings` are all single measurements.
    """

    def __init__(
        self, works: Mapping[str, Work], variants: Mapping[str, Variant], settings: RunSettings
    ) -> None:
        self.works = works
        self.variants = variants
        self.settings = settings
        self.repetitions: dict[Key, Repetitions] = {}
        self.times: dict[Key, list[float | None]] = {}
        self.timings: list[Timing] = []

    def warm_up(self, work: str, seconds: float) -> None:
        """Find the number of repetitions, from ompbind if it is measured, and find slow variants."""
        times = 0
        for variant in sorted(self.variants, key=lambda name: name != "ompbind"):
            once_s = self._measure_once_s((work, variant), self.works[work].probe_times)
            if once_s and not times:  # measure again, for as long as in the rounds
                once_s = self._measure_once_s((work, variant), max(1, round(seconds / once_s))) or once_s
            if once_s:
                times = times or max(1, round(seconds / once_s))
                self.repetitions[work, variant] = make_repetitions(times, once_s * times / seconds)
                self.times[work, variant] = []

    def _measure_once_s(self, key: Key, times: int) -> float | None:
        """Return the shortest time of one repetition in seconds; None if it failed."""
        timings = self._run(key, times, samples=2)
        return min(timing.seconds for timing in timings) / times if timings else None

    def measure(self, key: Key) -> None:
        """Run a variant in one round, and record its time, or None if it failed."""
        repetitions = self.repetitions.get(key)
        if repetitions:
            times = repetitions.times // repetitions.divisor
            timings = self._run(key, times, repetitions.samples) or []
            self.timings.extend(timings)
            seconds = [timing.seconds for timing in timings if timing.is_undisturbed]
            whole_s = statistics.median(seconds) / times * repetitions.times if seconds else None
            self.times[key].append(whole_s)

    def _run(self, key: Key, times: int, samples: int) -> list[Timing] | None:
        """Return the measurements. If the variant fails: print a line, drop the key, and return None."""
        work, variant = self.works[key[0]], self.variants[key[1]]
        env = {**self.settings.env, **variant.env}
        command = [*variant.prefix, *work.command]
        task = Task(times=times, samples=samples, ranks=work.ranks)
        try:
            return time_ranks(command, self.settings.replace(env=env), task)
        except TimedOut:
            why = f"it did not exit in {self.settings.timeout_s:g} s"
        except Failed as failed:
            why = f"it exited with {failed}"
        self.repetitions.pop(key, None)
        print(f"{key[0]}, {key[1]}: left out, {why}")
        return None


def measure_all(bench: Bench, options: argparse.Namespace) -> None:
    """Run all rounds."""
    for work in bench.works:
        bench.warm_up(work, options.seconds)
    for _ in range(options.rounds):
        for work in bench.works:
            for variant in random.sample(list(bench.variants), len(bench.variants)):
                bench.measure((work, variant))


def render_table(bench: Bench, work: str) -> Iterator[str]:
    """Yield the lines of the table of one kind of work."""
    repetitions = {
        name: bench.repetitions[work, name] for name in bench.variants if (work, name) in bench.repetitions
    }
    kind = bench.works[work]
    times = max((item.times for item in repetitions.values()), default=0)
    yield f"\n{work}, {times} times in {f'each of {kind.ranks} ranks' if kind.ranks > 1 else 'one rank'}"
    yield f"{'variant':9} {'median ms':>10} {'least ms':>9} {kind.unit:>11}  {'ompbind is':>26} {'rounds':>7}"
    for variant in repetitions:
        seconds = [time_s for time_s in bench.times[work, variant] if time_s is not None]
        cells = render_times(seconds, times * kind.amount)
        ratio = render_ratio(bench.times.get((work, "ompbind"), ()), bench.times[work, variant])
        yield f"{variant:9} {cells[0]:>10} {cells[1]:>9} {cells[2]:>11}  {ratio:>26} {len(seconds):7}"
    yield from render_slow(repetitions)


def render_times(seconds: Sequence[float], amount: float) -> tuple[str, str, str]:
    """Return the median and the shortest time in ms, and the throughput for an amount of work."""
    if not seconds:
        return ("-", "-", "-")
    rate = amount / statistics.median(seconds)
    least = f"{min(seconds) * 1e3:.1f}"
    return (f"{statistics.median(seconds) * 1e3:.1f}", least, f"{rate:,.{0 if rate > 99 else 1}f}")


def render_slow(repetitions: Mapping[str, Repetitions]) -> Iterator[str]:
    """Yield a line for each variant that did a part of the work."""
    for variant, item in repetitions.items():
        if item.divisor > 1:
            yield f"{variant} is slow: it did 1/{item.divisor} of the work; its time is scaled to all work."


def render_ratio(over: Iterable[float | None], under: Iterable[float | None]) -> str:
    """Return the median ratio within rounds, and its confidence interval if there are enough rounds."""
    ratios = pair_ratios(tuple(over), tuple(under))
    if not ratios:
        return "-"
    interval = make_median_interval(ratios, ERROR)
    shown = f"({interval[0]:.3f} to {interval[1]:.3f})" if interval else "(few rounds)"
    return f"{statistics.median(ratios):.3f} x {shown}"


def render_dropped(bench: Bench) -> str:
    """Return how many times were dropped, and why."""
    disturbed = sum(not timing.is_undisturbed for timing in bench.timings)
    return (
        f"\n{disturbed} of {len(bench.timings)} times were dropped: "
        f"other processes used more than {MAX_FOREIGN_SHARE:.0%} of the CPUs."
    )
