"""Start the work of ranks together and time it.

Each rank connects to a Unix socket when it is ready. For each measurement, this program sends all ranks the
number of repetitions; each rank works and answers with the seconds that it took.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.timing import Failed, RunSettings, TimedOut, read_processes, reap, start, wait
from ompbind.record import Record

SOCKET_VARIABLE = "EFFECT_SOCKET"
"""The variable with the path of the Unix socket."""

RANKS = 2
MAX_FOREIGN_SHARE = 0.05
"""The maximum share of CPU time that other processes may use during an undisturbed measurement."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The kernel's unit of CPU time. The count of each CPU may be a tick too high."""


class Timing(Record):
    """One measurement: `seconds` of the slower rank; `foreign_share`: the CPU time of other processes.

    `foreign_share` is a fraction of the time of all CPUs.
    """

    seconds: float
    foreign_share: float

    @property
    def is_undisturbed(self) -> bool:
        """Return whether other processes used hardly any CPU time."""
        return self.foreign_share <= MAX_FOREIGN_SHARE


class Task(Record):
    """What to measure: `times` repetitions per measurement, and `samples` undisturbed measurements.

    At most twice as many measurements are made. `ranks` is the number of ranks that work.
    """

    times: int
    samples: int
    ranks: int = RANKS


def time_ranks(command: Sequence[str], settings: RunSettings, task: Task) -> list[Timing]:
    """Run a command that starts the ranks, and measure their work. Raises TimedOut or Failed."""
    path = Path(settings.env[SOCKET_VARIABLE])
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(task.ranks)
        pid = start(command, settings)
        until = time.monotonic() + settings.timeout_s
        try:
            timings = _collect_timings(listener, pid, task, until)
        except TimeoutError:
            reap(pid, settings, exited=False)
            raise TimedOut from None
    reap(pid, settings, wait(pid, max(1.0, until - time.monotonic())))
    if timings is None:
        raise Failed("status 0, and a rank exited before its work")
    return timings


def _collect_timings(listener: socket.socket, pid: int, task: Task, until: float) -> list[Timing] | None:
    """Return the measurements; None if a rank exited. Raises TimeoutError."""
    timings: list[Timing] = []
    with ExitStack() as stack:
        ranks = [stack.enter_context(rank) for rank in _accept_ranks(listener, pid, task.ranks, until)]
        while sum(t.is_undisturbed for t in timings) < task.samples and len(timings) < 2 * task.samples:
            before, begin = _read_foreign_s(pid), time.perf_counter()
            answers = [*_run_work(ranks, task.times, until)] if len(ranks) == task.ranks else [""]
            wall_s = time.perf_counter() - begin
            if not all(answers):
                return None
            foreign_s = (_read_foreign_s(pid) - before) / len(os.sched_getaffinity(0)) - TICK_S
            share = max(0.0, foreign_s / wall_s)
            timings.append(Timing(seconds=max(map(float, answers)), foreign_share=share))
    return timings


def _run_work(ranks: list[socket.socket], times: int, until: float) -> Iterator[str]:
    """Let all ranks work at once, and yield the answer of each; empty if the rank has exited."""
    try:
        for rank in ranks:
            rank.sendall(f"{times}\n".encode())
        for rank in ranks:
            rank.settimeout(max(0.001, until - time.monotonic()))
            yield rank.recv(64).decode()
    except ConnectionError:
        yield ""


def _read_foreign_s(pid: int) -> float:
    """Return the CPU time of other processes on the allowed CPUs so far, in seconds.

    This is the time that was not idle, minus the time of `pid` and its descendants. Time that a hypervisor
    took (steal time) counts as not idle.
    """
    cpus = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    busy = sum(sum(map(int, [*fields[1:4], *fields[6:9]])) for fields in lines if fields[0] in cpus)
    return (busy - sum_ticks(pid)) * TICK_S


def sum_ticks(pid: int) -> int:
    """Return the user and system time of a process and its live descendants, in ticks."""
    processes = dict(read_processes())
    tree = [pid]
    for parent in tree:
        tree.extend(child for child, fields in processes.items() if int(fields[1]) == parent)
    return sum(int(processes[pid][11]) + int(processes[pid][12]) for pid in tree if pid in processes)


def _accept_ranks(listener: socket.socket, pid: int, count: int, until: float) -> list[socket.socket]:
    """Return a connection to each of `count` ranks; fewer if the launcher has exited. Raises TimeoutError."""
    ranks: list[socket.socket] = []
    handle = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.register(listener, select.POLLIN)
        while len(ranks) < count:
            ready = [fd for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000)]
            if not ready:
                raise TimeoutError
            if listener.fileno() not in ready:
                break  # the launcher has exited: no further rank can connect
            ranks.append(listener.accept()[0])
    except TimeoutError:
        for rank in ranks:
            rank.close()
        raise
    finally:
        os.close(handle)
    return ranks
