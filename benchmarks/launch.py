"""Measure the time to start n copies of /bin/true: ompbind, other launchers, and a loop in C.

    python benchmarks/launch.py [--rounds N] [--ranks 1,2,16,64,256] [--only NAME,...]

Each round runs every launcher once for each number of copies. The order rotates, so that disturbances affect
all launchers. Ratios are medians of the ratios within a round. A launcher that needs longer than SLOW_S runs
only in every third round. The launchers (NAME):

    floor      posix_spawn.c in this directory: a loop over posix_spawn, then wait
    taskset, numactl, hwloc    one bash that starts n commands with taskset, numactl or hwloc-bind, on the
               allowed CPUs in turn, and waits
    hydra      MPICH's mpiexec.hydra -bind-to core
    openmpi    Open MPI's mpirun --bind-to core, with options for many ranks on few cores
    srun       Slurm's srun, in the cluster that answers, or in a one-node cluster that this starts (as root)
    torchrun   torchrun --standalone --no-python, of this environment or of --torchrun PATH
    ompbind    ompbind run -q --share

Columns:

    x floor     the launcher's wall time divided by the floor's
    ompbind is  ompbind's wall time divided by the launcher's
    CPU ms      user and system time of the launcher and all processes that it waited for. For srun this is
                only the client: its daemons start the tasks
    peak MB     peak resident memory of the largest of these processes, from one additional run. A small
                program starts this run, because a process inherits the peak of its parent

All run in an empty directory. Wall time is from before the start of the launcher until it exits. A launcher
that is not installed is left out with a line. A run that does not finish in --timeout seconds is killed;
after MAX_HANGS such runs the launcher is left out for this number of copies. The exit code is 1 if a measured
promise is missed.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.launchers import (
    COPIED,
    MAKERS,
    Make,
    Setting,
    compile_floor,
    is_slurm_running,
    make_environment,
    make_launchers,
)
from benchmarks.promises import (
    FEW,
    MANY,
    WallTimes,
    further_rank_times,
    make_launch_promises,
    median_ratio,
    print_promises,
)
from benchmarks.rounds import compile_modules, make_parser, parse_counts
from benchmarks.timing import Failed, RunSettings, Sample, TimedOut, time_once
from ompbind.record import Record

SLOW_S = 0.7
MAX_HANGS = 3

Key = tuple[str, int]
"""A launcher, and a number of copies."""


class Launch(Record):
    """The command of a key. It runs in every `every`th round; `peak` is its peak memory in bytes or None."""

    command: list[str]
    every: int
    peak: int | None


class Bench:
    """Results of one run of this benchmark.

    `meter` is the program that measures peak memory, or None. `samples` has a sample per round and key, None
    if the launcher did not run. `hangs` counts killed runs; `failed` are launchers that are left out.
    """

    def __init__(self, settings: RunSettings, meter: str | None) -> None:
        self.settings = settings
        self.meter = meter
        self.launches: dict[Key, Launch] = {}
        self.samples: dict[Key, list[Sample | None]] = {}
        self.hangs: dict[Key, int] = {}
        self.failed: set[str] = set()

    def warm_up(self, key: Key, command: list[str]) -> None:
        """Run a launcher once below the meter, and find out whether it is slow."""
        path = Path(f"{self.settings.stderr_path}.peak")
        sample = self._run(key, [self.meter, "-m", str(path), "1", *command] if self.meter else command)
        slow = sample is not None and sample.wall_s > SLOW_S
        peak = int(path.read_text()) * 1024 if sample and self.meter else None
        self.launches[key] = Launch(command=command, every=3 if slow else 1, peak=peak)
        self.samples[key] = []

    def measure(self, key: Key, number: int) -> None:
        """Run a launcher in one round, and record its sample, or None if it is not due."""
        launch = self.launches[key]
        due = number % launch.every == 0 and self.hangs.get(key, 0) < MAX_HANGS and key[0] not in self.failed
        self.samples[key].append(self._run(key, launch.command) if due else None)

    def _run(self, key: Key, command: list[str]) -> Sample | None:
        try:
            return time_once(command, self.settings)
        except TimedOut:
            self.hangs[key] = self.hangs.get(key, 0) + 1
        except Failed as why:
            self.failed.add(key[0])
            print(f"{key[0]}: left out, with {key[1]} copies it exits with {why}")
        return None

    def walls(self) -> WallTimes:
        """Return the wall times of all samples."""
        return {
            key: [sample and sample.wall_s for sample in samples] for key, samples in self.samples.items()
        }


def measure_all(bench: Bench, launchers: dict[str, Make], options: argparse.Namespace) -> None:
    """Run all rounds."""
    for ranks in options.ranks:
        for name, make in launchers.items():
            if name not in bench.failed:
                bench.warm_up((name, ranks), make(ranks))
    for number in range(options.rounds):
        for ranks in options.ranks:
            keys = [key for key in bench.launches if key[1] == ranks]
            turn = number % len(keys)
            for key in keys[turn:] + keys[:turn]:
                bench.measure(key, number)


HEAD = f"{'launcher':9} {'median ms':>10} {'least ms':>10} {'x floor':>8} {'ompbind is':>11} {'CPU ms':>9}"


def render_table(bench: Bench, ranks: int) -> Iterator[str]:
    """Yield the lines of the table of one number of copies."""
    yield f"\n{ranks} x {COPIED}"
    yield f"{HEAD} {'peak MB':>8} {'rounds':>6}"
    walls = bench.walls()
    for (name, copies), launch in bench.launches.items():
        samples = [sample for sample in bench.samples[name, copies] if sample]
        if copies != ranks or not samples:
            continue
        times = [sample.wall_s * 1e3 for sample in samples]
        cpu_ms = statistics.median(sample.cpu_s for sample in samples) * 1e3
        peak = f"{launch.peak / 1e6:.1f}" if launch.peak else "-"
        ratios = [
            render_ratio(walls, (name, ranks), ("floor", ranks)),
            render_ratio(walls, ("ompbind", ranks), (name, ranks)),
        ]
        yield (
            f"{name:9} {statistics.median(times):10.1f} {min(times):10.1f} {ratios[0]:>8} {ratios[1]:>11} "
            f"{cpu_ms:9.1f} {peak:>8} {len(samples):6}"
        )
    for (name, copies), hangs in bench.hangs.items():
        if copies == ranks:
            left_out = ", then it was left out" if hangs >= MAX_HANGS else ""
            yield f"{name}: {hangs} runs hung and were killed after {bench.settings.timeout_s:g} s{left_out}"


def render_ratio(walls: WallTimes, over: Key, under: Key) -> str:
    """Return the median ratio of wall times within the rounds."""
    ratio = median_ratio(walls.get(over, ()), walls.get(under, ()))
    return "-" if ratio is None else f"{ratio:.{2 if ratio < 100 else 0}f} x"


def render_further_ranks(walls: WallTimes) -> Iterator[str]:
    """Yield the time of each rank after the first, for launchers measured with FEW and with MANY ranks."""
    ends = ({name for name, ranks in walls if ranks == end} for end in (FEW, MANY))
    names = set.intersection(*ends)
    if names:
        yield f"\nEach further rank, ({MANY} ranks - {FEW} rank) / {MANY - FEW}"
    for name in (launcher for launcher in MAKERS if launcher in names):
        few, many = ([wall for wall in walls[name, end] if wall is not None] for end in (FEW, MANY))
        if few and many:
            each_us = (statistics.median(many) - statistics.median(few)) / (MANY - FEW) * 1e6
            ratio = median_ratio(further_rank_times(walls, name), further_rank_times(walls, "floor"))
            yield f"{name:9} {each_us:8.0f} us  {'-' if ratio is None else f'{ratio:.2f} x floor'}"


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--ranks", type=parse_counts, default=(1, 2, 16, 64, 256), metavar="N,...")
    parser.add_argument("--only", metavar="NAME,...", help="measure only these launchers")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--torchrun", metavar="PATH")
    parser.add_argument(
        "--unoptimized", action="store_true", help="this Python was built without optimization, as pyenv does"
    )
    options = parser.parse_args()
    options.only = tuple(options.only.split(",")) if options.only else tuple(MAKERS)
    unknown = sorted(set(options.only) - MAKERS.keys())
    if unknown:
        parser.error(f"unknown launcher {', '.join(unknown)}; known are {', '.join(MAKERS)}")
    return options


def start_slurm(stack: ExitStack, env: dict[str, str]) -> dict[str, str]:
    """Start a one-node Slurm if no controller answers and this is possible; return srun's environment."""
    from tests.slurm import PROGRAMS, one_node  # it needs pytest, which users have not installed

    if os.geteuid() or not all(map(shutil.which, PROGRAMS)) or is_slurm_running(env):
        return env
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm")))
    return stack.enter_context(one_node(directory, env))


def main() -> int:
    """Run all measurements; return 1 if a promise is missed or ompbind failed."""
    options = read_options()
    compile_modules()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launch")))
        stack.enter_context(chdir(stack.enter_context(tempfile.TemporaryDirectory(prefix="empty"))))
        env = make_environment(directory)
        if "srun" in options.only:
            env = start_slurm(stack, env)
        floor = compile_floor(directory)
        launchers = make_launchers(options.only, Setting(env=env, floor=floor, torchrun=options.torchrun))
        bench = Bench(
            RunSettings(env=env, stderr_path=str(directory / "stderr"), timeout_s=options.timeout), floor
        )
        measure_all(bench, launchers, options)
    walls = bench.walls()
    print("\n".join([*(line for ranks in options.ranks for line in render_table(bench, ranks)),
                     *render_further_ranks(walls)]))  # fmt: skip
    promises = make_launch_promises(walls, optimized=not options.unoptimized)
    return max(print_promises(promises), int("ompbind" in bench.failed))


if __name__ == "__main__":
    sys.exit(main())
