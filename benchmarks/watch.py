"""Measure the CPU time of `ompbind inspect --watch` on a terminal, at its default interval.

    python benchmarks/watch.py [--seconds S] [--sizes 4x16,64x8]

For each size (ranks x threads), this starts a run whose threads sleep, and watches it on a new terminal. It
reads the CPU time of the watching process and of its threads from /proc after a view, and again after the
first view that comes at least S seconds later, so that it measures whole intervals. The start of ompbind is
not measured. The view is less frequent if a sample takes long: the table has the time between two views.

The CPU time must be below 1 % of a CPU. The exit code is 1 if a promise is missed.
"""

import argparse
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import WatchUsage, make_watch_promises, print_promises
from benchmarks.quiet import OMPBIND, START_S, read_cpu_s
from benchmarks.rounds import compile_modules, make_parser

RANK = """
import sys, threading, time
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=time.sleep, args=(86400,), daemon=True).start()
print("up", flush=True)
time.sleep(86400)
"""

QUIET_S = 0.3
"""A view is complete if nothing more is written for this time, which is shorter than any interval."""


@contextmanager
def running(ranks: int, threads: int) -> Iterator[None]:
    """Start a run with the name "watched", wait until all its threads run, and stop it afterwards."""
    program = (sys.executable, "-c", RANK, str(threads))
    command = [OMPBIND, "run", "-q", "--share", "--run-id", "watched", "-n", str(ranks), "--", *program]
    launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert launcher.stdout
    try:
        for _ in range(ranks):
            if not launcher.stdout.readline():
                raise SystemExit(f"ompbind exited instead of running {ranks} ranks")
        yield
    finally:
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(START_S)
        launcher.stdout.close()


@contextmanager
def watching() -> Iterator[tuple[int, int]]:
    """Watch the run on a new terminal; yield the PID and the other end of the terminal."""
    master, terminal = pty.openpty()
    os.set_blocking(master, False)
    env = {**os.environ, "TERM": "xterm"}
    watch = subprocess.Popen(
        [OMPBIND, "inspect", "watched", "--watch"], env=env, stdin=terminal, stdout=terminal
    )
    os.close(terminal)
    try:
        yield watch.pid, master
    finally:
        watch.send_signal(signal.SIGTERM)
        while watch.poll() is None:  # it still writes to the terminal
            read_view(master)
        os.close(master)


def read_view(master: int) -> None:
    """Wait until a view is written completely."""
    timeout_s = START_S
    while select.select([master], [], [], timeout_s)[0]:
        try:
            os.read(master, 1 << 16)
        except OSError:
            return  # the terminal is closed
        timeout_s = QUIET_S


def measure(ranks: int, threads: int, seconds: float) -> WatchUsage:
    """Watch a run whose threads sleep, and return what that takes."""
    with running(ranks, threads), watching() as (pid, master):
        for _ in range(2):  # the first views are early, and import modules
            read_view(master)
        began_s, before_s, views = time.monotonic(), read_cpu_s([pid]), 0
        while views == 0 or time.monotonic() - began_s < seconds:
            read_view(master)
            views += 1
        span_s, used_s = time.monotonic() - began_s, read_cpu_s([pid]) - before_s
    return WatchUsage(ranks=ranks, threads=threads, interval_s=span_s / views, percent=100 * used_s / span_s)


def parse_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Return (ranks, threads) pairs of "4x16,64x8". Raises ValueError for other text."""
    pairs = (word.split("x") for word in text.split(","))
    return tuple((int(ranks), int(threads)) for ranks, threads in pairs)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--sizes", type=parse_sizes, default=((4, 16), (64, 8)), metavar="RxT,...")
    return parser.parse_args()


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    options = read_options()
    compile_modules()
    print("ompbind inspect --watch, at the default interval")
    print("ranks  threads  seconds between views  % of a CPU")
    measured = []
    for ranks, threads in options.sizes:
        with tempfile.TemporaryDirectory(prefix="watch") as directory:
            os.environ["OMPBIND_RUNTIME_DIR"] = directory
            usage = measure(ranks, threads, options.seconds)
        measured.append(usage)
        print(f"{ranks:5} {threads:8} {usage.interval_s:22.1f} {usage.percent:11.2f}", flush=True)
    return print_promises(make_watch_promises(measured))


if __name__ == "__main__":
    sys.exit(main())
