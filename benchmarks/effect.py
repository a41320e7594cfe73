"""Measure the gain from binding: the same work in two ranks, not bound, bound by ompbind, and tuned by hand.

    python benchmarks/effect.py [--rounds N] [--work NAME,...] [--only NAME,...] [--python PATH]

Kinds of work (NAME). Both ranks do the same amount of work at the same time, in every variant:

    regions    many small OpenMP parallel regions (ranks.c in this directory, with the compiler's libgomp)
    triad      STREAM's triad with OpenMP, in arrays that are larger than the last cache (ranks.c)
    matmul     torch's matrix products
    server     an HTTP server with a thread per client, and a matrix product (torch, else numpy) per request;
               the clients are threads of a child process of the rank

Variants (NAME) that start the two ranks:

    default    a shell, without any settings
    ompbind    ompbind run -n 2, without other options
    openmpi    Open MPI's mpirun --map-by slot:PE=K --bind-to core, with OMP_NUM_THREADS
    torchrun   torchrun --nproc-per-node=2 --no-python of that Python, with OMP_NUM_THREADS
    taskset    half of the CPUs per rank, OMP_NUM_THREADS, one place per thread, OMP_PROC_BIND=close
    places     only if named: OMP_PLACES=cores OMP_PROC_BIND=close and OMP_NUM_THREADS for both ranks

How it measures:

    - Variables for thread pools are not inherited.
    - A first run finds the number of repetitions that takes ompbind's ranks about --seconds. Starting,
      importing and the first touch of memory are not measured.
    - Each round starts new ranks for every variant, in random order. The ranks work three times, starting
      together. The time of the slower rank counts; the result of the round is the median of the three times.
    - Times during which other processes used more than 5 % of the CPUs are dropped and repeated, at most
      three times. Other processes slow down bound ranks more, which is not the subject of this benchmark.
    - A variant that takes more than three times as long does a part of the work, once. Its time is scaled
      to the whole work, and a line says so.
    - "ompbind is" is ompbind's time divided by the variant's time: the median of the ratios within rounds,
      and its confidence interval (99 %), which needs eight rounds.

Promise: at least 0.98 of the throughput of each variant that is tuned by hand, and of the variant without
settings. So ompbind may take at most 1 / 0.98 of their time. If the median is above this limit, the promise
is "unsure", and more rounds decide. If the whole interval is above it, the promise is missed, and the exit
code is 1.
"""

import argparse
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.barrier import MAX_FOREIGN_SHARE, RANKS, SOCKET_VARIABLE, Task, Timing, time_ranks
from benchmarks.launchers import LAUNCHER_PREFIXES, Unavailable, compile_program, make_environment
from benchmarks.promises import (
    HAND_TUNED,
    make_effect_promises,
    median_interval,
    pair_ratios,
    print_promises,
)
from benchmarks.rounds import compile_modules, make_name_parser, make_parser
from benchmarks.timing import Failed, RunSettings, TimedOut
from benchmarks.variants import (
    MAKERS,
    THREAD_POOL_PREFIXES,
    HandTuning,
    Variant,
    make_hand_tuning,
    make_variants,
)
from ompbind import read_machine
from ompbind.record import Record

SLOW_FACTOR = 3.0
SAMPLES = 3
MAX_DIVISOR = 20
DEFAULT_VARIANTS = tuple(name for name in MAKERS if name != "places")
SMALL_BYTES = 128 << 10
LARGE_BYTES = (32 << 20, 128 << 20)
"""Minimum and maximum size of each of the triad's three arrays; in between, twice the last cache."""

Key = tuple[str, str]
"""A kind of work, and a variant."""


class Work(Record):
    """A kind of work.

    `command` is the command of a rank, `probe_times` a small number of repetitions for the first run.
    `unit` is the unit of throughput, and `amount` the work of one repetition, in this unit without "/s".
    """

    command: tuple[str, ...]
    probe_times: int
    unit: str
    amount: float = 1.0


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


