"""A running process with its threads, as values, and reading them; it need not help and is never stopped.

Whatever ends meanwhile is left out. A folder of /proc that is open stays that of its process, even when
another one gets its number. The files and the environment of a process may be read by its owner alone, its
threads and their masks by everybody.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from ompbind.cpuset import CpuSet
from ompbind.procfs.process import GONE, parse_command, parse_environ, parse_maps, parse_stat, status_value
from ompbind.procfs.reader import TICKS, read_file
from ompbind.record import Record

Keep = Callable[[str], bool]
"""Whether to keep a file by its path, or a variable by its name."""

_FORBIDDEN = ("libraries", "environment")
"""What only the owner of a process may read of it, as `ProcessState.unread` names it."""

_parse_mask = lru_cache(CpuSet.from_list)  # thousands of threads have the same few masks


class ThreadState(Record):
    """One thread: its mask, the CPU it ran on last, and its state as one letter, as `ps` has them.

    A *mask* is the set of CPUs that it may run on. `cpu`, `policy` ("other", "fifo", …) and `busy_s` (CPU
    time so far, in seconds) are None where only masks were read.
    """

    tid: int
    name: str
    cpus: CpuSet
    state: str = "S"
    cpu: int | None = None
    policy: str | None = None
    busy_s: float | None = None


class ProcessState(Record):
    """One process: its threads, lowest number first, and what it was executed with.

    `command` is empty for threads of the kernel. `files` are the files in its memory that the reader was to
    keep, each (device, inode) once, as the kernel writes their paths: " (deleted)" follows those that are
    gone. `variables` are those of its environment at its start that the reader was to keep. `unread` names
    what may not be read of it: "libraries", "environment"; `kernel` tells that it is one of the threads of
    the kernel.
    """

    pid: int
    parent: int
    name: str
    threads: tuple[ThreadState, ...]
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()
    kernel: bool = False

    @property
    def env(self) -> Mapping[str, str]:
        """The variables by name."""
        return dict(self.variables)

    @property
    def main(self) -> ThreadState | None:
        """The thread that the process began with; None when it has ended before the others."""
        return next((one for one in self.threads if one.tid == self.pid), None)


def read_process(pid: int, keep_file: Keep, keep_variable: Keep) -> ProcessState | None:
    """Read a process with its threads, files and variables to keep; None when there is none any more."""
    try:
        folder = _open_folder(f"/proc/{pid}")
    except OSError:
        return None
    try:
        threads = tuple(_read_threads(folder))
        stat = parse_stat(read_file("stat", folder))
        # The first thread may have ended before the others, and its memory with it.
        told = [_read_private(f"task/{threads[0].tid}/{name}", folder) for name in _PRIVATE]
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(folder)
    command, maps, environ = told
    variables = sorted(parse_environ(environ or b"").items())
    return ProcessState(
        pid=pid,
        parent=stat.parent,
        name=stat.name,
        threads=threads,
        command=parse_command((command or b"").rstrip(b"\0")),
        files=parse_maps(maps or b"", keep_file),
        variables=tuple((name, value) for name, value in variables if keep_variable(name)),
        unread=tuple(name for name, data in zip(_FORBIDDEN, (maps, environ), strict=True) if data is None),
        kernel=stat.is_kernel,
    )


_PRIVATE = ("cmdline", "maps", "environ")


def _read_private(path: str, folder: int) -> bytes | None:
    """Read what only the owner of a process may: None where that is somebody else, b"" when it ends."""
    try:
        return read_file(path, folder)
    except PermissionError:
        return None
    except OSError:
        return b""


def _read_threads(folder: int) -> Iterator[ThreadState]:
    task = _open_folder("task", folder)
    try:
        for tid in sorted(map(int, os.listdir(task))):
            thread = _read_thread(tid, task)
            if thread:
                yield thread
    except OSError:
        return  # the process has ended
    finally:
        os.close(task)


def _read_thread(tid: int, task: int) -> ThreadState | None:
    """Read a thread; None when it has ended."""
    try:
        stat = parse_stat(read_file(f"{tid}/stat", task))
        status = read_file(f"{tid}/status", task).decode("utf-8", "replace")
        cpus = _parse_mask(status_value(status, "Cpus_allowed_list") or "")
    except (OSError, ValueError):
        return None
    if stat.state in GONE or not cpus:
        return None
    busy_s = stat.busy_ticks / TICKS
    return ThreadState(
        tid=tid, name=stat.name, cpus=cpus, state=stat.state, cpu=stat.cpu, policy=stat.policy, busy_s=busy_s
    )


def _open_folder(path: str, folder: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
