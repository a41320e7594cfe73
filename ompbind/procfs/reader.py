"""Reading single facts of running processes; `process_state` reads all that is of interest of one.

Whatever ends meanwhile is left out. The environment and the memory of a process may be read by its owner
alone. The process "self" is this one.
"""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.procfs.process import (
    GONE,
    Stat,
    parse_command,
    parse_environ,
    parse_maps,
    parse_migrations,
    parse_signals,
    parse_stat,
    status_value,
)

if TYPE_CHECKING:
    from ompbind.procfs.numa_maps import MemorySight

TICKS = os.sysconf("SC_CLK_TCK")
"""The ticks of the clock in a second."""


def read_file(path: str, folder: int | None = None) -> bytes:
    """Read a whole file of /proc; the kernel gives large ones in pieces."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def _read_if_allowed(path: str) -> bytes | None:
    """Read a whole file of a process; None when it is gone, or somebody else's."""
    try:
        return read_file(path)
    except OSError:
        return None


def read_processes() -> dict[int, Stat]:
    """Return all processes that live, as far as this one may know of them; none where /proc is not there."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    found = ((pid, read_stat(pid)) for pid in pids)
    return {pid: stat for pid, stat in found if stat and stat.state not in GONE}


def read_stat(pid: int | str) -> Stat | None:
    """Return the stat file of a process; None when it is gone."""
    try:
        return parse_stat(read_file(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def read_age_s(pid: int) -> float | None:
    """Return how many seconds ago a process started; None when it is gone."""
    stat = read_stat(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS if stat else None


def read_status(pid: int | str) -> str:
    """Return the text of the status file of a process; raises OSError."""
    return read_file(f"/proc/{pid}/status").decode("utf-8", "replace")


def read_caught_signals(pid: int) -> set[int]:
    """Return the signals that a process has handlers for; none when it is gone."""
    status = _read_if_allowed(f"/proc/{pid}/status") or b""
    return parse_signals(status_value(status.decode("utf-8", "replace"), "SigCgt"))


def read_children() -> set[int] | None:
    """Return the children of this process, of one thread; None where the kernel does not list them.

    While some of them end the kernel may miss others.
    """
    children = _read_if_allowed(f"/proc/self/task/{os.getpid()}/children")
    return None if children is None else set(map(int, children.split()))


def read_command(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty when it is gone, and for threads of the kernel."""
    return parse_command(_read_if_allowed(f"/proc/{pid}/cmdline") or b"")


def read_owner(pid: int) -> int | None:
    """Return the number of the user whose process it is; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def read_variables(pid: int | str) -> dict[str, str] | None:
    """Return the variables that a process was executed with: {} where they may not be read.

    None when there are none at all, as of a process that is just executing a command.
    """
    data = _read_if_allowed(f"/proc/{pid}/environ")
    return None if data == b"" else parse_environ(data or b"")


def read_files(pid: int | str, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Return those files in the memory of a process that are to be kept; none where that may not be read."""
    return parse_maps(_read_if_allowed(f"/proc/{pid}/maps") or b"", keep)


def read_memory(pid: int) -> "MemorySight | None":
    """Return what the kernel says of the memory of a process, or of a thread by its number.

    The kernel looks at every page for it: that takes a moment for large processes. None when the process is
    gone, belongs to somebody else, or the kernel knows no NUMA nodes.
    """
    from ompbind.procfs.numa_maps import parse_numa_maps  # late: what it compiles takes longer than all else

    data = _read_if_allowed(f"/proc/{pid}/numa_maps")
    return None if data is None else parse_numa_maps(data.decode("utf-8", "replace"))


def read_memory_policy(pid: int) -> str | None:
    """Return the memory policy of a process: that of its program's text, which has none of its own.

    The kernel looks at no more of the memory than it is asked to write of; all of it can take seconds.
    """
    from ompbind.procfs.numa_maps import parse_numa_maps  # late, as above

    try:
        with open(f"/proc/{pid}/numa_maps", "rb", buffering=0) as file:
            line = file.read(160).partition(b"\n")[0]  # the policy is among these bytes
    except OSError:
        return None
    return next((one.policy for one in parse_numa_maps(line.decode("utf-8", "replace")).sights), None)


def list_threads(pid: int) -> list[int]:
    """Return the numbers of the threads of a process; none when it is gone."""
    try:
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def read_mask(tid: int) -> CpuSet:
    """Return where a thread may run, by a system call, a tenth of the time of its status; empty when gone."""
    try:
        return CpuSet(os.sched_getaffinity(tid))
    except OSError:
        return EMPTY


def read_migrations(pid: int, tid: int) -> int | None:
    """Return how often a thread has moved to another CPU; None where the kernel does not count that."""
    return parse_migrations(_read_if_allowed(f"/proc/{pid}/task/{tid}/sched") or b"")


def read_pid_space() -> int:
    """Return the number of the space in which this process has its pid: containers have their own."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def is_proc_ours() -> bool:
    """Tell whether /proc is there, and has the numbers that processes have here.

    In a container with its own space of numbers the /proc around it has others under those of ranks.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False
