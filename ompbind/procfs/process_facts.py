"""Read single facts of a running process: its owner, command, age, locks, memory and threads.

A module of its own: most starts of ranks need no such facts.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.procfs.parsers import (
    MemoryMap,
    parse_command,
    parse_lock_holder,
    parse_maps,
    parse_migrations,
    parse_numa_maps,
)
from ompbind.procfs.reader import (
    TICKS_PER_S,
    find_directory,
    is_proc_of_pid_namespace,
    read_file,
    read_if_allowed,
    read_stat,
)


def read_age_s(pid: int) -> float | None:
    """Return the seconds since the start of a process, from /proc/PID/stat; None if it does not exist."""
    stat = read_stat(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_S if stat else None


def read_command(pid: int) -> tuple[str, ...]:
    """Read /proc/PID/cmdline as words; empty for kernel threads and if the process does not exist."""
    return parse_command(read_if_allowed(pid, "cmdline") or b"")


def read_owner(pid: int) -> int | None:
    """Return the user ID of the owner of a process; None if it does not exist."""
    try:
        return os.stat(find_directory(pid)).st_uid
    except OSError:
        return None


def read_lock_holder(major: int, minor: int, inode: int) -> int | None:
    """Return the process that has locked a file with flock, from /proc/locks; None if it is unknown."""
    try:
        data = read_file("/proc/locks") if is_proc_of_pid_namespace() else b""
    except OSError:
        return None
    return parse_lock_holder(data.decode("ascii", "replace"), f"{major:02x}:{minor:02x}:{inode}")


def read_mapped_files(pid: int | str, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Read /proc/PID/maps: the mapped files that `keep` accepts; none if this user may not read it."""
    return parse_maps(read_if_allowed(pid, "maps") or b"", keep)


def read_memory_map(pid: int) -> MemoryMap | None:
    """Read /proc/PID/numa_maps of a process, or of a thread by its TID.

    The kernel walks all pages, which takes a moment for large processes. None if the process does not exist,
    if it belongs to another user, or if the kernel has no NUMA support.
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
    return next(
        (mapping.policy for mapping in parse_numa_maps(line.decode("utf-8", "replace")).mappings), None
    )


def list_threads(pid: int) -> list[int]:
    """Return the TIDs of a process, from /proc/PID/task; none if it does not exist."""
    try:
        return list(map(int, os.listdir(f"{find_directory(pid)}/task")))
    except OSError:
        return []


def read_affinity(tid: int) -> CpuSet:
    """Return the affinity mask of a thread; empty if it does not exist.

    Uses sched_getaffinity(2), which takes a tenth of the time of reading /proc/PID/status.
    """
    try:
        return CpuSet(os.sched_getaffinity(tid))
    except OSError:
        return EMPTY


def read_migrations(pid: int, tids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (TID, migrations since its start) of the threads for which the kernel reports them.

    Read from /proc/PID/task/TID/sched.
    """
    try:
        directory = find_directory(pid)
    except OSError:
        return
    for tid in tids:
        try:
            migrations = parse_migrations(read_file(f"{directory}/task/{tid}/sched"))
        except OSError:
            continue  # the thread has exited, or the kernel has no such file
        if migrations is not None:
            yield tid, migrations
