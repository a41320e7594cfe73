"""Ranks that meet: when all are ready they begin together, and each tells how long it took."""

import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.timing import Failed, Hung, Where, finish, read_processes, start, wait
from ompbind.record import Record

VARIABLE = "EFFECT_MEETING"
"""Tells ranks the Unix socket that they connect to when they are ready."""

RANKS = 2
QUIET = 0.05
"""The part of the CPUs' time that others may have had while ranks worked undisturbed."""


TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit in which the kernel counts time: each CPU may have a tick too many."""


class Timed(Record):
    """Seconds of the slower rank, as ranks measure them, and the part of the CPUs' time that others had."""

    seconds: float
    others: float

    @property
    def quiet(self) -> bool:
        """Tell whether the ranks had the CPUs to themselves."""
        return self.others <= QUIET


class Task(Record):
    """How often ranks are to work, and how many undisturbed times are wanted; twice as many are tried."""

    times: int
    samples: int


def time_ranks(command: Sequence[str], where: Where, task: Task) -> list[Timed]:
    """Run a command that starts the ranks, and let them work. Raises Hung or Failed."""
    path = Path(where.env[VARIABLE])
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen(RANKS)
        pid = start(command, where)
        until = time.monotonic() + where.timeout_s
        try:
            found = _talk(door, pid, task, until)
        except TimeoutError:
            finish(pid, where, ended=False)
            raise Hung from None
    finish(pid, where, wait(pid, max(1.0, until - time.monotonic())))
    if found is None:
        raise Failed("status 0, and a rank that ended before its work")
    return found


def _talk(door: socket.socket, pid: int, task: Task, until: float) -> list[Timed] | None:
    """Return what ranks tell; None if one ended. Raises TimeoutError."""
    found: list[Timed] = []
    with ExitStack() as stack:
        ranks = [stack.enter_context(one) for one in _gather(door, pid, until)]
        while sum(one.quiet for one in found) < task.samples and len(found) < 2 * task.samples:
            before, begin = _others_s(pid), time.perf_counter()
            said = [*_work(ranks, task.times, until)] if len(ranks) == RANKS else [""]
            spent = time.perf_counter() - begin
            if not all(said):
                return None
            each = (_others_s(pid) - before) / len(os.sched_getaffinity(0)) - TICK_S
            found.append(Timed(seconds=max(map(float, said)), others=max(0.0, each / spent)))
    return found


def _work(ranks: list[socket.socket], times: int, until: float) -> Iterator[str]:
    """Let all work at once, and yield what each answers: a line, or nothing if it has ended."""
    try:
        for one in ranks:
            one.sendall(f"{times}\n".encode())
        for one in ranks:
            one.settimeout(max(0.001, until - time.monotonic()))
            yield one.recv(64).decode()
    except ConnectionError:
        yield ""


def _others_s(pid: int) -> float:
    """Return the CPU time that was not idle on the CPUs to use, less that of a process and all below it.

    What a hypervisor took away counts as not idle.
    """
    cpus = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    busy = sum(sum(map(int, [*fields[1:4], *fields[6:9]])) for fields in lines if fields[0] in cpus)
    return (busy - sum_ticks(pid)) * TICK_S


def sum_ticks(pid: int) -> int:
    """Return the user and system time of a process and of all below it that live, in ticks."""
    processes = dict(read_processes())
    below = [pid]
    for one in below:
        below.extend(child for child, fields in processes.items() if int(fields[1]) == one)
    return sum(int(processes[one][11]) + int(processes[one][12]) for one in below if one in processes)


def _gather(door: socket.socket, pid: int, until: float) -> list[socket.socket]:
    """Return a connection to each rank, or to fewer if what started them has ended; raises TimeoutError."""
    ranks: list[socket.socket] = []
    handle = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.register(door, select.POLLIN)
        while len(ranks) < RANKS:
            ready = [fd for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000)]
            if not ready:
                raise TimeoutError
            if door.fileno() not in ready:
                break  # no rank is there that could still come
            ranks.append(door.accept()[0])
    except TimeoutError:
        for one in ranks:
            one.close()
        raise
    finally:
        os.close(handle)
    return ranks
