"""Reading the threads of running processes, which need not help and are never stopped.

What tells of them is /proc; masks alone the kernel tells twenty times as fast. Whatever ends meanwhile is
left out. A folder of /proc that is open stays that of its process, even when another one gets its number.
The libraries and the environment of a process may be read by its owner alone, its threads and their masks
by everybody.
"""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from ompbind.cpuset import CpuSet
from ompbind.planning.occupancy import tidy
from ompbind.procfs.process import ProcessState, ThreadState, is_relevant
from ompbind.programs.library_catalog import Library, name_library

POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""Scheduling policies by their numbers, as `chrt` names them."""

FORBIDDEN = ("libraries", "environment")
"""What only the owner of a process may read of it, as `ProcessState.unread` names it."""

_T = TypeVar("_T")

_KERNEL = 0x00200000
"""The flag of the kernel's own threads (PF_KTHREAD)."""

_GONE = (b"Z", b"X", b"x")
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _FLAGS, _USER, _SYSTEM, _CPU, _POLICY = 1, 6, 11, 12, 36, 38
"""Where fields of a stat file are, counted from the state, which follows the name."""


def read_process(pid: int) -> ProcessState | None:
    """Read a process with its threads, libraries and variables; None when there is none, or it has ended."""
    try:
        folder = _open(pid)
    except OSError:
        return None
    try:
        return _read_process(pid, folder)
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(folder)


def read_threads(pid: int) -> tuple[ThreadState, ...]:
    """Read the threads of a process; none when it has ended."""
    try:
        folder = _open(pid)
    except OSError:
        return ()
    try:
        return tuple(_read_threads(folder))
    finally:
        os.close(folder)


def read_masks(pid: int) -> tuple[ThreadState, ...]:
    """Read the masks of all threads of a process, and nothing else of them: a microsecond for each.

    Their names are "", their states "S". There is none when the process has ended.
    """
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return ()
    found: list[ThreadState] = []
    for tid in tids:
        try:
            if tid == pid and _has_ended(tid):
                continue
            found.append(ThreadState(tid=tid, name="", cpus=CpuSet(os.sched_getaffinity(tid))))
        except (OSError, ValueError):
            continue  # it has ended
    return tuple(found)


def _has_ended(pid: int) -> bool:
    """Tell whether the first thread of a process has ended, which others may outlive."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split(None, 1)[0] in _GONE


def read_libraries(pid: int) -> tuple[Library, ...] | None:
    """Read which runtimes, BLAS libraries and allocators a process has in its memory; None if it may not be.

    Two files are two libraries, even where one has replaced the other under the same name.
    """
    return _read_of(pid, _read_libraries)


def read_variables(pid: int) -> tuple[tuple[str, str], ...] | None:
    """Read those variables that a process was executed with which matter to threads; None if that may not be.

    A process that writes its title over them, as servers do, has lost some or all.
    """
    return _read_of(pid, _read_variables)


def _read_of(pid: int, read: Callable[[int, str], tuple[_T, ...] | None]) -> tuple[_T, ...] | None:
    """Read what a process has in the folder of its first thread; nothing when it has ended."""
    try:
        folder = _open(pid)
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    try:
        return read(folder, f"task/{pid}")
    finally:
        os.close(folder)


def _open(pid: int) -> int:
    return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _read(path: str, folder: int) -> bytes:
    """Read a whole file of /proc; large ones come in pieces."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        parts = [os.read(file, 1 << 16)]
        while parts[-1] and (len(parts) > 1 or len(parts[0]) > 3000):
            parts.append(os.read(file, 1 << 16))
        return b"".join(parts)
    finally:
        os.close(file)


def _read_process(pid: int, folder: int) -> ProcessState | None:
    name, fields = _split_stat(_read("stat", folder))
    threads = tuple(_read_threads(folder))
    if not threads:
        return None
    task = (
        f"task/{threads[0].tid}"  # the first thread may have ended before the others, and its memory with it
    )
    libraries, variables = _read_libraries(folder, task), _read_variables(folder, task)
    return ProcessState(
        pid=pid,
        parent=int(fields[_PARENT]),
        name=name,
        threads=threads,
        command=_read_command(folder, task),
        libraries=libraries or (),
        variables=variables or (),
        kernel=bool(int(fields[_FLAGS]) & _KERNEL),
        unread=tuple(
            name for name, what in zip(FORBIDDEN, (libraries, variables), strict=True) if what is None
        ),
    )


def _read_threads(folder: int) -> Iterator[ThreadState]:
    try:
        task = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    try:
        for tid in sorted(map(int, os.listdir(task))):
            try:
                thread = _read_thread(tid, task)
            except (OSError, ValueError, IndexError):
                continue  # it has ended
            if thread:
                yield thread
    except OSError:
        return  # the process has
    finally:
        os.close(task)


def _read_thread(tid: int, task: int) -> ThreadState | None:
    name, fields = _split_stat(_read(f"{tid}/stat", task))
    if fields[0] in _GONE:
        return None
    policy = int(fields[_POLICY])
    return ThreadState(
        tid=tid,
        name=name,
        cpus=CpuSet.from_list(_line(_read(f"{tid}/status", task), b"\nCpus_allowed_list:\t").decode()),
        state=fields[0].decode(),
        cpu=int(fields[_CPU]),
        policy=POLICIES.get(policy, str(policy)),
        busy_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS,
    )


def _line(status: bytes, head: bytes) -> bytes:
    """Return what follows the beginning of a line; raises ValueError when there is no such line."""
    start = status.index(head) + len(head)
    return status[start : status.index(b"\n", start)]


def _split_stat(stat: bytes) -> tuple[str, list[bytes]]:
    """Return the name in a stat file, which may have any signs in it, and the fields after it."""
    head, _, tail = stat.rpartition(b")")
    return _name(head.partition(b"(")[2]), tail.split()


def _name(raw: bytes) -> str:
    return tidy(raw.decode("utf-8", "replace"))


def _read_command(folder: int, task: str) -> tuple[str, ...]:
    try:
        data = _read(f"{task}/cmdline", folder)
    except OSError:
        return ()
    words = data.rstrip(b"\0").split(b"\0") if data.strip(b"\0") else []
    return tuple(word.decode("utf-8", "replace") for word in words)


def _read_libraries(folder: int, task: str) -> tuple[Library, ...] | None:
    """Read the libraries in the memory of a thread's process, each (device, inode) once."""
    data = _read_private(f"{task}/maps", folder)
    if data is None:
        return None
    found: dict[tuple[bytes, bytes], Library] = {}
    seen: set[bytes] = set()
    for line in data.split(b"\n"):
        path = line[line.find(b"/") :]
        if b".so" in path and path not in seen:
            seen.add(path)
            library = name_library(os.fsdecode(path))
            if library:
                _, _, _, device, inode, _ = line.split(None, 5)
                found.setdefault((device, inode), library)
    return tuple(found.values())


def _read_variables(folder: int, task: str) -> tuple[tuple[str, str], ...] | None:
    data = _read_private(f"{task}/environ", folder)
    if data is None:
        return None
    pairs = (pair.partition(b"=") for pair in data.split(b"\0"))
    told = {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals}
    return tuple(sorted((name, value) for name, value in told.items() if is_relevant(name)))


def _read_private(path: str, folder: int) -> bytes | None:
    """Read what only the owner of a process may: None where that is somebody else, b"" when it ends."""
    try:
        return _read(path, folder)
    except PermissionError:
        return None
    except OSError:
        return b""
