"""Read a running process with its threads from /proc/PID; the process is not stopped and need not cooperate.

Threads that exit meanwhile are left out. An open directory of /proc stays with its process, even if the
kernel gives its PID to another process. Only the owner may read the mapped files and the environment of a
process; all users may read its threads and their affinity masks.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import compress

from ompbind.cpuset import CpuSet
from ompbind.procfs import parsers
from ompbind.procfs.reader import TICKS_PER_S, find_directory, find_times_s, read_file
from ompbind.record import Record

Keep = Callable[[str], bool]  # returns whether to keep a file, by its path, or a variable, by its name

_parse_mask = lru_cache(CpuSet.from_list)  # thousands of threads have the same few masks
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ThreadState(Record):
    """One thread.

    `cpus` is its affinity mask, `state` a letter as in `ps`. `cpu` is the CPU it last ran on, `policy` its
    scheduling policy ("other", "fifo", …), `busy_s` its CPU time so far. `delay_s` is the time so far in
    which it was runnable and waited for a CPU, None if the kernel does not count it.
    """

    tid: int
    name: str
    cpus: CpuSet
    state: str = "S"
    cpu: int = 0
    policy: str = "other"
    busy_s: float = 0.0
    delay_s: float | None = None


class ProcessState(Record):
    """One process: its threads by TID, its command line, and the kept parts of its memory and environment.

    `command` is empty for kernel threads. `files` are the kept files that it has mapped, each (device, inode)
    once; the kernel appends " (deleted)" to the path of a deleted file. `variables` are the kept variables of
    its environment at its start. `unreadable` names what is not wholly readable: "libraries", "environment".
    `is_environment_overwritten` is true if the reason is that the program has written its title there.
    `variables` are then what is left of them: a missing variable proves nothing.
    `is_kernel_thread` is true for threads of the kernel. `times_s` are from `reader.find_times_s`.
    """

    pid: int
    parent: int
    name: str
    threads: tuple[ThreadState, ...]
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    is_environment_overwritten: bool = False
    is_kernel_thread: bool = False
    times_s: tuple[float, float] = (0.0, 0.0)

    @property
    def env(self) -> Mapping[str, str]:
        """The variables by name."""
        return dict(self.variables)

    @property
    def is_environment_known(self) -> bool:
        """Whether a variable that is not among the variables was not set at the start."""
        return "environment" not in self.unreadable

    @property
    def initial_thread(self) -> ThreadState | None:
        """The initial thread; None if it has exited before the others."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


def read_process(pid: int, keep_file: Keep, keep_variable: Keep) -> ProcessState | None:
    """Read a process with its threads, and the files and variables to keep; None if it has exited."""
    try:
        directory = os.open(find_directory(pid), _DIRECTORY)
    except OSError:
        return None
    try:
        threads = tuple(_read_threads(directory))
        stat = parsers.parse_stat(read_file("stat", directory))
        # Files of /proc/PID are empty if the initial thread has exited: read the files of a live thread.
        task = f"task/{threads[0].tid}"
        command, maps, environ = (
            _read_private(f"{task}/{name}", directory) for name in ("cmdline", "maps", "environ")
        )
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(directory)
    variables = sorted(parsers.parse_environ(environ or b"").items())
    overwritten = parsers.is_overwritten(environ or b"")
    return ProcessState(
        pid=pid,
        parent=stat.parent,
        name=stat.name,
        threads=threads,
        command=parsers.parse_command(command or b""),
        files=parsers.parse_maps(maps or b"", keep_file),
        variables=tuple((name, value) for name, value in variables if keep_variable(name)),
        unreadable=tuple(
            compress(("libraries", "environment"), (maps is None, environ is None or overwritten))
        ),
        is_environment_overwritten=overwritten,
        is_kernel_thread=stat.is_kernel,
        times_s=find_times_s(stat),
    )


def _read_private(path: str, directory: int) -> bytes | None:
    """Read a file that only the owner may read: None for other users, b"" if the process has exited."""
    try:
        return read_file(path, directory)
    except PermissionError:
        return None
    except OSError:
        return b""


def _read_threads(directory: int) -> Iterator[ThreadState]:
    task = os.open("task", _DIRECTORY, dir_fd=directory)
    try:
        for tid in sorted(map(int, os.listdir(task))):
            thread = _read_thread(tid, task)
            if thread:
                yield thread
    except OSError:
        return  # the process has exited
    finally:
        os.close(task)


def _read_thread(tid: int, task: int) -> ThreadState | None:
    try:
        stat = parsers.parse_stat(read_file(f"{tid}/stat", task))
        status = read_file(f"{tid}/status", task).decode("utf-8", "replace")
        cpus = _parse_mask(parsers.status_value(status, "Cpus_allowed_list") or "")
    except (OSError, ValueError):
        return None
    if stat.state in parsers.EXITED_STATES or not cpus:
        return None
    try:
        delay_s = parsers.parse_run_delay_s(read_file(f"{tid}/schedstat", task))
    except (OSError, ValueError):
        delay_s = None
    return ThreadState(
        tid=tid,
        name=stat.name,
        cpus=cpus,
        state=stat.state,
        cpu=stat.cpu,
        policy=stat.policy,
        busy_s=stat.busy_ticks / TICKS_PER_S,
        delay_s=delay_s,
    )