def read_last_cache() -> int:
    """Return the size of the last cache of a CPU in bytes; 0 if unknown."""
    units = {"K": 1 << 10, "M": 1 << 20}
    directory = Path("/sys/devices/system/cpu/cpu0/cache")
    texts = [path.read_text().strip() for path in directory.glob("index*/size")]
    return max((int(text[:-1]) * units[text[-1]] for text in texts), default=0)


class Tools(Record):
    """Inputs of the work functions: a directory for compiled programs, and a Python."""

    directory: Path
    python: str


def make_openmp(tools: Tools, size: int) -> tuple[str, ...]:
    """Compile ranks.c and return its command for arrays of `size` bytes. Raises Unavailable."""
    try:
        program = compile_program("ranks.c", tools.directory, "-O3", "-fopenmp")
    except subprocess.CalledProcessError as why:
        raise Unavailable("the C compiler has no OpenMP") from why
    if program is None:
        raise Unavailable("no C compiler found (cc, gcc, clang)")
    return (program, str(size))


def make_regions(tools: Tools) -> Work:
    """Return work in arrays that fit into the first caches."""
    return Work(command=make_openmp(tools, SMALL_BYTES), probe_times=100, unit="regions/s")


def make_triad(tools: Tools) -> Work:
    """Return work in arrays that are larger than the last cache."""
    least, most = LARGE_BYTES
    size = max(least, min(most, 2 * read_last_cache()))
    return Work(command=make_openmp(tools, size), probe_times=3, unit="GB/s", amount=3 * size / 1e9)


