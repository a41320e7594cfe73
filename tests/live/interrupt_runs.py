"""Run a candidate of `ompbind bench` again and again, and interrupt each run at a random instruction.

`python -m tests.live.interrupt_runs DIRECTORY ROUNDS` prints what a run has left behind: descriptors,
children, files in DIRECTORY, claims, signal mask. A signal that is blocked at its instruction comes later.
`make_start` and `make_settings` make candidates for other tests too.
"""

import os
import random
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import ompbind.bench
from ompbind.bench.records import Candidate, Kind, Metric
from ompbind.bench.run_candidate import CandidateStart, MeasuringSettings, catch_interrupts, run_candidate
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_command import RankCommand, make_commands
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from tests.live.conftest import RUNTIME_DIR, clean_environment

TRACED = (os.path.dirname(ompbind.bench.__file__), tempfile.__file__, sys.modules["contextlib"].__file__)


def make_settings(**changes):
    """Settings of runs of the session with this process's pid in its name."""
    return MeasuringSettings(run_id=f"bench-{os.getpid()}", metrics=(Metric(),), **changes)


def make_start(*argv, ranks=1, bound=True):
    """A candidate that runs a command: ompbind's default plan, or without ompbind."""
    spec = RunSpec(argv=argv, run_id=make_settings().run_id, base=clean_environment())
    plan = make_plan(read_machine(), Request(ranks=ranks, sharing=Sharing.SHARE), ()) if bound else None
    unbound = [RankCommand(rank=rank, argv=argv, env=spec.base, cpus=None) for rank in range(ranks)]
    kind = Kind.DEFAULT if bound else Kind.UNBOUND
    candidate = Candidate(name=kind, kind=kind, ranks=ranks)
    commands = make_commands(plan, spec) if plan else unbound
    return CandidateStart(candidate=candidate, plan=plan, spec=spec, commands=commands)


def run_once(start, at):
    """Run a candidate; return the number of instructions, and the line of the one with the number `at`."""
    seen = SimpleNamespace(count=0, where="")

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes = True
        seen.count += 1
        if seen.count == at:
            seen.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            os.kill(os.getpid(), signal.SIGINT)
        return trace

    with suppress(KeyboardInterrupt), catch_interrupts():
        sys.settrace(trace)
        try:
            run_candidate(start, make_settings(), 0, 1)
        finally:
            sys.settrace(None)
    return seen.count, seen.where


def find_left(directory):
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    files = os.listdir("/proc/self/fd"), os.listdir(directory), os.listdir(os.environ[RUNTIME_DIR])
    return len(files[0]), children, files[1:], signal.pthread_sigmask(signal.SIG_BLOCK, ())


if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    start = make_start("true")
    run_once(start, None)  # caches are filled
    total, _ = run_once(start, None)
    before = find_left(tempfile.tempdir)
    for _ in range(int(sys.argv[2])):
        _, where = run_once(start, random.randrange(total))
        if find_left(tempfile.tempdir) != before:
            sys.exit(print(where, before, find_left(tempfile.tempdir)))
