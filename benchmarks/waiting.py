"""Measure how OpenMP threads should wait in ranks that share CPUs: by default, or passively.

    python benchmarks/waiting.py [--rounds N] [--seconds S] [--runtimes NAME,...] [--ranks N,...]

Ranks with two threads each work on the same two CPUs (ompbind run -s all), in many parallel regions with
serial work between them (waiting.c). It prints the mean time from region to region of the slowest rank, in
microseconds: the median over rounds, for each OpenMP runtime, number of ranks and kind of region. A kind is
named by the work of each thread in a region, and the serial work after it, in microseconds of CPU time.

Policies, which take turns within each round:

    default    the default of the runtime (--env KMP_BLOCKTIME=200 is the default, but counts as a policy)
    passive    --env OMP_WAIT_POLICY=passive, for all runtimes
    spincount  --env GOMP_SPINCOUNT=0, for libgomp only

A ratio is the time by default divided by the time of the policy, the median of the ratios within rounds. Work
of other processes on the two CPUs changes the result: use an idle machine.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.comparison import compile_openmp
from benchmarks.launchers import LAUNCHER_PREFIXES, Unavailable, make_environment
from benchmarks.rounds import compile_modules, make_name_parser, make_parser, parse_counts
from benchmarks.variants import THREAD_POOL_PREFIXES
from ompbind import read_machine

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
POLICIES = {
    "default": "KMP_BLOCKTIME=200", "passive": "OMP_WAIT_POLICY=passive", "spincount": "GOMP_SPINCOUNT=0",
}  # fmt: skip
RUNTIMES = ("gomp", "omp", "iomp")
REGIONS = ((20, 5), (20, 200), (500, 20))
STARTS_S = (1.0, 4.0)
"""Seconds from the start of ompbind until all ranks begin together; the second if the first is too short."""


def find_cpus() -> str:
    """Return two CPUs of different cores as a mask. Raises Unavailable."""
    machine = read_machine()
    cpus = [min(core & machine.allowed) for core in machine.table.cores if core & machine.allowed][:2]
    if len(cpus) < 2:
        raise Unavailable("two cores are needed")
    return ",".join(map(str, cpus))


def measure(command: list[str], region: tuple[int, int], options: argparse.Namespace) -> float:
    """Return the time from region to region of the slowest rank. Raises Unavailable."""
    steps = [round(part * options.steps) for part in region]
    for start_s in STARTS_S:
        words = [str(word) for word in (time.monotonic() + start_s, options.seconds, *steps)]
        done = subprocess.run([*command, *words], env=options.env, capture_output=True, text=True)
        if not done.returncode:
            return max(map(float, done.stdout.split()))
    raise Unavailable(done.stderr.strip())


def measure_cell(
    program: str, name: str, ranks: int, region: tuple[int, int], options: argparse.Namespace
) -> str:
    """Return the line of the table of one runtime, number of ranks and kind of region."""
    times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for _ in range(options.rounds):
        for policy, variable in POLICIES.items():
            command = [OMPBIND, "run", "-q", "-s", "all", "--share", f"-n{ranks}", f"-m{options.cpus}", "-t2"]
            command += [f"--preload={name}", f"--env={variable}", "--", program]
            times[policy].append(measure(command, region, options))
    cells = [f"{name:8}{ranks:5}  {'+'.join(map(str, region)):8}"]
    for policy, measured in times.items():
        ratio = statistics.median(old / new for old, new in zip(times["default"], measured, strict=True))
        cells.append(
            f"{statistics.median(measured):9.0f}" + ("" if policy == "default" else f" ({ratio:5.2f})")
        )
    return " ".join(cells)


def main() -> int:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="working time per measurement")
    parser.add_argument("--runtimes", type=make_name_parser(RUNTIMES), default=RUNTIMES, metavar="NAME,...")
    parser.add_argument("--ranks", type=parse_counts, default=(2, 4), metavar="N,...")
    options = parser.parse_args()
    compile_modules()
    print(f"{'runtime':8}{'ranks':>5}  {'region':8} {'default':>9} {'passive':>17} {'spincount':>17}")
    with tempfile.TemporaryDirectory(prefix="waiting") as directory:
        try:
            options.env = make_environment(Path(directory), (*LAUNCHER_PREFIXES, *THREAD_POOL_PREFIXES))
            options.cpus = find_cpus()
            program = compile_openmp("waiting.c", Path(directory), "-O2")
            done = subprocess.run([program], capture_output=True, text=True, check=True)
            options.steps = float(done.stdout)  # in a microsecond
            for name in options.runtimes:
                for ranks in options.ranks:
                    for region in REGIONS:
                        print(measure_cell(program, name, ranks, region, options), flush=True)
        except Unavailable as why:
            print(f"Not measured: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