def make_python(tools: Tools, name: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of ranks.py. Raises Unavailable if its Python has none of the modules."""
    code = "import sys; from importlib.util import find_spec; sys.exit(not any(map(find_spec, sys.argv[1:])))"
    if subprocess.run([tools.python, "-c", code, *modules]).returncode:
        raise Unavailable(f"{tools.python} has no {' or '.join(modules)}; give another with --python PATH")
    return (tools.python, str(Path(__file__).with_name("ranks.py")), name)


WORKS: Mapping[str, Callable[[Tools], Work]] = {
    "regions": make_regions,
    "triad": make_triad,
    "matmul": lambda tools: Work(
        command=make_python(tools, "matmul", ("torch",)), probe_times=20, unit="products/s"
    ),
    "server": lambda tools: Work(
        command=make_python(tools, "server", ("torch", "numpy")), probe_times=100, unit="requests/s"
    ),
}


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
        timings = self._run(key, Task(times=times, samples=2))
        return min(timing.seconds for timing in timings) / times if timings else None

    def measure(self, key: Key) -> None:
        """Run a variant in one round, and record its time, or None if it failed."""
        repetitions = self.repetitions.get(key)
        if repetitions:
            times = repetitions.times // repetitions.divisor
            timings = self._run(key, Task(times=times, samples=repetitions.samples)) or []
            self.timings.extend(timings)
            seconds = [timing.seconds for timing in timings if timing.is_undisturbed]
            whole_s = statistics.median(seconds) / times * repetitions.times if seconds else None
            self.times[key].append(whole_s)

    def _run(self, key: Key, task: Task) -> list[Timing] | None:
        """Return the measurements. If the variant fails: print a line, drop the key, and return None."""
        variant = self.variants[key[1]]
        env = {**self.settings.env, **variant.env}
        command = [*variant.prefix, *self.works[key[0]].command]
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
    unit = bench.works[work].unit
    times = max((item.times for item in repetitions.values()), default=0)
    yield f"\n{work}, {times} times in each of {RANKS} ranks"
    yield f"{'variant':9} {'median ms':>10} {'least ms':>9} {unit:>11}  {'ompbind is':>26} {'rounds':>7}"
    medians = {}
    for variant in repetitions:
        seconds = [time_s for time_s in bench.times[work, variant] if time_s is not None]
        cells = ["-"] * 3
        if seconds:
            medians[variant] = statistics.median(seconds)
            rate = times * bench.works[work].amount / medians[variant]
            cells = [
                f"{medians[variant] * 1e3:.1f}",
                f"{min(seconds) * 1e3:.1f}",
                f"{rate:,.{0 if rate > 99 else 1}f}",
            ]
        ratio = render_ratio(bench.times.get((work, "ompbind"), ()), bench.times[work, variant])
        yield f"{variant:9} {cells[0]:>10} {cells[1]:>9} {cells[2]:>11}  {ratio:>26} {len(seconds):7}"
    yield from render_slow(repetitions)
    yield from render_best(medians)
    yield from render_unbound(bench.times, work)


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
    low, high = median_interval(ratios)
    interval = f"({low:.3f} to {high:.3f})" if low else "(few rounds)"
    return f"{statistics.median(ratios):.3f} x {interval}"


def render_best(medians: Mapping[str, float]) -> Iterator[str]:
    """Yield which variant tuned by hand has the lowest median."""
    hand_tuned = {variant: median for variant, median in medians.items() if variant in HAND_TUNED}
    if hand_tuned:
        yield f"The fastest variant tuned by hand is {min(hand_tuned, key=hand_tuned.__getitem__)}."


def render_unbound(times: Mapping[Key, list[float | None]], work: str) -> Iterator[str]:
    """Yield how much longer the variant without settings takes."""
    ratios = pair_ratios(times.get((work, "default"), ()), times.get((work, "ompbind"), ()))
    if ratios:
        yield (
            f"Without binding it takes {statistics.median(ratios):.2f} x as long "
            f"({min(ratios):.2f} to {max(ratios):.2f} in single rounds)."
        )


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.4, help="working time of a rank per measurement")
    parser.add_argument("--work", type=make_name_parser(WORKS), default=tuple(WORKS), metavar="NAME,...")
    parser.add_argument("--only", type=make_name_parser(MAKERS), default=DEFAULT_VARIANTS, metavar="NAME,...")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="a Python with torch")
    parser.add_argument("--torchrun", metavar="PATH", help="default: torchrun of that Python")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    return parser.parse_args()


def make_works(names: Iterable[str], tools: Tools) -> dict[str, Work]:
    """Return the kinds of work that are possible; print a line for each other kind."""
    works = {}
    for name in names:
        try:
            works[name] = WORKS[name](tools)
        except Unavailable as why:
            print(f"{name}: left out, {why}")
    return works


def read_hand_tuning(options: argparse.Namespace) -> HandTuning:
    """Return the settings by hand for this machine, and print them. Raises Unavailable."""
    torchrun = options.torchrun or str(Path(options.python).with_name("torchrun"))
    tuning = make_hand_tuning(read_machine(), torchrun)
    halves = " and ".join(",".join(map(str, half)) for half in tuning.halves)
    print(f"Settings by hand: OMP_NUM_THREADS={tuning.threads}, CPUs {halves}")
    return tuning


def main() -> int:
    """Run all measurements; return 1 if a promise is missed or ompbind failed."""
    options = read_options()
    compile_modules()
    try:
        variants = make_variants(options.only, read_hand_tuning(options))
    except Unavailable as why:
        print(f"Nothing is measured: {why}")
        return 0
    with tempfile.TemporaryDirectory(prefix="effect") as name:
        directory = Path(name)
        works = make_works(options.work, Tools(directory=directory, python=options.python))
        env = make_environment(directory, LAUNCHER_PREFIXES + THREAD_POOL_PREFIXES)
        env[SOCKET_VARIABLE] = str(directory / "socket")
        settings = RunSettings(env=env, stderr_path=str(directory / "stderr"), timeout_s=options.timeout)
        bench = Bench(works, variants, settings)
        measure_all(bench, options)
    print("\n".join(line for work in works for line in render_table(bench, work)))
    disturbed = sum(not timing.is_undisturbed for timing in bench.timings)
    print(
        f"\n{disturbed} of {len(bench.timings)} times were dropped: "
        f"other processes used more than {MAX_FOREIGN_SHARE:.0%} of the CPUs."
    )
    is_missing = any((work, "ompbind") not in bench.repetitions for work in works) and "ompbind" in variants
    return max(print_promises(make_effect_promises(bench.times)), int(is_missing))


if __name__ == "__main__":
    sys.exit(main())
