"""A server with torch and plain threads: all are allowed on their rank's CPUs, and no speed is lost.

An equal number of copies runs without ompbind. Ranks and copies do the same work in turns, window by window.
Other processes on these CPUs slow down a thread that never sleeps more than many threads that do. So speed
is compared in quiet pairs of windows. If too few are quiet, products per second of CPU time are compared.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from tests.live.conftest import allowed_list, clean_environment, two_cpus
from tests.live.runtimes import cpus_of, needs_packages

pytestmark = [pytest.mark.part("torch"), pytest.mark.alone]
COMMAND = [sys.executable, str(Path(__file__).with_name("torch_server.py"))]
PLAIN_THREADS = 20
PAIRS, MOST_PAIRS = 5, 12
"""The number of pairs of windows that are compared, and that are tried at most."""

TOLERANCE = 0.9
"""The smallest ratio of medians that counts as noise."""

QUIET = 0.1
"""The share of the CPUs' time that other processes may use in a quiet window."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Window(NamedTuple):
    """Products of all copies in a window, per second of wall time and of CPU time; whether it was quiet."""

    per_s: float
    per_cpu_s: float
    quiet: bool


class Servers:
    """Copies of torch_server.py, with the stream on which each copy answers."""

    def __init__(self, streams):
        self.streams = streams
        self.pids = [int(self._answer(stream, "ready")[0]) for stream in streams]

    @staticmethod
    def _answer(stream, word):
        line = stream.readline().split()
        assert line[:1] == [word], line
        return line[1:]

    def work(self, cpus):
        """Run one window of work in all copies at once."""
        began, used, busy = time.monotonic(), sum(map(cpu_time_s, self.pids)), busy_s(cpus)
        for pid in self.pids:
            os.kill(pid, signal.SIGUSR1)
        products = sum(int(self._answer(stream, "done")[1]) for stream in self.streams)
        wall, used = time.monotonic() - began, sum(map(cpu_time_s, self.pids)) - used
        others = busy_s(cpus) - busy - used
        return Window(products / wall, products / max(used, TICK_S), others < QUIET * wall * len(cpus))


def cpu_time_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def busy_s(cpus):
    """Return the CPU time of all processes on these CPUs: user, nice, system."""
    lines = map(str.split, Path("/proc/stat").read_text().splitlines())
    return sum(
        sum(map(int, line[1:4])) * TICK_S for line in lines if line[0] in {f"cpu{cpu}" for cpu in cpus}
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_thread_has_its_ranks_cpus_and_no_speed_is_lost(start, ranks):
    needs_packages("torch")
    cpus = two_cpus()
    mask = (",", "|")[ranks - 1].join(map(str, cpus))
    run = start("run", "-n", str(ranks), "-m", mask, "--", *COMMAND)
    free = [start_free(cpus) for _ in range(ranks)]
    try:
        bound = Servers([run.stdout] * ranks)
        check_threads(bound, [frozenset(cpus)] if ranks == 1 else [frozenset({cpu}) for cpu in cpus])
        check_speed(bound, Servers([process.stdout for process in free]), cpus)
    finally:
        for process in free:
            process.kill()
            process.communicate()
    for pid in bound.pids:
        os.kill(pid, signal.SIGTERM)
    assert run.wait(20) == 0


def start_free(cpus):
    """Start a copy without ompbind, on the CPUs of all ranks together."""
    return subprocess.Popen(
        COMMAND, env=clean_environment(), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )  # fmt: skip


def check_threads(servers, shares):
    """Check that every thread of a rank is allowed on all CPUs of the rank, and on no other CPU."""
    seen = []
    for pid in servers.pids:
        tasks = os.listdir(f"/proc/{pid}/task")
        assert len(tasks) > PLAIN_THREADS
        masks = {cpus_of(allowed_list(pid, task)) for task in tasks}
        assert len(masks) == 1, masks
        seen.append(masks.pop())
    assert sorted(seen, key=sorted) == sorted(shares, key=sorted)


def check_speed(bound, free, cpus):
    """Compare pairs of windows without the first; sides take turns at being first."""
    pairs = [(bound.work(cpus), free.work(cpus))]
    while len(pairs) < MOST_PAIRS and sum(map(is_quiet, pairs[1:])) < PAIRS:
        pairs.append(measure_pair(bound, free, cpus, swapped=len(pairs) % 2))
    if ratio(filter(is_quiet, pairs[1:]), "per_s") < TOLERANCE:
        pairs += [measure_pair(bound, free, cpus, swapped=number % 2) for number in range(PAIRS * 2)]
    quiet = [pair for pair in pairs[1:] if is_quiet(pair)]
    unit, judged = ("per_s", quiet) if len(quiet) >= PAIRS else ("per_cpu_s", pairs[1:])
    assert ratio(judged, unit) >= TOLERANCE, (unit, judged)


def measure_pair(bound, free, cpus, swapped):
    if swapped:
        other = free.work(cpus)
        return bound.work(cpus), other
    return bound.work(cpus), free.work(cpus)


def is_quiet(pair):
    return all(window.quiet for window in pair)


def ratio(pairs, unit):
    """Return the median of the ranks divided by the median of the copies; 0 without any pair."""
    ours, theirs = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    if not ours:
        return 0.0
    return median(getattr(window, unit) for window in ours) / median(
        getattr(window, unit) for window in theirs
    )
