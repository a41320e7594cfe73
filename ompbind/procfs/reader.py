"""Read from /proc which processes there are, their states and their environments.

`process_state` reads a whole process.
Processes that exit meanwhile are left out. Only the owner may read the environment and the memory of a
process. The PID "self" is this process. If /proc shows another PID namespace, its numbers name processes of
that namespace: no other process than "self" is then read, as if there were no /proc.
"""

import errno
import os
import time
from collections.abc import Callable

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.procfs.parsers import (
    EXITED_STATES,
    CpuTimes,
    MemoryMap,
    Stat,
    parse_command,
    parse_cpu_times,
    parse_environ,
    parse_maps,
    parse_numa_maps,
    parse_policy,
    parse_stat,
    status_value,
)
from ompbind.text import whole_number

TICKS_PER_S = os.sysconf("SC_CLK_TCK")  # clock ticks in a second, the unit of times in stat files


def read_file(path: str, directory: int | None = None) -> bytes:
    """Read a whole file of /proc; a path may be relative to an open `directory`. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def is_proc_of_pid_namespace() -> bool:
    """Return whether /proc is mounted and shows the PIDs of this process's PID namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def find_directory(pid: int | str) -> str:
    """Return /proc/PID. Raises FileNotFoundError if /proc is not of this PID namespace, except for "self"."""
    if pid != "self" and not is_proc_of_pid_namespace():
        raise FileNotFoundError(errno.ENOENT, "/proc shows no process of this PID namespace")
    return f"/proc/{pid}"


def read_if_allowed(pid: int | str, name: str) -> bytes | None:
    """Read a whole file of a process; None if it has exited or belongs to another user."""
    try:
        return read_file(f"{find_directory(pid)}/{name}")
    except OSError:
        return None


def read_processes() -> dict[int, Stat]:
    """Read /proc/PID/stat of all visible processes that have not exited, by PID; {} without /proc."""
    if not is_proc_of_pid_namespace():
        return {}
    pids = (pid for name in os.listdir("/proc") if (pid := whole_number(name)))
    found = ((pid, _read_stat_in(f"/proc/{pid}")) for pid in pids)
    return {pid: stat for pid, stat in found if stat and stat.state not in EXITED_STATES}


def read_cpu_times() -> dict[int | None, CpuTimes]:
    """Read the times of each online CPU, and with the key None of all together; {} without /proc/stat.

    Some containers number CPUs anew there (lxcfs): a file without the allowed CPUs counts as none.
    """
    try:
        times = parse_cpu_times(read_file("/proc/stat").decode("ascii", "replace"))
        return times if times.keys() >= os.sched_getaffinity(0) else {}
    except OSError:
        return {}


def read_stat(pid: int | str) -> Stat | None:
    """Read /proc/PID/stat; None if the process does not exist."""
    try:
        return _read_stat_in(find_directory(pid))
    except OSError:
        return None


def _read_stat_in(directory: str) -> Stat | None:
    try:
        return parse_stat(read_file(f"{directory}/stat"))
    except (OSError, ValueError):
        return None


def find_times_s(stat: Stat) -> tuple[float, float]:
    """Return the CPU time of a process, and of its descendants that were waited for, so far in seconds."""
    return stat.busy_ticks / TICKS_PER_S, stat.reaped_ticks / TICKS_PER_S


def read_status(pid: int | str) -> str:
    """Read the text of /proc/PID/status; raises OSError."""
    return read_file(f"{find_directory(pid)}/status").decode("utf-8", "replace")


def read_caught_signals(pid: int) -> set[int]:
    """Return the signals that a process handles, from /proc/PID/status (SigCgt); {} if it does not exist."""
    status = (read_if_allowed(pid, "status") or b"").decode("utf-8", "replace")
    return {number + 1 for number in CpuSet.from_bits(int(status_value(status, "SigCgt") or "0", 16))}


def read_children() -> set[int] | None:
    """Return the PIDs of the children of the initial thread; None if the kernel does not list them.

    Some may be missing while others exit.
    """
    children = read_if_allowed(os.getpid(), f"task/{os.getpid()}/children")
    return None if children is None else set(map(int, children.split()))


def read_environ(pid: int | str) -> dict[str, str] | None:
    """Read the variables that a process was executed with; {} if this user may not read them.

    None if the file is empty, as while a process executes a command.
    """
    data = read_if_allowed(pid, "environ")
    return None if data == b"" else parse_environ(data or b"")


HOST_PID_NAMESPACE = 0xEFFFFFFC  # the inode number outside of containers: the kernel's PROC_PID_INIT_INO


def read_pid_namespace() -> int:
    """Return the inode number of this process's PID namespace (/proc/self/ns/pid), 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def read_age_s(pid: int) -> float | None:
    """Return the seconds since the start of a process, from /proc/PID/stat; None if it does not exist."""
    stat = read_stat(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_S if stat else None


def read_command_line(pid: int) -> tuple[str, ...]:
    """Read /proc/PID/cmdline as words; empty for kernel threads and if the process does not exist."""
    return parse_command(read_if_allowed(pid, "cmdline") or b"")


def read_owner(pid: int) -> int | None:
    """Return the user ID of the owner of a process; None if it does not exist."""
    try:
        return os.stat(find_directory(pid)).st_uid
    except OSError:
        return None


def read_mapped_files(pid: int | str, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Read /proc/PID/maps: the mapped files that `keep` accepts; none if this user may not read it."""
    return parse_maps(read_if_allowed(pid, "maps") or b"", keep)


def read_memory_map(pid: int) -> MemoryMap | None:
    """Read /proc/PID/numa_maps of a process, which takes a moment for large processes.

    None if the process does not exist or belongs to another user, or if the kernel has no NUMA support.
    """
    data = read_if_allowed(pid, "numa_maps")
    return None if data is None else parse_numa_maps(data.decode("utf-8", "replace"))


def read_memory_policy(pid: int) -> str | None:
    """Return the memory policy of a process, from the first line of /proc/PID/numa_maps.

    That line is about the program's code, which has no policy of its own. The kernel walks only as many pages
    as it reports: all of them can take seconds.
    """
    try:
        with open(f"{find_directory(pid)}/numa_maps", "rb", buffering=0) as file:
            line = file.read(160).partition(b"\n")[0]  # the policy is among these bytes
    except OSError:
        return None
    return parse_policy(line.decode("utf-8", "replace"))


def list_threads(pid: int) -> list[int]:
    """Return the TIDs of a process, from /proc/PID/task; none if it does not exist."""
    try:
        return list(map(int, os.listdir(f"{find_directory(pid)}/task")))
    except OSError:
        return []


def read_affinity(tid: int) -> CpuSet:
    """Return the affinity mask of a thread; empty if it does not exist."""
    try:
        return CpuSet(os.sched_getaffinity(tid))
    except OSError:
        return EMPTY
