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
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.barrier import SOCKET_VARIABLE
from benchmarks.comparison import (
    Bench,
    Key,
    Work,
    make_openmp,
    make_regions,
    measure_all,
    render_dropped,
    render_table,
)
from benchmarks.launchers import LAUNCHER_PREFIXES, Unavailable, make_environment
from benchmarks.promises import HAND_TUNED, make_effect_promises, pair_ratios, print_promises
from benchmarks.rounds import compile_modules, make_name_parser, make_parser
from benchmarks.timing import RunSettings
from benchmarks.variants import MAKERS, THREAD_POOL_PREFIXES, HandTuning, make_hand_tuning, make_variants
from ompbind import read_machine
from ompbind.record import Record

DEFAULT_VARIANTS = tuple(name for name in MAKERS if name != "places")
LARGE_BYTES = (32 << 20, 128 << 20)
"""Minimum and maximum size of each of the triad's three arrays; in between, twice the last cache."""


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


def make_triad(tools: Tools) -> Work:
    """Return work in arrays that are larger than the last cache."""
    least, most = LARGE_BYTES
    size = max(least, min(most, 2 * read_last_cache()))
    return Work(command=make_openmp(tools.directory, size), probe_times=3, unit="GB/s", amount=3 * size / 1e9)


def make_python(tools: Tools, name: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of ranks.py. Raises Unavailable if its Python has none of the modules."""
    code = "import sys; from importlib.util import find_spec; sys.exit(not any(map(find_spec, sys.argv[1:])))"
    if subprocess.run([tools.python, "-c", code, *modules]).returncode:
        raise Unavailable(f"{tools.python} has no {' or '.join(modules)}; give another with --python PATH")
    return (tools.python, str(Path(__file__).with_name("ranks.py")), name)


WORKS: Mapping[str, Callable[[Tools], Work]] = {
    "regions": lambda tools: make_regions(tools.directory),
    "triad": make_triad,
    "matmul": lambda tools: Work(
        command=make_python(tools, "matmul", ("torch",)), probe_times=20, unit="products/s"
    ),
    "server": lambda tools: Work(
        command=make_python(tools, "server", ("torch", "numpy")), probe_times=100, unit="requests/s"
    ),
}


def render_comparison(bench: Bench, work: str) -> Iterator[str]:
    """Yield the lines of the table of one kind of work, and what follows from them."""
    yield from render_table(bench, work)
    yield from render_best(bench.times, work)
    yield from render_unbound(bench.times, work)


def render_best(times: Mapping[Key, list[float | None]], work: str) -> Iterator[str]:
    """Yield which variant tuned by hand has the lowest median."""
    measured = {name: [time_s for time_s in times.get((work, name), ()) if time_s] for name in HAND_TUNED}
    hand_tuned = {name: statistics.median(seconds) for name, seconds in measured.items() if seconds}
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
    print("\n".join(line for work in works for line in render_comparison(bench, work)))
    print(render_dropped(bench))
    is_missing = any((work, "ompbind") not in bench.repetitions for work in works) and "ompbind" in variants
    return max(print_promises(make_effect_promises(bench.times)), int(is_missing))


if __name__ == "__main__":
    sys.exit(main())
