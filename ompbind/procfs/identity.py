"""Read what a running process is: its command, its owner and its age, and which process has locked a file."""

import os
import time

from ompbind.procfs.process_files import parse_command, parse_lock_holder
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
