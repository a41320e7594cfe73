"""Running a launcher once: wall time, CPU time, and an end for those that hang."""

import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import struct_rusage

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.record import Record


class Sample(Record):
    """What a launcher took, in seconds; CPU time is its own and that of all it waited for."""

    wall_s: float
    cpu_s: float


class Hung(Exception):  # noqa: N818 - it is no error of this program
    """A launcher did not end in time and was killed, with all it had started."""


class Failed(Exception):  # noqa: N818
    """A launcher ended with something else than 0; the text is its last words."""


class Where(Record):
    """Where launchers run: their environment, a file for what they say, and the seconds they get."""

    env: Mapping[str, str]
    said: str
    timeout_s: float


def time_once(command: Sequence[str], where: Where) -> Sample:
    """Run a command to its end in a session of its own. Raises Hung or Failed."""
    begin = time.perf_counter()
    pid = start(command, where)
    ended = wait(pid, where.timeout_s)
    wall_s = time.perf_counter() - begin
    spent = finish(pid, where, ended)
    return Sample(wall_s=wall_s, cpu_s=spent.ru_utime + spent.ru_stime)


def start(command: Sequence[str], where: Where) -> int:
    """Start a command in a session of its own; return its pid."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, where.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    return os.posix_spawn(command[0], command, where.env, file_actions=files, setsid=True)


def finish(pid: int, where: Where, ended: bool) -> struct_rusage:
    """Take the end of what was started, or kill it; return what it used. Raises Hung or Failed."""
    if not ended:
        kill_session(pid)
    _, status, spent = os.wait4(pid, 0)
    if not ended:
        raise Hung
    if status:
        words = Path(where.said).read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip(" -*")), "")
        raise Failed(f"status {os.waitstatus_to_exitcode(status)} {last}".strip())
    return spent


def wait(pid: int, timeout_s: float) -> bool:
    """Wait until a child has ended; tell whether it has in time."""
    handle = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(handle)


def kill_session(leader: int) -> None:
    """Kill a process and all that are in its session: a launcher may give each rank a group of its own."""
    for pid, fields in read_processes():
        if int(fields[3]) == leader:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended meanwhile


def read_processes() -> list[tuple[int, list[str]]]:
    """Return all processes with the fields of their /proc/PID/stat from the third on (the state)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text(errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            found.append((int(name), text.rpartition(")")[2].split()))
    return found
