"""Measure what --hold costs: calls that bind, other system calls, OpenMP threads, an idle run, and starts.

    python benchmarks/hold.py [--rounds N] [--seconds S]

Each round measures all variants once, in rotating order: without --hold, with --hold, with --hold=fixed. The
printed numbers are medians over the rounds.

    inside, outside   a rank of one CPU asks for this CPU, or for another one (os.sched_setaffinity): the
                      median of 2,000 calls
    getppid           another system call: the median of 50 means of 1,000 calls
    region            the first parallel region of libgomp with 64 threads, in a rank with --bind thread
    start             `run` of 1 and of 64 ranks of `true`

Last, one rank sleeps, and S seconds of ompbind's own processes are read from /proc, with and without --hold:
context switches and ticks must be 0. The exit code is 1 if a promise is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import make_hold_promises, print_promises
from benchmarks.quiet import OMPBIND, measure, render_usage
from benchmarks.rounds import compile_modules, make_parser
from benchmarks.startup import wall_s

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "without": (),
    "--hold": ("--hold",),
    "--hold=fixed": ("--hold=fixed",),
}

CALLS = """
import json, os, sys
from statistics import median
from time import perf_counter_ns

def time_us(call, *values, repeat=1):
    begin = perf_counter_ns()
    for _ in range(repeat):
        call(*values)
    return (perf_counter_ns() - begin) / repeat / 1000

inside, outside = ({int(cpu)} for cpu in sys.argv[1:])
print(json.dumps({
    "inside": median(time_us(os.sched_setaffinity, 0, inside) for _ in range(2000)),
    "outside": median(time_us(os.sched_setaffinity, 0, outside) for _ in range(2000)),
    "getppid": median(time_us(os.getppid, repeat=1000) for _ in range(50)),
}))
"""

REGION = """
import ctypes, json
from time import perf_counter

library, body = ctypes.CDLL("libgomp.so.1"), ctypes.CDLL(None).getppid  # a body that does nothing
begin = perf_counter()
library.GOMP_parallel(body, None, 64, 0)
print(json.dumps({"region": (perf_counter() - begin) * 1e6}))
"""

UNITS = {"inside": "us", "outside": "us", "getppid": "us", "region": "us"}


def run_rank(options: tuple[str, ...], code: str, *arguments: str) -> dict[str, float]:
    """Run a Python program as one rank; return what it prints, numbers by name."""
    command = (OMPBIND, "run", "-q", "--share", *options, "--", sys.executable, "-I", "-S", "-c", code)
    done = subprocess.run((*command, *arguments), check=True, stdout=subprocess.PIPE)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def measure_round(name: str, cpus: tuple[int, ...], directory: Path) -> dict[str, float]:
    """Measure a variant once; returns microseconds by name."""
    first, second = map(str, cpus)
    numbers = run_rank(("-m", first, *VARIANTS[name]), CALLS, first, second)
    if name != "--hold=fixed":  # with it, no thread can be bound
        if find_library("gomp"):
            numbers |= run_rank(("-m", f"{first},{second}", "--bind", "thread", *VARIANTS[name]), REGION)
        for ranks in (1, 64):
            command = (OMPBIND, "run", "-q", "--share", "-s", "all", *VARIANTS[name])
            numbers[f"start, {ranks}"] = 1e6 * wall_s((*command, "-n", str(ranks), "--", "true"), directory)
    return numbers


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    compile_modules()
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
    if len(cpus) < 2:
        print("Nothing is measured: there is only one CPU, and calls for another one need two.")
        return 0
    times: dict[tuple[str, str], list[float | None]] = {}
    with tempfile.TemporaryDirectory(prefix="hold") as name:
        directory = Path(name)
        os.environ["OMPBIND_RUNTIME_DIR"] = name
        for number in range(options.rounds):
            turn = number % len(VARIANTS)
            for variant in (*list(VARIANTS)[turn:], *list(VARIANTS)[:turn]):
                for what, time_us in measure_round(variant, cpus, directory).items():
                    times.setdefault((what, variant), []).append(time_us)
        usages = {each: measure(1, options.seconds, name, *VARIANTS[each]) for each in ("without", "--hold")}
    for (what, variant), numbers in sorted(times.items(), key=lambda item: [*dict(times)].index(item[0])):
        print(f"{what:12} {variant:13} {median(number for number in numbers if number):12.2f} us")
    for variant, usage in usages.items():
        print(f"{variant:12} {render_usage(usage)}")
    return print_promises(make_hold_promises(times, usages))


if __name__ == "__main__":
    sys.exit(main())
