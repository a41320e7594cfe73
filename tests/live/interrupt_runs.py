"""Run a candidate of `ompbind bench` again and again, and interrupt each run at a random instruction.

    python -m tests.live.interrupt_runs DIRECTORY ROUNDS

This process sends SIGINT to itself before an instruction of bench, so a signal that is blocked there comes
later. Prints what each run has left behind: descriptors, children, files in DIRECTORY, claims, signal mask.
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
from ompbind.bench.interrupts import catch_interrupts
from ompbind.bench.run_candidate import run_candidate
from tests.live.candidates import SLOT, make_settings, make_start
from tests.live.conftest import RUNTIME_DIR

TRACED = (os.path.dirname(ompbind.bench.__file__), tempfile.__file__, sys.modules["contextlib"].__file__)


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
            run_candidate(start, make_settings(), SLOT, verify=False)
        finally:
            sys.settrace(None)
    return seen.count, seen.where


def find_left(directory):
    """Return what this process has open, has started and has written."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "files": os.listdir(directory),
        "claims": os.listdir(os.environ[RUNTIME_DIR]),
        "signal mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }


def main(directory, rounds):
    """Interrupt some runs; print what the first of them that leaves something has left."""
    tempfile.tempdir = directory
    start = make_start("true")
    run_once(start, None)  # caches are filled
    total, _ = run_once(start, None)
    before = find_left(directory)
    for _ in range(rounds):
        _, where = run_once(start, random.randrange(total))
        after = find_left(directory)
        if after != before:
            print(where, {name: left for name, left in after.items() if left != before[name]})
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
