"""Measure what `ompbind bench` adds to each run of a candidate, compared with `ompbind run`.

    python benchmarks/bench_overhead.py [--rounds N] [--runs N]

Each round starts one rank of /bin/true once by each of these, in rotating order:

    posix_spawn    a call of posix_spawn in this process, and the wait for the exit
    supervisor     the two processes of `ompbind run`, forked from this process
    ompbind run    a new process of `ompbind run -q --share`
    bench          a run of a session of bench, which forks the same two processes, and makes a record
    bench unbound  the same for the command without ompbind

This process has loaded the modules of the command line, as bench has. Wall time ends when the process has
exited, or when the record is there. Overhead is the wall time of bench minus that of `ompbind run`, within a
round; at most 2 ms. The row of the supervisor shows how much of the time of bench is for the record.

Then --runs runs of a session follow, whose records are kept, as bench keeps them. The memory of this process
may grow by at most 30 MB per 1,000 runs. No descriptor, child or file may be left. The exit code is 1 if a
promise is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import ompbind.cli.main  # noqa: F401 - bench has loaded it too
from benchmarks.promises import BenchUsage, make_bench_promises, print_promises
from benchmarks.rounds import compile_modules, make_parser
from ompbind.bench.records import Candidate, Kind, Metric, Run, Status
from ompbind.bench.run_candidate import CandidateStart, run_candidate
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_command import RankCommand, make_commands
from ompbind.execution.process_pair import become_supervisor
from ompbind.execution.run_options import Reporter, RunOptions
from ompbind.execution.spawn import find_starts
from ompbind.execution.supervisor import supervise as run_supervisor
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
COMMAND = ("/bin/true",)
OPTIONS = RunOptions(run_id=f"overhead-{os.getpid()}", stdin_first=False)


def make_default() -> CandidateStart:
    """Return the candidate with ompbind's default plan for one rank."""
    spec = RunSpec(argv=COMMAND, run_id=OPTIONS.run_id, base=dict(os.environ))
    plan = make_plan(read_machine(), Request(sharing=Sharing.SHARE), ())
    candidate = Candidate(name="default", kind=Kind.DEFAULT, ranks=1)
    return CandidateStart(candidate=candidate, plan=plan, commands=make_commands(plan, spec))


def make_unbound() -> CandidateStart:
    """Return the candidate without ompbind."""
    candidate = Candidate(name="unbound", kind=Kind.UNBOUND, ranks=1)
    commands = (RankCommand(rank=0, argv=COMMAND, env=dict(os.environ), cpus=None),)
    return CandidateStart(candidate=candidate, plan=None, commands=commands)


def run_once(start: CandidateStart, number: int = 0) -> Run:
    """Run a candidate, which must succeed."""
    run = run_candidate(OPTIONS, [Metric()], start, number, 1)
    if run.status is not Status.OK:
        raise SystemExit(f"a run has failed: {run.reason}")
    return run


def spawn() -> None:
    """Start the command, and wait until it exits."""
    os.waitpid(os.posix_spawn(COMMAND[0], COMMAND, os.environ), 0)


def supervise(start: CandidateStart) -> None:
    """Run a candidate by the foreground process and the supervisor of `run`, without anything else."""
    pid = os.fork()
    if pid == 0:
        try:
            foreground = become_supervisor(lambda: None, 1.0)
            run_supervisor(find_starts(start.commands), OPTIONS, foreground, Reporter())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def measure_times(rounds: int) -> dict[str, list[float]]:
    """Return the wall times of each way to start the command, a time per round, in seconds."""
    default, unbound = make_default(), make_unbound()
    ways: dict[str, Callable[[], object]] = {
        "posix_spawn": spawn,
        "supervisor": lambda: supervise(default),
        "ompbind run": lambda: subprocess.run([OMPBIND, "run", "-q", "--share", "--", *COMMAND], check=True),
        "bench": lambda: run_once(default),
        "bench unbound": lambda: run_once(unbound),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-1, rounds):  # the first round is a warm-up
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            begin = time.perf_counter()
            ways[name]()
            if number >= 0:
                times[name].append(time.perf_counter() - begin)
    return times


def read_resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def count_left(directory: str) -> int:
    """Return how many descriptors and children this process has, and how many files are in a directory."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(os.listdir("/proc/self/fd")) + len(children) + len(os.listdir(directory))


def measure_session(runs: int, directory: str) -> BenchUsage:
    """Run a candidate many times and keep the records; return how the memory has grown, and what is left."""
    start = make_default()
    records = [run_once(start, number) for number in range(10)]  # caches are filled
    memory, left = read_resident_bytes(), count_left(directory)
    records += [run_once(start, number) for number in range(10, 10 + runs)]
    grown = read_resident_bytes() - memory
    print(f"\n{len(records) - 10} runs: resident memory {memory / 1e6:.1f} MB, grown by {grown / 1e6:.2f} MB")
    return BenchUsage(runs=runs, grown=max(0, grown), left=count_left(directory) - left)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--runs", type=int, default=1000)
    return parser.parse_args()


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    options = read_options()
    compile_modules()
    with tempfile.TemporaryDirectory() as claims, tempfile.TemporaryDirectory() as directory:
        os.environ["OMPBIND_RUNTIME_DIR"] = claims
        tempfile.tempdir = directory
        times = measure_times(options.rounds)
        for name, walls in times.items():
            first, median = min(walls) * 1000, statistics.median(walls) * 1000
            print(f"{name:14} {median:8.2f} ms   minimum {first:8.2f} ms")
        usage = measure_session(options.runs, directory)
    return print_promises(make_bench_promises(times, usage))


if __name__ == "__main__":
    sys.exit(main())
