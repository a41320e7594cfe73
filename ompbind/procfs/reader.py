"""Read from /proc which processes there are, their states and their environments.

`process_facts` reads further facts of a process, `process_state` reads a whole process.
Processes that exit meanwhile are left out. Only the owner may read the environment and the memory of a
process. The PID "self" is this process. If /proc shows another PID namespace, its numbers name processes of
that namespace: no other process than "self" is then read, as if there were no /proc.
"""

import errno
import os

from ompbind.procfs.parsers import EXITED_STATES, Stat, parse_environ, parse_signals, parse_stat, status_value

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Clock ticks in a second, the unit of times in stat files."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page, the unit of memory in stat files."""


def read_file(path: str, directory: int | None = None) -> bytes:
    """Read a whole file of /proc; a path may be relative to an open `directory`. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        # The kernel returns large files in pieces.
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def is_proc_of_pid_namespace() -> bool:
    """Return whether /proc is mounted and shows the PIDs of this process's PID namespace.

    In a container that sees the /proc of its host, the PID of a rank names another process there.
    """
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
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    found = ((pid, _read_stat(f"/proc/{pid}")) for pid in pids)
    return {pid: stat for pid, stat in found if stat and stat.state not in EXITED_STATES}


def read_stat(pid: int | str) -> Stat | None:
    """Read /proc/PID/stat; None if the process does not exist."""
    try:
        return _read_stat(find_directory(pid))
    except OSError:
        return None


def _read_stat(directory: str) -> Stat | None:
    try:
        return parse_stat(read_file(f"{directory}/stat"))
    except (OSError, ValueError):
        return None


def read_status(pid: int | str) -> str:
    """Read the text of /proc/PID/status; raises OSError."""
    return read_file(f"{find_directory(pid)}/status").decode("utf-8", "replace")


def read_caught_signals(pid: int) -> set[int]:
    """Return the signals that a process handles, from /proc/PID/status (SigCgt); {} if it does not exist."""
    status = read_if_allowed(pid, "status") or b""
    return parse_signals(status_value(status.decode("utf-8", "replace"), "SigCgt"))


def read_children() -> set[int] | None:
    """Return the PIDs of the children of this process; None if the kernel does not list them.

    Read from /proc/PID/task/TID/children of the initial thread, which may miss children while others exit.
    """
    children = read_if_allowed(os.getpid(), f"task/{os.getpid()}/children")
    return None if children is None else set(map(int, children.split()))


def read_environ(pid: int | str) -> dict[str, str] | None:
    """Read /proc/PID/environ: the variables that a process was executed with.

    {} if this user may not read them. None if the file is empty, as while a process executes a command.
    """
    data = read_if_allowed(pid, "environ")
    return None if data == b"" else parse_environ(data or b"")


def read_pid_namespace() -> int:
    """Return the inode number of this process's PID namespace (/proc/self/ns/pid), 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
