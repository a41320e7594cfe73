"""What binding is worth: the same work in two ranks, started by ompbind, with nothing set, and tuned by hand.

    python benchmarks/effect.py [--rounds N] [--work NAME,...] [--only NAME,...] [--python PATH]

The work (NAME), which both ranks do at once, and both equally much in every arm:

    regions    many small OpenMP parallel regions (ranks.c beside this file, with the compiler's libgomp)
    triad      STREAM's triad in arrays that are larger than the last cache, in OpenMP (the same program)
    matmul     products of torch's matrices
    server     an HTTP server with a thread for each client, and a product (of torch, or else of numpy) for
               each request; its clients are a process of the rank

The arms (NAME), which start the two ranks:

    default    a shell, with nothing set
    ompbind    ompbind run -n 2, with nothing else
    openmpi    Open MPI's mpirun --map-by slot:PE=K --bind-to core, with OMP_NUM_THREADS
    torchrun   torchrun --nproc-per-node=2 --no-python beside that Python, with OMP_NUM_THREADS
    taskset    half of the CPUs for each, OMP_NUM_THREADS, a place for each thread, OMP_PROC_BIND=close
    places     only if named: OMP_PLACES=cores OMP_PROC_BIND=close and OMP_NUM_THREADS exported for both

No variables for thread pools are inherited. How often ranks work is found out first, so that it takes those
of ompbind about --seconds; starting, importing and the first touch of memory are not counted. Ranks are
started anew in every round, begin together three times, and the slower one counts; the median of the three
is the round's. Times while others had more than a twentieth of the CPUs are left out, whatever they are, and
tried again, up to three more: what others do hits ranks that cannot go elsewhere harder, and is not what is
measured. Every round runs every arm, in an order that is drawn. An arm that takes more than three times as
long does a part of the work, once, and its time is that of the whole, in proportion; a line tells of it.
"ompbind is" is ompbind's time over the arm's: the median of the ratios within the rounds, and the interval in
which the median of endless rounds would be with a confidence of 99 %, which takes eight rounds.

ompbind promises at least 0.98 of the throughput of every arm that is tuned by hand, and of the one where
nothing is set: it takes at most 1 / 0.98 of the time. Where the median is more the promise is "unsure", which
more rounds decide, and where the whole interval is, it is missed, and the exit code 1.
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
from benchmarks.arms import MAKERS, POOLS, Arm, Hands, make_arms, make_hands
from benchmarks.launchers import FOREIGN, Missing, compile_beside, make_environment
from benchmarks.meeting import QUIET, RANKS, VARIABLE, Task, Timed, time_ranks
from benchmarks.promises import BY_HAND, judge_effect, median_interval, pair_ratios, tell_promises
from benchmarks.rounds import compile_modules, make_parser, names
from benchmarks.timing import Failed, Hung, Where
from ompbind import read_machine
from ompbind.record import Record

SLOW = 3.0
SAMPLES = 3
MOST_LESS = 20
USUAL = tuple(name for name in MAKERS if name != "places")
SMALL_BYTES = 128 << 10
LARGE_BYTES = (32 << 20, 128 << 20)
"""The least and the most that one of the triad's three arrays takes; else it is twice the last cache."""

Key = tuple[str, str]
"""A kind of work, and an arm."""


class Work(Record):
    """A kind of work: what a rank runs, how often is little, and how much of a unit each time is."""

    command: tuple[str, ...]
    little: int
    unit: str
    each: float = 1.0


class Place(Record):
    """What is run for a key: how often a rank is to work, and by what less it does, in how many samples."""

    times: int
    less: int = 1
    samples: int = SAMPLES


def make_place(times: int, slower: float) -> Place:
    """Return what to run where the work takes so much longer than it should."""
    if slower <= SLOW:
        return Place(times=times)
    return Place(times=times, less=min(times, MOST_LESS, math.ceil(slower / SLOW)), samples=1)


def read_last_cache() -> int:
    """Return the bytes of the last cache of a CPU; 0 where it is not told."""
    units = {"K": 1 << 10, "M": 1 << 20}
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    texts = [path.read_text().strip() for path in folder.glob("index*/size")]
    return max((int(text[:-1]) * units[text[-1]] for text in texts), default=0)


class Tools(Record):
    """What work is made from: a folder for programs, and a Python."""

    folder: Path
    python: str


def make_openmp(tools: Tools, size: int) -> tuple[str, ...]:
    """Compile ranks.c and return its command for arrays of so many bytes; raises Missing."""
    try:
        program = compile_beside("ranks.c", tools.folder, "-O3", "-fopenmp")
    except subprocess.CalledProcessError as why:
        raise Missing("the C compiler has no OpenMP") from why
    if program is None:
        raise Missing("there is no C compiler (cc, gcc, clang)")
    return (program, str(size))


