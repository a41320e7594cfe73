"""What starting n copies of /bin/true takes: ompbind beside other launchers, and beside the least possible.

    python benchmarks/launch.py [--rounds N] [--ranks 1,2,16,64,256] [--only NAME,...]

Every round runs every launcher once for every number of copies, in an order that rotates, so that what else
goes on meets all of them; ratios are medians of the ratios within a round. A launcher that needs longer than
SLOW_S is run in every third round. The launchers (NAME):

    floor      posix_spawn.c beside this file: a loop over posix_spawn, then wait
    taskset, numactl, hwloc    one bash that starts n commands behind taskset, numactl or hwloc-bind, on the
               allowed CPUs in turn, and waits
    hydra      MPICH's mpiexec.hydra -bind-to core
    openmpi    Open MPI's mpirun --bind-to core, with what it needs to put many ranks on few cores
    srun       Slurm's, in the cluster that answers, or in one of one node that is started here (as root)
    torchrun   torchrun --standalone --no-python, of this environment or by --torchrun PATH
    ompbind    ompbind run -q --share

"x floor" is a launcher's wall time over the floor's, "ompbind is" ompbind's over the launcher's. Wall time is
from before the launcher is started until it has ended. CPU time is user and system time of the
launcher and all that it waited for: of srun that is the client, its daemons start the tasks. Peak memory is
the most that one process among the same had resident, in one further run, which is started by a small
program, since a process counts the peak of the one that starts it. What is missing is left out with a line;
a run that does not end in --timeout seconds is killed, counted as hung, and after HANGS of them the launcher
is left out at that number of copies. The exit code is 1 if a promise that could be measured is missed.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.launchers import (
    COPIED,
    MAKERS,
    Make,
    Setting,
    compile_floor,
    make_environment,
    make_launchers,
    slurm_answers,
)
from benchmarks.promises import FEW, MANY, Walls, each_further, judge_launch, median_ratio, tell_promises
from benchmarks.rounds import compile_modules, counts, make_parser
from benchmarks.timing import Failed, Hung, Sample, Where, time_once
from ompbind.record import Record
from tests.slurm import PROGRAMS, one_node

SLOW_S = 0.7
HANGS = 3

Key = tuple[str, int]
"""A launcher, and a number of copies."""


class Place(Record):
    """What is run for a key: the command, in every how manyth round, its peak in bytes or None."""

    command: list[str]
    every: int
    peak: int | None


class Bench:
    """The state of one run of this benchmark: what was measured, and what hung how often.

    `meter` is the program that measures peak memory, or None; `failed` are launchers that are left out.
    """

    def __init__(self, where: Where, meter: str | None) -> None:
        self.where = where
        self.meter = meter
        self.places: dict[Key, Place] = {}
        self.samples: dict[Key, list[Sample | None]] = {}
        self.hangs: dict[Key, int] = {}
        self.failed: set[str] = set()

    def warm_up(self, key: Key, command: list[str]) -> None:
        """Run a launcher once below the meter, and see whether it is a slow one."""
        path = Path(f"{self.where.said}.peak")
        sample = self._run(key, [self.meter, "-m", str(path), "1", *command] if self.meter else command)
        slow = sample is not None and sample.wall_s > SLOW_S
        peak = int(path.read_text()) * 1024 if sample and self.meter else None
        self.places[key] = Place(command=command, every=3 if slow else 1, peak=peak)
        self.samples[key] = []

    def measure(self, key: Key, number: int) -> None:
        """Run a launcher in one round, or note that it was not."""
        place = self.places[key]
        due = number % place.every == 0 and self.hangs.get(key, 0) < HANGS and key[0] not in self.failed
        self.samples[key].append(self._run(key, place.command) if due else None)

    def _run(self, key: Key, command: list[str]) -> Sample | None:
        try:
            return time_once(command, self.where)
        except Hung:
            self.hangs[key] = self.hangs.get(key, 0) + 1
        except Failed as why:
            self.failed.add(key[0])
            print(f"{key[0]}: left out, {key[1]} copies end with {why}")
        return None

    def walls(self) -> Walls:
        """Return wall times alone."""
        return {key: [one and one.wall_s for one in samples] for key, samples in self.samples.items()}


def measure_all(bench: Bench, launchers: dict[str, Make], options: argparse.Namespace) -> None:
    """Run everything, round by round."""
    for ranks in options.ranks:
        for name, make in launchers.items():
            if name not in bench.failed:
                bench.warm_up((name, ranks), make(ranks))
    for number in range(options.rounds):
        for ranks in options.ranks:
            keys = [key for key in bench.places if key[1] == ranks]
            turn = number % len(keys)
            for key in keys[turn:] + keys[:turn]:
                bench.measure(key, number)


HEAD = f"{'launcher':9} {'median ms':>10} {'least ms':>10} {'x floor':>8} {'ompbind is':>11} {'CPU ms':>9}"


def render_table(bench: Bench, ranks: int) -> Iterator[str]:
    """Yield the lines on one number of copies."""
    yield f"\n{ranks} x {COPIED}"
    yield f"{HEAD} {'peak MB':>8} {'rounds':>6}"
    walls = bench.walls()
    for (name, copies), place in bench.places.items():
        samples = [one for one in bench.samples[name, copies] if one]
        if copies != ranks or not samples:
            continue
        times = [one.wall_s * 1e3 for one in samples]
        cpu_ms = statistics.median(one.cpu_s for one in samples) * 1e3
        peak = f"{place.peak / 1e6:.1f}" if place.peak else "-"
        beside = [
            render_ratio(walls, (name, ranks), ("floor", ranks)),
            render_ratio(walls, ("ompbind", ranks), (name, ranks)),
        ]
        yield (
            f"{name:9} {statistics.median(times):10.1f} {min(times):10.1f} {beside[0]:>8} {beside[1]:>11} "
            f"{cpu_ms:9.1f} {peak:>8} {len(samples):6}"
        )
    for (name, copies), hangs in bench.hangs.items():
        if copies == ranks:
            left_out = ", then it was left out" if hangs >= HANGS else ""
            yield f"{name}: {hangs} runs hung and were killed after {bench.where.timeout_s:g} s{left_out}"


def render_ratio(walls: Walls, over: Key, under: Key) -> str:
    """Return the median ratio of wall times within the rounds."""
    ratio = median_ratio(walls.get(over, ()), walls.get(under, ()))
    return "-" if ratio is None else f"{ratio:.{2 if ratio < 100 else 0}f} x"


def render_further(walls: Walls) -> Iterator[str]:
    """Yield what each rank beyond the first takes, for launchers that were measured at both ends."""
    ends = ({name for name, ranks in walls if ranks == end} for end in (FEW, MANY))
    names = set.intersection(*ends)
    if names:
        yield f"\nEach further rank, ({MANY} ranks - {FEW} rank) / {MANY - FEW}"
    for name in (one for one in MAKERS if one in names):
        few, many = ([one for one in walls[name, end] if one is not None] for end in (FEW, MANY))
        if few and many:
            each_us = (statistics.median(many) - statistics.median(few)) / (MANY - FEW) * 1e6
            ratio = median_ratio(each_further(walls, name), each_further(walls, "floor"))
            yield f"{name:9} {each_us:8.0f} us  {'-' if ratio is None else f'{ratio:.2f} x floor'}"


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--ranks", type=counts, default=(1, 2, 16, 64, 256), metavar="N,...")
    parser.add_argument("--only", metavar="NAME,...", help="measure only these launchers")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--torchrun", metavar="PATH")
    options = parser.parse_args()
    options.only = tuple(options.only.split(",")) if options.only else tuple(MAKERS)
    unknown = sorted(set(options.only) - MAKERS.keys())
    if unknown:
        parser.error(f"no launcher is called {', '.join(unknown)}: there are {', '.join(MAKERS)}")
    return options


def start_slurm(stack: ExitStack, env: dict[str, str]) -> dict[str, str]:
    """Start a Slurm of one node if none answers and that is possible; return srun's environment."""
    if os.geteuid() or not all(map(shutil.which, PROGRAMS)) or slurm_answers(env):
        return env
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm")))
    return stack.enter_context(one_node(folder, env))


def main() -> int:
    """Measure everything; tell whether the promises are kept."""
    options = read_options()
    compile_modules()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launch")))
        env = make_environment(folder)
        if "srun" in options.only:
            env = start_slurm(stack, env)
        floor = compile_floor(folder)
        launchers = make_launchers(options.only, Setting(env=env, floor=floor, torchrun=options.torchrun))
        bench = Bench(Where(env=env, said=str(folder / "said"), timeout_s=options.timeout), floor)
        measure_all(bench, launchers, options)
    walls = bench.walls()
    print("\n".join([*(line for ranks in options.ranks for line in render_table(bench, ranks)),
                     *render_further(walls)]))  # fmt: skip
    return max(tell_promises(judge_launch(walls)), int("ompbind" in bench.failed))


if __name__ == "__main__":
    sys.exit(main())
