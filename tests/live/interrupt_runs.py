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
from ompbind.bench.plan_candidates import make_starts
from ompbind.bench.records import Metric
from ompbind.bench.run_candidate import MeasuringSettings, catch_interrupts, run_candidate
from ompbind.bench.verb import make_bench_settings
from ompbind.cli.main import load_verb
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from tests.live.conftest import RUNTIME_DIR

TRACED = (os.path.dirname(ompbind.bench.__file__), tempfile.__file__, sys.modules["contextlib"].__file__)


def make_settings(**changes):
    """Settings of runs of the session with this process's pid in its name."""
    return MeasuringSettings(run_id=f"bench-{os.getpid()}", metrics=(Metric(),), **changes)


def make_start(*argv, ranks=1, bound=True):
    """A candidate that runs a command: ompbind's default plan, or without ompbind."""
    words = ["-n", str(ranks), "--run-id", make_settings().run_id, "--", *argv]
    settings = make_bench_settings(load_verb("bench").make_context("bench", words))
    starts, _ = make_starts(settings, read_machine(), make_plan)
    return starts[bound]


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