def make_regions(tools: Tools) -> Work:
    """Return work in arrays that stay in the first caches."""
    return Work(command=make_openmp(tools, SMALL_BYTES), little=100, unit="regions/s")


def make_triad(tools: Tools) -> Work:
    """Return work in arrays that do not fit into the last cache."""
    least, most = LARGE_BYTES
    size = max(least, min(most, 2 * read_last_cache()))
    return Work(command=make_openmp(tools, size), little=3, unit="GB/s", each=3 * size / 1e9)


def make_python(tools: Tools, name: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of ranks.py if its Python has one of the modules; raises Missing."""
    code = "import sys; from importlib.util import find_spec; sys.exit(not any(map(find_spec, sys.argv[1:])))"
    if subprocess.run([tools.python, "-c", code, *modules]).returncode:
        raise Missing(f"{tools.python} has no {' or '.join(modules)}; --python PATH names another")
    return (tools.python, str(Path(__file__).with_name("ranks.py")), name)


WORKS: Mapping[str, Callable[[Tools], Work]] = {
    "regions": make_regions,
    "triad": make_triad,
    "matmul": lambda tools: Work(
        command=make_python(tools, "matmul", ("torch",)), little=20, unit="products/s"
    ),
    "server": lambda tools: Work(
        command=make_python(tools, "server", ("torch", "numpy")), little=100, unit="requests/s"
    ),
}


class Bench:
    """The state of one run of this benchmark: what was measured, and what is left out."""

    def __init__(self, works: Mapping[str, Work], arms: Mapping[str, Arm], where: Where) -> None:
        self.works = works
        self.arms = arms
        self.where = where
        self.places: dict[Key, Place] = {}
        self.times: dict[Key, list[float | None]] = {}
        self.tried: list[Timed] = []

    def warm_up(self, work: str, seconds: float) -> None:
        """Find out how often to work, by ompbind or the first other arm, and which arms are slow."""
        little = self.works[work].little
        times = 0
        for arm in sorted(self.arms, key=lambda arm: arm != "ompbind"):
            each_s = self._find_out((work, arm), little)
            if each_s and not times:  # a second look, as long as those that count
                each_s = self._find_out((work, arm), max(1, round(seconds / each_s))) or each_s
            if each_s:
                times = times or max(1, round(seconds / each_s))
                self.places[work, arm] = make_place(times, each_s * times / seconds)
                self.times[work, arm] = []

    def _find_out(self, key: Key, times: int) -> float | None:
        """Return the least seconds that working once takes; None where it failed."""
        taken = self._run(key, Task(times=times, samples=2))
        return min(one.seconds for one in taken) / times if taken else None

    def measure(self, key: Key) -> None:
        """Run an arm in one round, or note that it failed."""
        place = self.places.get(key)
        if place:
            less = place.times // place.less
            taken = self._run(key, Task(times=less, samples=place.samples)) or []
            self.tried.extend(taken)
            quiet = [one.seconds for one in taken if one.quiet]
            self.times[key].append(statistics.median(quiet) / less * place.times if quiet else None)

    def _run(self, key: Key, task: Task) -> list[Timed] | None:
        """Return the times; None where there are none, with a line, and the arm is left out from then on."""
        arm = self.arms[key[1]]
        env = {**self.where.env, **arm.env}
        try:
            return time_ranks([*arm.before, *self.works[key[0]].command], self.where.replace(env=env), task)
        except Hung:
            why = f"it did not end in {self.where.timeout_s:g} s"
        except Failed as failed:
            why = f"it ended with {failed}"
        self.places.pop(key, None)
        print(f"{key[0]}, {key[1]}: left out, {why}")
        return None


def measure_all(bench: Bench, options: argparse.Namespace) -> None:
    """Run everything, round by round."""
    for work in bench.works:
        bench.warm_up(work, options.seconds)
    for _ in range(options.rounds):
        for work in bench.works:
            for arm in random.sample(list(bench.arms), len(bench.arms)):
                bench.measure((work, arm))


def render_table(bench: Bench, work: str) -> Iterator[str]:
    """Yield the lines on one kind of work."""
    places = {arm: bench.places[work, arm] for arm in bench.arms if (work, arm) in bench.places}
    unit = bench.works[work].unit
    times = max((place.times for place in places.values()), default=0)
    yield f"\n{work}, {times} times in each of {RANKS} ranks"
    yield f"{'arm':9} {'median ms':>10} {'least ms':>9} {unit:>11}  {'ompbind is':>26} {'rounds':>7}"
    medians = {}
    for arm in places:
        found = [one for one in bench.times[work, arm] if one is not None]
        cells = ["-"] * 3
        if found:
            medians[arm] = statistics.median(found)
            rate = times * bench.works[work].each / medians[arm]
            cells = [
                f"{medians[arm] * 1e3:.1f}",
                f"{min(found) * 1e3:.1f}",
                f"{rate:,.{0 if rate > 99 else 1}f}",
            ]
        beside = render_ratio(bench.times.get((work, "ompbind"), ()), bench.times[work, arm])
        yield f"{arm:9} {cells[0]:>10} {cells[1]:>9} {cells[2]:>11}  {beside:>26} {len(found):7}"
    yield from render_slow(places)
    yield from render_best(medians)
    yield from render_unbound(bench.times, work)


def render_slow(places: Mapping[str, Place]) -> Iterator[str]:
    """Yield which arms did a part of the work."""
    for arm, place in places.items():
        if place.less > 1:
            yield f"{arm} is slow: it did 1 part in {place.less}, and its times are for all of the work."


def render_ratio(over: Iterable[float | None], under: Iterable[float | None]) -> str:
    """Return the median ratio within the rounds, and its interval if there are enough."""
    ratios = pair_ratios(tuple(over), tuple(under))
    if not ratios:
        return "-"
    low, high = median_interval(ratios)
    interval = f"({low:.3f} to {high:.3f})" if low else "(few rounds)"
    return f"{statistics.median(ratios):.3f} x {interval}"


def render_best(medians: Mapping[str, float]) -> Iterator[str]:
    """Yield which arm by hand has the least median."""
    by_hand = {arm: median for arm, median in medians.items() if arm in BY_HAND}
    if by_hand:
        yield f"Of those tuned by hand, {min(by_hand, key=by_hand.__getitem__)} is the fastest."


def render_unbound(times: Mapping[Key, list[float | None]], work: str) -> Iterator[str]:
    """Yield how much longer it takes where nothing is set."""
    ratios = pair_ratios(times.get((work, "default"), ()), times.get((work, "ompbind"), ()))
    if ratios:
        yield (
            f"Unbound takes {statistics.median(ratios):.2f} x as long "
            f"({min(ratios):.2f} to {max(ratios):.2f} in single rounds)."
        )


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.4, help="how long a rank's work is to take")
    parser.add_argument("--work", type=names(WORKS), default=tuple(WORKS), metavar="NAME,...")
    parser.add_argument("--only", type=names(MAKERS), default=USUAL, metavar="NAME,...")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="a Python that has torch")
    parser.add_argument("--torchrun", metavar="PATH", help="if it is not beside that Python")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    return parser.parse_args()


def make_works(wanted: Iterable[str], tools: Tools) -> dict[str, Work]:
    """Return the work that can be done here; tell of what cannot."""
    works = {}
    for name in wanted:
        try:
            works[name] = WORKS[name](tools)
        except Missing as why:
            print(f"{name}: left out, {why}")
    return works


def look_up(options: argparse.Namespace) -> Hands:
    """Return what is set by hand here, and tell it; raises Missing."""
    hands = make_hands(read_machine(), options.torchrun or str(Path(options.python).with_name("torchrun")))
    halves = " and ".join(",".join(map(str, half)) for half in hands.halves)
    print(f"By hand: OMP_NUM_THREADS={hands.threads}, CPUs {halves}")
    return hands


def main() -> int:
    """Measure everything; tell whether the promises are kept."""
    options = read_options()
    compile_modules()
    try:
        arms = make_arms(options.only, look_up(options))
    except Missing as why:
        print(f"Nothing is measured: {why}")
        return 0
    with tempfile.TemporaryDirectory(prefix="effect") as name:
        folder = Path(name)
        works = make_works(options.work, Tools(folder=folder, python=options.python))
        env = {**make_environment(folder, FOREIGN + POOLS), VARIABLE: str(folder / "meeting")}
        bench = Bench(works, arms, Where(env=env, said=str(folder / "said"), timeout_s=options.timeout))
        measure_all(bench, options)
    print("\n".join(line for work in works for line in render_table(bench, work)))
    loud = sum(not one.quiet for one in bench.tried)
    print(
        f"\nOf {len(bench.tried)} times {loud} were left out: others had more than {QUIET:.0%} of the CPUs."
    )
    left_out = any((work, "ompbind") not in bench.places for work in works) and "ompbind" in arms
    return max(tell_promises(judge_effect(bench.times)), int(left_out))


if __name__ == "__main__":
    sys.exit(main())
