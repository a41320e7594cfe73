"""Run a launcher once: measure wall time and CPU time, and kill it if it hangs."""

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
    """Times of one launch in seconds. CPU time includes all processes that the launcher waited for."""

    wall_s: float
    cpu_s: float


class TimedOut(Exception):  # noqa: N818 - not an error of this program
    """A launcher did not exit in time. It was killed with all processes that it had started."""


class Failed(Exception):  # noqa: N818
    """A launcher exited with a code other than 0; the text is its last line of standard error."""


class RunSettings(Record):
    """Settings of a launch: the environment, a file for standard error, and the time limit in seconds."""

    env: Mapping[str, str]
    stderr_path: str
    timeout_s: float


def time_once(command: Sequence[str], settings: RunSettings) -> Sample:
    """Run a command in its own session until it exits. Raises TimedOut or Failed."""
    begin = time.perf_counter()
    pid = start(command, settings)
    exited = wait(pid, settings.timeout_s)
    wall_s = time.perf_counter() - begin
    spent = reap(pid, settings, exited)
    return Sample(wall_s=wall_s, cpu_s=spent.ru_utime + spent.ru_stime)


def start(command: Sequence[str], settings: RunSettings) -> int:
    """Start a command in its own session; return its pid."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, settings.stderr_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    return os.posix_spawn(command[0], command, settings.env, file_actions=files, setsid=True)


def reap(pid: int, settings: RunSettings, exited: bool) -> struct_rusage:
    """Reap a process, or kill it if it has not exited; return its usage. Raises TimedOut or Failed."""
    if not exited:
        kill_session(pid)
    _, status, spent = os.wait4(pid, 0)
    if not exited:
        raise TimedOut
    if status:
        lines = Path(settings.stderr_path).read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip(" -*")), "")
        raise Failed(f"status {os.waitstatus_to_exitcode(status)} {last}".strip())
    return spent


def wait(pid: int, timeout_s: float) -> bool:
    """Wait until a child exits; return whether it exited in time."""
    handle = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(handle)


def kill_session(leader: int) -> None:
    """Kill all processes of a session. A launcher may give each rank its own process group."""
    for pid, fields in read_processes():
        if int(fields[3]) == leader:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has exited meanwhile


def read_processes() -> list[tuple[int, list[str]]]:
    """Return the pid of each process, and the fields of /proc/PID/stat from the third (state) on."""
    processes = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text(errors="replace")
            except OSError:
                continue  # it has exited meanwhile
            processes.append((int(name), text.rpartition(")")[2].split()))
    return processes
